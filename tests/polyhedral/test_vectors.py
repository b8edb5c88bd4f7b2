"""Wide accesses of plain programs: which there are, how wide, and which are none."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, program, proved

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.linear import linear
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.facts import size_divisors
from texpr.polyhedral.map import vectors
from texpr.polyhedral.map.build import build
from texpr.polyhedral.map.choose import choose
from texpr.polyhedral.map.cost import cost
from texpr.polyhedral.map.kept import keep_nothing
from texpr.polyhedral.map.legal import check_candidate
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.problems import Problems
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.candidate import Blocks, Candidate, Flat
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches, of_kind
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

ROWS = "kernel k(A: f32[M, N], B: f32[M, N]) {} {{ par M i, N j {{ B[i, j] = A[M - 1 - i, j] }} }}"


def wide(mapped: MappedProgram) -> dict[str, int]:
    """By array, how many elements its accesses move together."""
    return {a.buffer: a.width for a in mapped.report.accesses if a.width > 1}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }", {"A": 4, "B": 4}),
        ("kernel k(A: bf16[N], B: f64[N]) { par N i { B[i] = f64(A[i]) } }", {"A": 8, "B": 2}),
        ("kernel k(A: u8[N], B: u8[N]) { par N i { B[i] = A[i] } }", {"A": 16, "B": 16}),
        ("kernel k(A: f32[N]) { par N i { A[i] = A[i] + 1.0 } }", {"A": 4}),
        ("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] += A[i] } }", {"A": 4, "B": 4}),
        ("kernel k(A: f32[N] #align(4), B: f32[N] #align(8)) { par N i { B[i] = A[i] } }", {}),
        ("kernel k(A: f32[N] #align(8), B: f32[N] #align(8)) { par N i { B[i] = A[i] } }", {"A": 2, "B": 2}),
        ("kernel k(A: f32[N + 1], B: f32[N]) { par N i { B[i] = A[i + 1] } }", {"A": 4, "B": 4}),
        ("kernel k(A: u8[N + 1], B: f32[N]) { par N i { B[i] = f32(A[i + 1]) } }", {}),
        ("kernel k(A: f32[N], B: f32[N + 1]) { par N i { B[i + 1] = A[i] } }", {"A": 4, "B": 4}),
        ("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[N - 1 - i] } }", {}),
        (ROWS.format(""), {"A": 4, "B": 4}),
        (ROWS.format("where N % 2 == 0"), {"A": 2, "B": 2}),
        (ROWS.format("where N % 12 == 0"), {"A": 4, "B": 4}),
        ("kernel k(A: f32[M, N], B: f32[M, N]) { par M i, N j { B[i, j] = A[0, 0] } }", {"B": 4}),
        ("kernel k(A: f32[M, N], B: f32[M, N]) { par M i, N j { B[i, j] = A[i, j] } }", {"A": 4, "B": 4}),
        ("kernel k(A: f32[M, N], B: f32[M, N]) { par M i, N j { B[i, j] = A[i, 0] } }", {"B": 4}),
        ("kernel k(A: f32[M, 64] #layout(col), B: f32[64]) where M >= 1 { par 64 j { B[j] = A[0, j] } }", {}),
        (
            "kernel k(A: f32[128, N] #layout(col), B: f32[128]) where N >= 4 { par 128 i { B[i] = A[i, 3] } }",
            {"A": 4, "B": 4},
        ),
        (
            "kernel k(A: f32[N, N] #strides(lda, 1), B: f32[N, N]) where N % 4 == 0, lda % 4 == 0, lda >= N"
            " { par N i, N j { B[i, j] = A[i, j] } }",
            {"A": 4, "B": 4},
        ),
        (
            "kernel k(T: bf16[V, 64], row: i32[M], B: bf16[M, 64]) { par M i, 64 j { B[i, j] = T[row[i], j] } }",
            {"T": 8, "B": 8},
        ),
        ("kernel k(T: f32[V], at: i32[N], B: f32[N]) { par N i { B[i] = T[at[i]] } }", {}),
        ("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = select(i < 3, A[i], 0.0) } }", {}),
        ("kernel k(A: f32[N], B: f32[N]) { par N i { if A[i] > 0.0 { B[i] = A[i] } } }", {}),
        ("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = 0.0; if A[i] > 0.0 { B[i] = 1.0 } } }", {"A": 4, "B": 4}),
        ("kernel k(A: f32[N], B: f32[N, 4]) { par N i { A[i] = sum 4 k { B[i, k] } } }", {}),
        ("kernel k(A: f32[N + 4], B: f32[N]) { par N i { A[i + 4] = A[0] + B[i] } }", {}),
        ("kernel k(A: f32[M, 4096], s: f32[M]) { par M i { s[i] = sum 4096 k { A[i, k] } } }", {"A": 4}),
        ("kernel k(A: f16[N], s: f32[1]) { s[0] = sum N k { f32(A[k]) } }", {"A": 8}),
        ("kernel k(A: f16[N], s: f32[1]) { s[0] = 0.0; par N k { s[0] += f32(A[k]) } }", {"A": 8}),
    ],
)
def test_accesses_are_wide_where_they_are_contiguous_aligned_and_sure(text: str, found: dict[str, int]) -> None:
    assert wide(mapped(text)) == found


def test_on_a_cpu_nothing_is_copied_wide() -> None:
    text = "kernel k(A: f32[N], B: f32[N]) { par N i #vector(4) { B[i] = A[i] } }"
    (launch,) = launches(mapped(text, "cpu").host)
    assert not any(of_kind(launch.body, Copy))


def test_what_a_run_does_not_fill_is_cut_only_where_it_may_not() -> None:
    def cut(text: str) -> bool:
        (launch,) = launches(mapped(text).host)
        return any(copy.within is not None for copy in of_kind(launch.body, Copy))

    assert cut("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }")
    assert not cut("kernel k(A: f32[N], B: f32[N]) where N % 4 == 0 { par N i { B[i] = A[i] } }")
    assert not cut("kernel k(A: f32[20], B: f32[20]) { par 20 i { B[i] = A[i] } }")


@pytest.mark.parametrize(
    ("widths", "why"),
    [
        ({"j": 3}, "no access is wide where a thread takes 3 iterations of j"),
        ({"j": 32}, "no access is wide where a thread takes 32 iterations of j"),
        ({"i": 4}, "no access is wide where a thread takes 4 iterations of i"),
        ({"i": 2, "j": 4}, "a thread takes runs of one index"),
        ({"q": 4}, "the indices that threads share out are i, j"),
    ],
)
def test_a_candidate_with_runs_that_cannot_be_is_refused(widths: dict[str, int], why: str) -> None:
    text = ROWS.format("where N % 8 == 0")
    choice = Flat(threads=32, deal=(("j", 32),), grid=("j", "i"), widths=widths)
    with pytest.raises(TExprError, match=why):
        map_program(proved(text), parse_target("cuda:sm_90a"), choices=Candidate(launches={"k_0": choice}))


def test_the_author_s_runs_are_kept_by_every_candidate() -> None:
    text = ROWS.format("where N % 8 == 0").replace("N j", "N j #vector(2)")
    assert wide(mapped(text)) == {"A": 2, "B": 2}
    choice = Flat(threads=32, deal=(("j", 32),), grid=("j", "i"), widths={"j": 4})
    with pytest.raises(TExprError, match="#vector is not mapped here"):
        map_program(proved(text), parse_target("cuda:sm_90a"), choices=Candidate(launches={"k_0": choice}))


def test_products_of_sizes_are_multiples_by_what_where_says() -> None:
    kernel = program(
        "kernel k(A: f32[M, N], B: f32[K]) where N % 6 == 0, N % 4 == 0, K % 2 == 0 { par M i { A[i, 0] = 1.0 } }"
    ).kernel
    known = size_divisors(kernel)
    assert known == {"N": 12, "K": 2}
    shape = kernel.params[0].shape
    assert linear(shape[1]).is_multiple(4, known) and not linear(shape[1]).is_multiple(8, known)
    assert not linear(shape[0]).is_multiple(2, known)


@pytest.mark.parametrize(("fact", "exact"), [("", {True}), ("where N % 4 == 0", set())])
def test_a_load_at_an_array_s_end_reads_no_byte_behind_it(fact: str, exact: set[bool]) -> None:
    text = f"kernel k(A: f32[N], B: f32[N]) {fact} {{ par N i {{ B[i] = A[i] }} }}"
    found = [copy for launch in launches(mapped(text).host) for copy in of_kind(launch.body, Copy)]
    assert len(found) == 2
    assert {copy.within.exact for copy in found if copy.within is not None} == exact


@pytest.mark.parametrize(
    "text",
    [
        "kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }",
        "kernel k(A: f32[64, 4096], B: f32[64]) { par 64 i { B[i] = sum 4096 k { A[i, k] } } }",
        "kernel k(A: f32[N], s: f32[1]) { par N k { s[0] += A[k] } }",
    ],
)
def test_what_is_wide_along_an_index_is_looked_for_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    look = vectors._along

    def counted(problem: Problem, events: Sequence[Any], own: frozenset[str], *told: Any) -> vectors.Along:
        accesses = tuple(event and event.told for event in events)
        asked.append((accesses, own, *told[:1], *map(frozenset, told[1:3]), told[3]))
        return look(problem, events, own, *told)

    monkeypatch.setattr(vectors, "_along", counted)
    program = proved(text)
    problem = Problems(keep_nothing(program), parse_target("cuda:sm_90a"), {}).wide
    candidate = choose(problem)
    cost(problem, candidate)
    check_candidate(problem, candidate)
    build(problem, candidate)
    assert len(asked) == len(set(asked)) <= 2  # a row that registers hold is read from elsewhere
    assert len({index for _, _, index, *_ in asked}) == 1


SEVERAL = "kernel k(A: f32[64], B: f32[64], inout Y: f32[10, 64]) {{ seq 5 r {{ par 64 j #vector(4) {{ {} }} }} }}"


BOUND = (
    ("Y[r, j] = A[j] ; Y[4 - r, j] = B[j]", True),  # one row where r is 2: the later store stays
    ("Y[4 - r, j] = A[j] ; Y[r, j] = B[j]", True),
    ("Y[r, j] = A[j] ; Y[4 - r, j] = B[j] ; Y[r, j] = A[j] + 1.0", False),
    ("Y[r, j] = A[j] ; if j > 5 { Y[4 - r, j] = B[j] }", False),
    ("Y[r, j] = A[j] ; Y[4 - r, j] = Y[r, j] + B[j]", False),
    ("Y[2 * r, j] = A[j] ; Y[2 * r + 1, j] = B[j] ; Y[2 * r, j] = B[j] - 1.0", True),  # never one row
    ("Y[2 * r, j] += A[j] ; Y[2 * r + 1, j] = Y[2 * r, j] * B[j]", True),
    ("Y[2 * r, j] = Y[2 * r + 1, j] * B[j] ; Y[2 * r + 1, j] -= Y[2 * r, j]", True),
)


@cache
def bound_rows() -> tuple[HostModule, list[Emitted]]:
    """The programs of all bodies, as one text."""
    texts = [SEVERAL.format(body).replace("kernel k", f"kernel k{n}") for n, (body, _) in enumerate(BOUND)]
    found = [Emitted(mapped(text)) for text in texts]
    return HostModule("\n".join(one.source for one in found)), found


@pytest.mark.gxx
@pytest.mark.parametrize(("body", "together"), BOUND)
def test_rows_of_which_an_iteration_binds_several_are_wide_where_their_order_is_kept(body: str, together: bool) -> None:
    module, found = bound_rows()
    emitted = found[[text for text, _ in BOUND].index(body)]
    program = emitted.program
    assert ("Y" in wide(program)) == together
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal(64).astype(np.float32) for name in "AB"} | {
        "Y": random.standard_normal((10, 64)).astype(np.float32)
    }
    expected = interpret(program.kernel, arrays).outputs["Y"]
    assert np.array_equal(simulate(program, arrays)["Y"], expected)
    assert emitted.run(module, arrays) is None
    assert np.array_equal(arrays["Y"], expected)


@pytest.mark.gxx
@pytest.mark.parametrize("place", ["2 - i", "i", "K[b, i]"])
def test_what_is_no_iteration_of_a_run_reads_nothing_of_an_array_in_registers(place: str) -> None:
    """Registers end, too: the run of 0 .. 3 has three iterations, and the fourth would read T[-1], or what K says."""
    text = f"""kernel k(X: i32[M, 3], K: i32[M, 4], Y: i32[M, 4]) {{ par M b {{
        new T: i32[3]; seq 3 k {{ T[k] = X[b, k] }}
        par 3 i {{ Y[b, i] = T[{place}] + 1 }}
    }} }}"""
    candidate = mapped(text, M=5).candidate
    assert isinstance(candidate, Candidate)
    ((name, choice),) = candidate.launches.items()
    assert isinstance(choice, Blocks) and choice.memory["T"] is Memory.REG
    found = mapped(text, choices=replace(candidate, launches={name: replace(choice, widths={"i": 4})}), M=5)
    random = np.random.default_rng(3)
    arrays = {"X": random.integers(0, 99, (5, 3)), "K": random.integers(0, 3, (5, 4)), "Y": np.zeros((5, 4))}
    arrays = {key: value.astype(np.int32) for key, value in arrays.items()}
    expected = interpret(proved(text, M=5).program.kernel, arrays).outputs["Y"]
    np.testing.assert_array_equal(simulate(found, arrays)["Y"], expected)
    source = Emitted(found)
    outputs = {key: value.copy() for key, value in arrays.items()}
    assert source.run(HostModule(source.source), outputs) is None
    np.testing.assert_array_equal(outputs["Y"], expected)
