"""Short launches of a program begin while the one before ends, and wait for it before they touch anything."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import texpr
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.polyhedral.map.early import SHORT
from texpr.polyhedral.mapped.between import AfterLaunch
from texpr.polyhedral.mapped.candidate_json import candidate_json, read_candidate
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

CHAIN = """kernel chain(A: i32[N], Y: i32[N]) {
    new B: i32[N]
    par N i { B[i] = A[N - 1 - i] + 1 }
    par N i { Y[i] = B[N - 1 - i] * B[i] }
}"""
TURNS = """kernel turns(inout A: i32[N], B: i32[N]) {
    seq 3 t {
        par N i { B[i] = A[N - 1 - i] + 1 }
        par N i { A[i] = B[N - 1 - i] }
    }
}"""


def compiled(text: str, target: str = "cuda:sm_90a", stop_after: str | None = "map", **options: Any) -> Any:
    return texpr.parse(text).only.compile(target, stop_after=stop_after, **options)


def program_of(text: str, **options: Any) -> MappedProgram:
    program = compiled(text, **options).mapping.program
    assert isinstance(program, MappedProgram)
    return program


@pytest.mark.parametrize(
    ("text", "n", "early"),
    [
        (CHAIN, 4096, {"chain_1"}),
        (CHAIN, SHORT, {"chain_1"}),
        (CHAIN, SHORT + 1, set()),
        (CHAIN, None, set()),
        (TURNS, 64, {"turns_0", "turns_1"}),  # the second round's follow the first round's
        ("kernel one(A: i32[N]) { par N i { A[i] = 1 } }", 64, set()),
        (CHAIN.replace("B[i] = A[N - 1 - i] + 1", f"B[i] = 0; seq {SHORT} k {{ B[i] += A[k % N] }}"), 4, {"chain_1"}),
        (CHAIN.replace("Y[i] = B", f"Y[i] = 0; seq {SHORT} k {{ Y[i] += A[k % N] }}; Y[i] += B"), 4, set()),
    ],
)
def test_launches_of_a_program_begin_early_that_are_known_to_be_short(
    text: str, n: int | None, early: set[str]
) -> None:
    sizes = {} if n is None else {"N": n}
    assert compiled(text, sizes=sizes).mapping.candidate.early == early
    for target in ("cuda:sm_80", "cpu"):
        assert compiled(text, target, sizes=sizes).mapping.candidate.early == frozenset()


def test_the_wait_stands_before_everything_and_the_launch_says_so() -> None:
    first, second = launches(program_of(CHAIN, N=64).host)
    assert not any(isinstance(node, AfterLaunch) for node in first.body)
    assert [number for number, node in enumerate(second.body) if isinstance(node, AfterLaunch)] == [0]
    made = compiled(CHAIN, stop_after="emit", N=64)
    assert [step.overlaps for step in made.manifest.host] == [False, True]
    assert made.source.index("tx::after_launch();") > made.source.index("chain_1(")


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("text", [CHAIN, TURNS])
def test_they_compute_what_they_did(text: str, interleaved: bool) -> None:
    given = {"A": np.arange(40, dtype=np.int32), "B": np.zeros(40, np.int32), "Y": np.zeros(40, np.int32)}
    program = program_of(text, N=40)
    names = {parameter.name for parameter in program.kernel.params}
    found = simulate(program, {name: given[name].copy() for name in names}, interleaved=interleaved)
    late = replace(program, host=program_of(text, N=40, mapping=replace(program.candidate, early=frozenset())).host)
    wanted = simulate(late, {name: given[name].copy() for name in names})
    assert all(np.array_equal(found[name], wanted[name]) for name in names)
    if not interleaved:
        own = {name: given[name].copy() for name in names}
        compiled(text, "cuda-host:sm_90a", stop_after=None, N=40)(**own)
        assert all(np.array_equal(own[name], wanted[name]) for name in names)


def test_a_wait_that_comes_too_late_is_found_by_the_check_and_by_the_simulator() -> None:
    program = program_of(CHAIN, N=64)
    first, second = program.host
    wait, *rest = second.body
    late = replace(program, host=(first, replace(second, body=(*rest, wait))))
    check_orders(program)
    with pytest.raises(InternalError, match="nothing orders S0 before S1 on B"):
        check_orders(late)
    given = {"A": np.arange(64, dtype=np.int32), "Y": np.zeros(64, np.int32)}
    with pytest.raises(TExprError, match="B"):
        for seed in range(20):
            simulate(late, {name: array.copy() for name, array in given.items()}, seed=seed)


def test_a_mapping_says_which_launches_begin_early_and_is_refused_for_those_that_cannot() -> None:
    kernel = texpr.parse(CHAIN).only
    own = kernel.compile("cuda:sm_90a", stop_after="map").mapping.candidate
    asked = replace(own, early=frozenset({"chain_1"}))
    assert read_candidate(candidate_json(asked)) == asked
    text = str(kernel.compile("cuda:sm_90a", mapping=asked, stop_after="map").mapping)
    assert text.count("after the launch before") == 1
    for early, target in (({"chain_0"}, "cuda:sm_90a"), ({"other"}, "cuda:sm_90a"), ({"chain_1"}, "cuda:sm_80")):
        with pytest.raises(TExprError, match=r"`early`: .* cannot all begin before others are over") as refused:
            kernel.compile(target, mapping=replace(own, early=frozenset(early)), stop_after="map")
        assert refused.value.diagnostics[0].code == "E0401"
