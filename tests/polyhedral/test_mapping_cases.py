"""Mappings of several cases: each call runs the first candidate whose condition holds, and computes the same."""

import json
import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from stages import proved as prove_text
from test_map_programs import arguments, read

from texpr.codegen.plan import plan
from texpr.grammar.ast import Kernel, Role
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.text import in_words
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.alternatives import alternatives
from texpr.polyhedral.map.chains import sums
from texpr.polyhedral.map.space import candidates
from texpr.polyhedral.map.stage import map_program, problem_of
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Case, Cases
from texpr.polyhedral.mapped.candidate_json import choices_json, read_choices
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import HostIf, MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.walks import case_buffers, device_buffers, launches, tree_buffers
from texpr.polyhedral.mapped.when import read_condition
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.moves import Contract, Fuse
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.schedule import draft
from texpr.polyhedral.schedule.draft import replay
from texpr.polyhedral.simulate.stage import in_order, simulate
from texpr.polyhedral.target import parse_target

NAMES = ("column_sum", "full_sum", "matrix_vector", "softmax", "transpose", "workspace_in_a_host_loop")
PAIRS = [(name, "cuda:sm_90a") for name in NAMES] + [(name, "cpu") for name in NAMES[:3]]


@cache
def proved(name: str) -> ProvedProgram:
    """With free sizes, so that conditions have something to ask."""
    return prove(build_program(read(name)[0]))


def mapped(name: str, target: str, choices: Candidate | Cases | None = None) -> MappedProgram:
    return map_program(proved(name), parse_target(target), choices=choices, hints=read(name)[1])


def of_one(name: str, target: str) -> MappedProgram:
    """The mapping by one candidate, that of the calls in which nothing more is known."""
    own = mapped(name, target)
    return mapped(name, target, own.candidate.otherwise) if isinstance(own.candidate, Cases) else own


def condition(text: str) -> Any:
    found = read_condition(text)
    assert found is not None, text
    return found


def asked(kernel: Kernel, chance: random.Random) -> str:
    """A condition that some calls fulfil."""
    sizes = [size.name for size in kernel.sizes]
    arrays = [buffer for buffer in kernel.params if buffer.role is Role.PARAM]
    array = chance.choice(arrays)
    questions = [
        f"address({array.name}) % {chance.choice([16, 32, 64])} == {chance.choice([0, 16])}",
        *(f"{size} % {chance.choice([2, 3])} == {chance.choice([0, 1])}" for size in sizes),
        *(f"min({size}, 9) >= {chance.choice([3, 9])}" for size in sizes),
    ]
    if array.shape:
        questions.append(f"stride({array.name}, 0) % 2 == 0")
    one, other = chance.choice(questions), chance.choice(questions)
    return chance.choice([one, f"{one} and {other}", f"{one} or not ({other})"])


@pytest.mark.parametrize(("name", "target"), PAIRS)
def test_a_mapping_of_random_cases_computes_what_the_interpreter_computes(name: str, target: str) -> None:
    kernel, sizes = read(name)
    chance = random.Random(name + target)
    first = of_one(name, target)
    space = list(candidates(problem_of(proved(name), first)))
    for _ in range(2):
        picked = [chance.choice(space) for _ in range(chance.choice([2, 3]))]
        cases = tuple(Case(when=condition(asked(kernel, chance)), candidate=c) for c in picked[1:])
        try:
            program = mapped(name, target, Cases(cases=cases, otherwise=picked[0]))
        except TExprError as refused:
            assert {d.code for d in refused.diagnostics} <= {"E0401", "E0403"}
            continue
        for seed in range(2):
            scaled = {size: value + chance.choice([0, 1]) for size, value in sizes.items()}
            given = arguments(kernel, scaled)
            got, expected = simulate(program, given, seed=seed), interpret(kernel, given).outputs
            for buffer in expected:
                np.testing.assert_allclose(got[buffer], expected[buffer], rtol=1e-5, err_msg=show(program))


def two_ways(name: str = "softmax") -> tuple[Candidate, Candidate]:
    """Candidates of one program with other places for its locals."""
    own = of_one(name, "cuda:sm_90a").candidate
    assert isinstance(own, Candidate)
    (launch,) = own.launches
    choice = own.launches[launch]
    assert isinstance(choice, Blocks)
    return own, replace(own, launches={launch: replace(choice, shared_out=())})


def test_cases_of_the_same_moves_are_scheduled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "kernel f(A: f32[N], B: f32[N]) { new t: f32[N]; par N i { t[i] = A[i] }; par N j { B[j] = t[j] } }"
    start, target = prove_text(text), parse_target("cuda:sm_90a")
    moves = (Fuse(first="i", second="j"), Contract(buffer="t", loop="i"))
    own = map_program(replay(start, moves).proved, target).candidate
    assert isinstance(own, Candidate)
    moved = replace(own, moves=moves)
    asked: list[Any] = []
    monkeypatch.setattr(draft, "replay", lambda *given: asked.append(given[1]) or replay(*given))
    cases = (Case(when=condition(f"N % {n} == 0"), candidate=moved) for n in (2, 3))
    program = map_program(start, target, choices=Cases(cases=tuple(cases), otherwise=moved))
    assert asked == [moves] and len(list(launches(program.host))) == 3


def test_the_first_case_that_holds_runs() -> None:
    first, second = two_ways()
    cases = Cases(
        cases=(
            Case(when=condition("M % 2 == 0"), candidate=first),
            Case(when=condition("address(X) % 32 == 16"), candidate=second),
        ),
        otherwise=first,
    )
    program = mapped("softmax", "cuda:sm_90a", cases)
    names = [launch.name for launch in launches(program.host)]
    assert names == ["softmax_0_case0", "softmax_0_case1", "softmax_0_case2"]

    def chosen(m: int, address: int) -> list[str]:
        values = {"M": m, "N": 8, "address(X)": address}
        return [launch.name for launch, _ in in_order(program.host, values)]

    assert chosen(4, 48) == names[:1]
    assert chosen(5, 48) == names[1:2]
    assert chosen(5, 0) == names[2:]


def test_a_single_candidate_is_the_trivial_mapping() -> None:
    own, _ = two_ways()
    alone = mapped("softmax", "cuda:sm_90a", Cases(cases=(), otherwise=own))
    assert show(alone) == show(of_one("softmax", "cuda:sm_90a"))


def test_the_cases_that_the_compiler_chose_are_a_mapping_from_outside_too() -> None:
    own = mapped("softmax", "cuda:sm_90a")
    assert isinstance(own.candidate, Cases)
    again = mapped("softmax", "cuda:sm_90a", read_choices(json.loads(json.dumps(choices_json(own.candidate)))))
    assert again.candidate == own.candidate and again.host == own.host


def test_what_the_bound_sizes_decide_is_no_case() -> None:
    first, second = two_ways()
    cases = Cases(
        cases=(
            Case(when=condition("K % 2 == 1"), candidate=second),
            Case(when=condition("K % 2 == 0 or M == 1"), candidate=second),
        ),
        otherwise=first,
    )
    found = map_program(proved("softmax"), parse_target("cuda:sm_90a"), choices=cases, sizes={"K": 4})
    assert found.candidate == second and not any(isinstance(node, HostIf) for node in found.host)


TWO_PLACES = """kernel two_places(A: f32[M, 64], B: f32[M, 64]) {
    par M i {
        new t: f32[64]
        par 64 a { t[a] = A[i, a] }
        par 64 b { B[i, b] = t[63 - b] }
    }
}"""


def test_a_buffer_that_cases_place_otherwise_has_a_name_for_each() -> None:
    base, target = prove_text(TWO_PLACES), parse_target("cuda:sm_90a")
    own = map_program(base, target).candidate
    assert isinstance(own, Candidate)
    choice = own.launches["two_places_0"]
    assert isinstance(choice, Blocks) and choice.memory == {"t": Memory.SHARED}
    other = replace(own, launches={"two_places_0": replace(choice, memory={"t": Memory.GLOBAL})})
    cases = Cases(cases=(Case(when=condition("M > 3"), candidate=own),), otherwise=other)
    program = map_program(base, target, choices=cases)
    assert {name: buffer.of for name, buffer in program.buffers.items()} == {"A": "", "B": "", "t": "", "t_case1": "t"}
    assert case_buffers(program) == {"t": 0, "t_case1": 1}
    for m, own_name in ((5, "t"), (2, "t_case1")):
        (launch,) = (launch for launch, _ in in_order(program.host, {"M": m}))
        assert {name for name in tree_buffers(launch.body) if name.startswith("t")} == {own_name}
        a = np.arange(m * 64, dtype=np.float32).reshape(m, 64)
        np.testing.assert_array_equal(simulate(program, {"A": a, "B": np.zeros_like(a)})["B"], a[:, ::-1])


def test_workspaces_that_cases_share_are_one() -> None:
    name = "workspace_in_a_host_loop"
    space = list(candidates(problem_of(proved(name), of_one(name, "cuda:sm_90a"))))
    cases = Cases(cases=(Case(when=condition("address(A) % 32 == 0"), candidate=space[1]),), otherwise=space[0])
    program = mapped(name, "cuda:sm_90a", cases)
    spaces = {b.name for b in device_buffers(program) if b.role is Role.LOCAL}
    assert spaces and not spaces & case_buffers(program).keys()
    assert plan(program).workspace_bytes == plan(mapped(name, "cuda:sm_90a")).workspace_bytes


def test_sums_are_told_by_the_kernel_s_names() -> None:
    base, target = prove_text(TWO_PLACES.replace("A[i, a]", "sum 8 q { A[i, q] }")), parse_target("cuda:sm_90a")
    own = map_program(base, target)
    assert isinstance(own.candidate, Candidate)
    choice = replace(own.candidate.launches["two_places_0"], memory={"t": Memory.GLOBAL})  # type: ignore[call-arg]  # a Blocks
    other = replace(own.candidate, launches={"two_places_0": choice})
    cases = Cases(cases=(Case(when=condition("M > 3"), candidate=own.candidate),), otherwise=other)
    program = map_program(base, target, choices=cases)
    assert "t_case1" in program.buffers and sums(program, {"M": 7}) == sums(own, {"M": 7})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Q > 3", r"the condition of case 0, `Q > 3`, asks for Q, which the kernel has not"),
        ("address(W) % 16 == 0", r"asks for address\(W\), which the kernel has not"),
        ("stride(X, 2) == 1", r"asks for stride\(X, 2\), which the kernel has not"),
        ("address(X) > 4096", r"asks for address\(X\) itself"),
        ("address(X) % 16 == address(X)", r"asks for address\(X\) itself"),
    ],
)
def test_a_condition_on_what_the_kernel_has_not_is_refused(text: str, said: str) -> None:
    own, _ = two_ways()
    with pytest.raises(TExprError, match=said) as caught:
        mapped("softmax", "cuda:sm_90a", Cases(cases=(Case(when=condition(text), candidate=own),), otherwise=own))
    assert [d.code for d in caught.value.diagnostics] == ["E0401"]


def test_a_candidate_that_does_not_fit_is_told_with_its_case() -> None:
    own, _ = two_ways()
    wrong = replace(own, launches={n: replace(c, threads=48) for n, c in own.launches.items()})  # type: ignore[call-arg]  # a Blocks
    when = condition("M % 2 == 0")
    for cases, note in (
        (Cases(cases=(Case(when=when, candidate=wrong),), otherwise=own), "when M % 2 == 0"),
        (Cases(cases=(Case(when=when, candidate=own),), otherwise=wrong), "otherwise"),
    ):
        with pytest.raises(TExprError, match="a block cannot have 48 threads") as caught:
            mapped("softmax", "cuda:sm_90a", cases)
        assert caught.value.diagnostics[0].notes == (f"of the mapping's candidate {note}",)


def test_each_of_several_cases_has_alternatives_that_go_back_in() -> None:
    own, other = two_ways()
    program = mapped(
        "softmax", "cuda:sm_90a", Cases(cases=(Case(when=condition("M > 3"), candidate=other),), otherwise=own)
    )
    with pytest.raises(TExprError, match="a mapping of several cases solves several problems"):
        problem_of(proved("softmax"), program)
    found = alternatives(proved("softmax"), program)
    assert [(one.launch, one.case, one.when) for one in found] == [
        ("softmax_0_case0", 0, condition("M > 3")),
        ("softmax_0_case1", 1, None),
    ]
    for one, candidate in zip(found, (other, own), strict=True):
        assert one.own.choice == candidate.launches["softmax_0"]
        assert one.own.choices == program.candidate
        prices = [other.terms.total for other in one.others]
        assert prices == sorted(prices) and len(prices) > 5
        changed = next(each for each in one.others if isinstance(each.choice, Blocks))
        assert isinstance(changed.choices, Cases)
        again = mapped("softmax", "cuda:sm_90a", changed.choices).candidate
        assert again == changed.choices
        assert [again.cases[0].candidate == other, again.otherwise == own] == [one.case != 0, one.case != 1]


CONDITIONS = (
    "M % 128 == 0 and address(A) % 16 == 0",
    "not (M < 3) or (stride(A, 0) % 8 == 0 and N == 1)",
    "min(M, N) > ceildiv(N, 4)",
    "(M > 1 or N > 1) and not (M == N and true)",
    "M - (N - 3) <= -4",
    "M * N / 8 % 5 != 2 * (M + 1)",
)


@pytest.mark.parametrize("text", CONDITIONS)
def test_a_condition_is_read_as_it_is_written(text: str) -> None:
    assert in_words(condition(text)) == text
    assert condition(in_words(condition(text))) == condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "M", "M +", "M % N == 0", "M / 0 == 1", "A[0] == 1", "1.5 < M", "M < 1 {} kernel x() where true",
        "M < 1, N < 1", "true -- all", "M < 1\n", "sum K k { 1 } > 0", "address(A[0]) == 1", "min(M) > 1",
        "(" * 700 + "true" + ")" * 700, "M < 1" + " and M < 1" * 300,
    ],
)  # fmt: skip
def test_another_text_is_no_condition(text: str) -> None:
    assert read_condition(text) is None


def test_cases_are_their_json() -> None:
    own, other = two_ways()
    cases = Cases(cases=tuple(Case(when=condition(t), candidate=other) for t in CONDITIONS), otherwise=own)
    assert read_choices(choices_json(cases)) == cases
    assert read_choices(choices_json(own)) == own


def data(**changes: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "schema": 1,
        "moves": [],
        "wide": True,
        "kept": [],
        "laid": [],
        "centred": [],
        "jammed": [],
        "shared": [],
        "early": [],
        "lasting": [],
        "passing": [],
        "launches": {},
    }
    return {"cases": [{"when": "M > 3", "candidate": own}], "otherwise": own, **changes}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"cases": []}, r"otherwise is the candidate of the calls that are none of the cases, not None"),
        (data(more=1), r"the cases is an object of cases, otherwise, not a dict"),
        (data(cases=3), r"cases is a list of cases, not 3"),
        (data(cases=[3]), r"cases.0 is an object of candidate, when, not 3"),
        (data(cases=[{"when": "M >", "candidate": {}}]), r"cases.0.when is a condition such as .*, not 'M >'"),
        (data(cases=[{"when": 3, "candidate": {}}]), r"cases.0.when is a condition such as .*, not 3"),
        (data(cases=[{"when": "true", "candidate": {}}]), r"cases.0.candidate is an object of centred, early"),
        (
            data(otherwise=None),
            r"otherwise is an object of centred, early, jammed, kept, laid, lasting, launches, moves, passing, "
            r"schema, shared, wide, not None",
        ),
        (data(otherwise={**data()["otherwise"], "schema": 9}), r"otherwise.schema is 1, .*, not 9"),
    ],
)
def test_what_is_no_mapping_is_refused_with_its_place(data: Any, said: str) -> None:
    with pytest.raises(TExprError, match=said) as refused:
        read_choices(data)
    assert [d.code for d in refused.value.diagnostics] == ["E0607"]
