"""Candidates: every one of a problem's space is a right program, and none that is wrong gets past the check."""

import os
import random
from dataclasses import fields, replace
from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
import stages
from test_map_programs import NAMES, SLOW_ON_A_CORE, TARGETS, arguments, read

from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.cost import cost
from texpr.polyhedral.map.digits import thread_pieces_fit
from texpr.polyhedral.map.legal import check_candidate
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.space import candidates
from texpr.polyhedral.map.stage import map_program, problem_of
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Choice, Combined, Flat, Tallied
from texpr.polyhedral.mapped.candidate_json import _READERS, FORMS, candidate_json, read_candidate
from texpr.polyhedral.mapped.on_cores import Cores
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

EVERY = bool(os.environ.get("EVERY_CANDIDATE"))  # all of them take minutes; CI takes a sample
TRIED = 2
QUICK = (
    "column_sum",
    "full_sum",
    "histogram",
    "histogram_by_blocks",
    "matrix_vector",
    "transpose",
    "triangle_in_a_block",
)
QUICK_ON_CUDA = (
    *QUICK,
    "histogram",
    "pinned_levels",
    "row_sum_by_inner_par",
    "softmax",
    "tiled_matmul",
    "two_sums_at_once",
)
PAIRS = (
    [(name, target) for name, target in product(NAMES, TARGETS) if target != "cpu" or name not in SLOW_ON_A_CORE]
    if EVERY
    else [(name, TARGETS[0]) for name in QUICK_ON_CUDA] + [(name, "cpu") for name in QUICK]
)


def mapped(name: str, target: str, candidate: Candidate | None = None) -> tuple[MappedProgram, dict[str, int]]:
    _, sizes = read(name)
    return map_program(proved(name), parse_target(target), choices=candidate), sizes


@cache
def proved(name: str) -> ProvedProgram:
    kernel, sizes = read(name)
    return prove(build_program(bind_sizes(kernel, sizes)))


def problem(name: str, program: MappedProgram) -> Problem:
    return problem_of(proved(name), program)


def run(program: MappedProgram, given: dict[str, Any], seed: int) -> None:
    got, expected = simulate(program, given, seed=seed), interpret(program.kernel, given).outputs
    for buffer in expected:
        np.testing.assert_allclose(got[buffer], expected[buffer], rtol=1e-5, err_msg=str(program.candidate))


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_every_candidate_computes_what_the_interpreter_computes(name: str, target: str) -> None:
    program, sizes = mapped(name, target)
    own = problem(name, program)
    first, *others = candidates(own)
    assert first == program.candidate
    chosen = others if EVERY else random.Random(name).sample(others, min(TRIED, len(others)))
    given = arguments(program.kernel, sizes)
    for seed, candidate in enumerate(chosen):
        try:
            other, _ = mapped(name, target, candidate)
        except TExprError as refused:
            assert {d.code for d in refused.diagnostics} <= {"E0401", "E0403"}, candidate
            continue
        run(other, given, seed)
        assert set(cost(own, candidate).launches) == set(candidate.launches)


def mutated(candidate: Candidate, chance: random.Random) -> Candidate:
    """A candidate with one choice changed at random, often to nonsense."""
    name = chance.choice(list(candidate.launches))
    choice = candidate.launches[name]
    field = chance.choice([f.name for f in fields(choice)])
    changed: Choice = replace(choice, **{field: _other(getattr(choice, field), chance)})
    return replace(candidate, launches={**candidate.launches, name: changed})


def _other(value: Any, chance: random.Random) -> Any:
    match value:
        case bool() | None:
            return chance.choice([True, None, "i"])
        case int():
            return chance.choice([1, 2, 3, 24, 32, 48, 64, 96, 1024, 2048, value * 2, value + 1])
        case str():
            return chance.choice(["i", "j", "k", "elsewhere"])
        case Memory():
            return chance.choice([Memory.REG, Memory.SHARED, Memory.GLOBAL])
        case tuple() if value:
            kept = list(value)
            place = chance.randrange(len(kept))
            match chance.randrange(3):
                case 0:
                    kept[place] = _other(kept[place], chance)
                case 1:
                    kept.pop(place)
                case _:
                    chance.shuffle(kept)
            return tuple(kept)
        case dict() if value:
            place = chance.choice(list(value))
            return {**value, place: _other(value[place], chance)}
        case tuple():
            return chance.choice([(("i", 32),), ("i",), ("k",), ("j", "i")])
        case _:
            return chance.choice([{"i": 2}, {"elsewhere": 1}])


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_changed_candidate_is_refused_or_right(name: str, target: str) -> None:
    program, sizes = mapped(name, target)
    given, chance = arguments(program.kernel, sizes), random.Random(name + target)
    starts = list(candidates(problem(name, program)))
    for _ in range(400 if EVERY else 4):
        candidate = mutated(chance.choice(starts), chance)
        try:
            candidate = read_candidate(candidate_json(candidate))
            other, _ = mapped(name, target, candidate)
        except TExprError as refused:
            assert {d.code for d in refused.diagnostics} <= {"E0401", "E0403", "E0607"}, candidate
            continue
        run(other, given, 1)


@pytest.mark.parametrize("name", ["softmax", "matmul_f16", "full_sum", "histogram", "workspace_in_a_host_loop"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_candidate_is_its_json_and_makes_one_program(name: str, target: str) -> None:
    program, _ = mapped(name, target)
    again = read_candidate(candidate_json(program.candidate))
    assert again == program.candidate
    assert show(mapped(name, target, again)[0]) == show(program)


def test_what_was_saved_before_a_field_was_there_is_read_as_it_was() -> None:
    whole = candidate_json(mapped("softmax", "cuda:sm_90a")[0].candidate)
    ((name, choice),) = whole["launches"].items()
    assert choice["form"] == "blocks" and choice["rows"] and not any(row["slots"] for row in choice["rows"])
    rows = [{"indices": row["indices"], "line": row["line"]} for row in choice["rows"]]
    early = choice | {"rows": rows}
    del early["memory"]
    saved = {"schema": 1, "launches": {name: early}}
    assert read_candidate(saved) == replace(
        read_candidate(whole), launches={name: replace(read_candidate(whole).launches[name], memory={})}
    )
    for missing in ("threads", "grid", "form"):
        with pytest.raises(TExprError, match="E0607"):
            read_candidate({"schema": 1, "launches": {name: {k: v for k, v in choice.items() if k != missing}}})
    for wrong in ({"launches": {}}, {"schema": 1}, whole | {"later": 1}, whole | {"schema": 2}):
        with pytest.raises(TExprError, match="E0607"):
            read_candidate(wrong)


def test_pieces_number_the_threads_of_a_block_by_enumeration() -> None:
    warp = 4
    for count in range(4):
        for radices in product((1, 2, 3, 4, 8), repeat=count):
            threads = prod(radices)
            fit = thread_pieces_fit(radices, threads, warp)
            assert _numbers_each(radices, warp) if fit else 3 in radices or not _numbers_each(radices, warp), radices
            assert not thread_pieces_fit(radices, threads + 1, warp)


def _numbers_each(radices: tuple[int, ...], warp: int) -> bool:
    """Whether digits cut at the warp's edge as `thread_digits` cuts them give every combination one thread."""
    cut: list[tuple[int, int, bool]] = []
    done = 1
    for radix in radices:
        while radix > 1:
            on_lanes = done < warp
            mine = min(radix, warp // done) if on_lanes else radix
            cut.append((done if on_lanes else done // warp, mine, on_lanes))
            done, radix = done * mine, radix // mine if radix % mine == 0 else 0
        if radix == 0:
            return False
    values = {
        tuple((thread % warp if lane else thread // warp) // stride % radix for stride, radix, lane in cut)
        for thread in range(prod(radices))
    }
    return len(values) == prod(radices) == prod(radix for _, radix, _ in cut)


def edited(target: str, name: str, **changes: Any) -> str:
    """What is said of a program's own candidate after a change of the first launch that has these fields."""
    program, _ = mapped(name, target)
    launches = program.candidate.launches.items()
    launch, choice = next(each for each in launches if all(hasattr(each[1], field) for field in changes))
    candidate = replace(program.candidate, launches={**program.candidate.launches, launch: replace(choice, **changes)})
    with pytest.raises(TExprError) as refused:
        check_candidate(problem(name, program), candidate)
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "E0401"
    return diagnostic.message


def test_a_refusal_says_what_does_not_fit() -> None:
    assert "a block cannot have 48 threads" in edited("cuda:sm_90a", "matmul_f16", threads=48)
    assert "`deal` deals 32 threads, in pieces that do not number 256" in edited(
        "cuda:sm_90a", "matmul_f16", deal=(("j", 32),)
    )
    assert "`grid` orders j; the band has i, j" in edited("cuda:sm_90a", "matmul_f16", grid=("j",))
    assert "`inner` deals threads to none" in edited("cuda:sm_90a", "softmax", inner={})
    assert "`vector`: q is no index of the band" in edited("cpu", "matmul_f16", vector="q")
    assert "`chunk` says how many iterations" in edited("cpu", "matmul_f16", chunk=16)
    assert "those that may be on cores are" in edited("cpu", "column_sum", cores=("k",), vector=None)


def test_updates_are_combined_over_an_index_that_no_element_has() -> None:
    program, _ = mapped("full_sum", "cuda:sm_90a")
    name = next(name for name, choice in program.candidate.launches.items() if isinstance(choice, Flat))
    grid = program.candidate.launches[name].grid  # type: ignore[union-attr]  # a Flat
    wrong = Combined(threads=128, over="elsewhere", rounds=1, grid=grid)
    with pytest.raises(TExprError, match="`over`: the updates cannot be combined over elsewhere"):
        check_candidate(
            problem("full_sum", program),
            replace(program.candidate, launches={**program.candidate.launches, name: wrong}),
        )


def test_a_form_of_another_target_is_refused() -> None:
    program, _ = mapped("matmul_f16", "cuda:sm_90a")
    (launch,) = program.candidate.launches
    wrong = replace(program.candidate, launches={launch: Cores(cores=("i",))})
    with pytest.raises(TExprError, match=r"the form Cores is none of cuda:sm_90a"):
        check_candidate(problem("matmul_f16", program), wrong)


def test_the_launches_of_another_kernel_are_refused() -> None:
    program, _ = mapped("matmul_f16", "cuda:sm_90a")
    other, _ = mapped("softmax", "cuda:sm_90a")
    with pytest.raises(TExprError, match=r"the candidate has the launches .*; this kernel has"):
        check_candidate(problem("matmul_f16", program), other.candidate)


def data(**launches: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "moves": [],
        "wide": True,
        "kept": [],
        "laid": [],
        "centred": [],
        "jammed": [],
        "shared": [],
        "early": [],
        "launches": launches,
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            [],
            r"the candidate is an object of centred, early, jammed, kept, laid, lasting, launches, moves, passing, "
            r"schema, shared, wide, not a",
        ),
        (data() | {"schema": 7}, r"schema is 1, the version that this TExpr reads, not 7"),
        (data() | {"wide": 1}, r"wide is true or false, not 1"),
        (data() | {"kept": [3]}, r"kept is a name, not 3"),
        (data() | {"launches": []}, r"launches is an object by launch, not a list"),
        (data(k={"form": []}), r"launches.k.form is one of .*, not a list"),
        (data(k={"form": "flat"}), r"launches.k is an object of deal, form"),
        (
            data(
                k={
                    "form": "cores",
                    "cores": [1],
                    "vector": None,
                    "chunk": 1,
                    "jam": {},
                    "tile": {},
                    "local_rows": False,
                    "once": False,
                    "memory": {},
                }
            ),
            r"k.cores is a name, not 1",
        ),
        (data(k={"form": "single", "memory": {"t": "cluster"}}), r"k.memory.t is reg, shared or global, not 'cluster'"),
    ],
)
def test_what_is_no_candidate_is_refused_with_its_place(data: Any, said: str) -> None:
    with pytest.raises(TExprError, match=said) as refused:
        read_candidate(data)
    assert [d.code for d in refused.value.diagnostics] == ["E0607"]


def test_the_forms_of_a_band_are_all_in_its_space() -> None:
    def forms(name: str, target: str) -> set[str]:
        program, _ = mapped(name, target)
        return {type(c).__name__ for found in candidates(problem(name, program)) for c in found.launches.values()}

    assert forms("full_sum", "cuda:sm_90a") == {"Single", Flat.__name__, Blocks.__name__, Combined.__name__}
    assert forms("matmul_f16", "cuda:sm_90a") == {Flat.__name__, Blocks.__name__}  # of 256 threads
    assert forms("histogram", "cuda:sm_90a") == {Flat.__name__, Blocks.__name__, Tallied.__name__}
    assert forms("softmax", "cuda:sm_90a") == {Blocks.__name__}
    assert forms("matmul_f16", "cpu") == {Cores.__name__}


def test_rows_may_have_any_number_of_warps_up_to_twice_as_many_as_they_have() -> None:
    def teams(attribute: str) -> list[int]:
        text = f"""kernel k(X: f32[64, 2048], Y: f32[64, 2048]){attribute} {{ par 64 i {{
            let s = sum 2048 k {{ X[i, k] }}
            par 2048 j {{ Y[i, j] = X[i, j] / s }}
        }} }}"""
        problem = problem_of(stages.proved(text), stages.mapped(text))
        found = [choice for one in candidates(problem) for choice in one.launches.values()]
        return [choice.threads for choice in found if isinstance(choice, Blocks) and choice.rows]

    usual, *others = teams("")
    assert {*range(32, 2 * usual + 1, 32)} <= {usual, *others} and usual % 32 == 0
    assert set(teams(" #threads(96)")) == {96}


def test_every_field_of_a_form_can_be_read_back() -> None:
    for form, kind in FORMS.items():
        missing = {field.name for field in fields(kind)} - _READERS.keys()
        assert not missing, f"{form}: {missing} is written and never read"
