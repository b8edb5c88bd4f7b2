"""Reductions that threads and blocks share out: which launches have them, and what the last block makes of them."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import barriers, mapped, only_launch, proved, with_launch, without_barrier
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.ast import IndexConst
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.chains import sums
from texpr.polyhedral.map.space import candidates
from texpr.polyhedral.map.stage import problem_of
from texpr.polyhedral.mapped.candidate import Candidate, Choice, Parted
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.tree import Guard, Last
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

SIZES = {"M": 3, "N": 301, "K": 77}
DOT = "kernel k(X: f32[N], Y: f32[N], S: f32[1]) { S[0] = sum N i { X[i] * Y[i] } }"
COLUMNS = "kernel k(A: f32[N, K], C: f32[K]) { par K j { C[j] = sum N i { A[i, j] } } }"
PROGRAMS = {
    "dot": DOT,
    "added": "kernel k(X: f32[N], inout S: f32[1]) { seq N i { S[0] += X[i] } }",
    "apart": "kernel k(X: f32[N], Y: f32[N + 1], S: f32[1]) { S[0] = sum N i { X[i] * Y[i + 1] } }",
    "mean": "kernel k(X: f16[N], S: f32[1]) where N >= 1 { S[0] = sum N i { f32(X[i]) } / f32(N) }",
    "nested": "kernel k(A: bf16[M, N], S: f32[1]) { S[0] = sum M i, N j { f32(A[i, j]) } }",
    "greatest": "kernel k(X: f32[N], S: f32[1]) where N >= 1 { S[0] = maximum N i { X[i] } }",
    "least": "kernel k(X: i32[N], S: i32[1]) where N >= 1 { S[0] = minimum N i { X[i] } }",
    "product": "kernel k(X: i32[N], S: i32[1]) { S[0] = prod N i { 2 * X[i] + 1 } }",
    "wrapping": "kernel k(X: i64[N], S: i64[1]) { S[0] = sum N i { X[i] * 4611686018427387904 } }",
    "doubles": "kernel k(X: f64[N], S: f64[1]) { S[0] = sum N i { X[i] } }",
    "bytes": "kernel k(X: i8[N], S: i32[1]) { S[0] = sum N i { i32(X[i]) } }",
    "chosen": "kernel k(X: f32[N], inout S: f32[1]) { seq N i { if X[i] > 0.0 { S[0] += X[i] } } }",
    "together": """kernel k(X: f32[N], inout S: f32[1], inout T: f32[1]) where N >= 1 {
        seq N i { let x = X[i] * X[i]; S[0] += x; T[0] max= x }
    }""",
    "two": """kernel k(X: f32[M, N], S: f32[M], T: f32[M]) where N >= 1 {
        par M i { S[i] = sum N k { X[i, k] }; T[i] = maximum N k { X[i, k] } }
    }""",
    "rows": "kernel k(A: f32[M, N], x: f32[N], y: f32[M]) { par M i { y[i] = sum N k { A[i, k] * x[k] } } }",
    "scaled": """kernel k(A: f32[M, N], x: f32[M], y: f32[M]) {
        par M i { new f: f32; f = 2.0 * x[i]; new s: f32; s = 0.0; seq N k { s += A[i, k] * f }; y[i] = s - f }
    }""",
    "columns": COLUMNS,
    "band": "kernel k(X: f32[N], inout S: f32[1]) { par N i { S[0] += X[i] } }",
    "band of columns": "kernel k(A: f32[N, K], inout S: f32[K]) { par N i, K j { S[j] += A[i, j] } }",
    "band of two": """kernel k(A: f32[K, N], inout S: f32[1], inout T: i32[1]) {
        par K j, N i { S[0] += A[j, i]; T[0] max= i32(A[j, i]) }
    }""",
    "wide columns": COLUMNS.replace("{ par", "where K % 4 == 0 { par").replace("f32[N, K]", "f32[N, K] #align(16)"),
    "picked": """kernel k(X: f32[N], inout V: f32[1], inout I: i64[1]) {
        seq N i { if X[i] >= V[0] { V[0] = X[i]; I[0] = i } }
    }""",
    "picked columns": """kernel k(A: f32[N, K], I: i64[K], V: f32[K]) where K % 4 == 0 {
        par K j { V[j] = 1.0; I[j] = -1; seq N i { if V[j] > A[i, j] { I[j] = i; V[j] = A[i, j] } } }
    }""",
    "two elements": "kernel k(X: f32[N], inout S: f32[2]) { seq N i { S[0] += X[i]; S[1] += 2.0 * X[i] } }",
    "ragged columns": """kernel k(A: bf16[N, 77], w: bf16[N], C: f32[77]) {
        par 77 j { C[j] = sum N i { f32(A[i, j]) * f32(w[i]) } }
    }""",
    "shifted columns": "kernel k(A: f32[N, K + 3], C: f32[K]) { par K j { C[j] = maximum N i { A[i, j + 2] } } }",
    "triangle": """kernel k(A: f32[M, N], inout C: f32[M]) where N >= M + 96 {
        par M j { seq j + 97 i { C[j] += A[j, i] } }
    }""",
}


def choice(found: MappedProgram) -> Choice:
    assert isinstance(found.candidate, Candidate)
    (only,) = found.candidate.launches.values()
    return only


@cache
def narrowed(text: str, **changes: Any) -> MappedProgram:
    """The program with few threads and blocks, so that small sizes have several of them."""
    bound = {"M": SIZES["M"]} if "par M" in text else {}
    found = mapped(text, **bound)
    candidate, first = found.candidate, choice(found)
    assert isinstance(candidate, Candidate) and isinstance(first, Parted)
    deal = tuple((index, min(n, 16)) for index, n in first.deal)
    small = replace(first, threads=64, deal=deal, blocks=dict.fromkeys(first.blocks, 3), ahead=2, resident=0)
    (name,) = candidate.launches
    return mapped(text, choices=replace(candidate, launches={name: replace(small, **changes)}), **bound)


def results(program: MappedProgram, seed: int, **how: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the program computes on small whole numbers, and what the interpreter says."""
    values = arguments(program.kernel, how.get("sizes", SIZES))
    known = {size.name: how.get("sizes", SIZES)[size.name] for size in program.kernel.sizes}
    expected = interpret(program.kernel, values, sizes=known).outputs
    return simulate(program, values, seed=seed, **{**how, "sizes": known}), expected


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [301, 384, 100, 0])
def test_parts_of_a_reduction_make_the_whole(name: str, n: int) -> None:
    if n == 0 and "where N" in PROGRAMS[name]:
        return
    program = narrowed(PROGRAMS[name])
    sizes = {**SIZES, "N": n, "K": 76 if "% 4" in PROGRAMS[name] else 77}
    got, expected = results(program, seed=n, sizes=sizes)
    for array, found in expected.items():
        np.testing.assert_array_equal(got[array], found, err_msg=array)


@pytest.mark.parametrize("name", ["dot", "wide columns", "two", "together", "picked columns"])
def test_any_order_of_blocks_and_warps_is_right(name: str) -> None:
    sizes = {**SIZES, "K": 76}
    for seed in (0, 1):
        got, expected = results(narrowed(PROGRAMS[name]), seed, interleaved=True, sizes=sizes)
        for array, found in expected.items():
            np.testing.assert_array_equal(got[array], found, err_msg=array)


@pytest.mark.parametrize("name", ["dot", "columns", "rows"])
def test_bits_do_not_depend_on_which_block_is_last(name: str) -> None:
    program = narrowed(PROGRAMS[name])
    values = arguments(program.kernel, SIZES)
    random = np.random.default_rng(5)
    values = {n: random.normal(size=v.shape).astype(v.dtype) for n, v in values.items()}
    known = {size.name: SIZES[size.name] for size in program.kernel.sizes}
    runs = [simulate(program, values, seed=seed, sizes=known) for seed in range(4)]
    for run in runs[1:]:
        for array, found in runs[0].items():
            np.testing.assert_array_equal(run[array], found)


@pytest.mark.gxx
def test_the_text_is_right_on_the_cpu_in_every_order() -> None:
    programs = {name: narrowed(PROGRAMS[name]) for name in PROGRAMS}
    renamed = {
        name: Emitted(with_launch_name(program, f"parted_{number}_0"))
        for number, (name, program) in enumerate(programs.items())
    }
    module = HostModule("\n".join(e.source for e in renamed.values()), werror=True)
    for name, emitted in renamed.items():
        sizes = {**SIZES, "K": 76 if "% 4" in PROGRAMS[name] else 77}
        values = arguments(programs[name].kernel, sizes)
        known = {size.name: sizes[size.name] for size in programs[name].kernel.sizes}
        expected = interpret(programs[name].kernel, values, sizes=known).outputs
        for seed in (0, 7):
            arrays = {n: np.array(v) for n, v in values.items()}
            assert emitted.run(module, arrays, seed) is None
            for array, found in expected.items():
                np.testing.assert_array_equal(arrays[array], found, err_msg=f"{name} {array}")


def with_launch_name(program: MappedProgram, name: str) -> MappedProgram:
    (launch,) = program.host
    assert isinstance(launch, Launch)
    return replace(program, host=(replace(launch, name=name),))


def test_a_sum_of_any_length_is_shared_by_as_many_blocks_as_a_gpu_runs() -> None:
    found = mapped(DOT, N=1 << 27)
    assert choice(found) == Parted(
        threads=512, grid=(), shared_out=("i",), blocks={"i": 528}, ahead=2, resident=4, widths={"i": 4}
    )
    assert sums(found, {})["S"].chain < 4096
    assert sums(mapped(DOT), {"N": 1 << 40})["S"].chain <= 2 * 4096 + 64
    assert choice(mapped(DOT, N=32)) != choice(mapped(DOT, N=64))


def test_few_rows_share_the_blocks_of_a_gpu_and_many_have_one_each() -> None:
    few, many = (choice(mapped(PROGRAMS["rows"], M=m, N=1 << 20)) for m in (8, 4096))
    assert isinstance(few, Parted) and (few.blocks, few.patch) == ({"k": 264}, {"i": 4})
    assert not isinstance(many, Parted) or not many.blocks


def test_columns_have_lanes_along_memory_and_blocks_along_the_sum() -> None:
    found = choice(mapped(COLUMNS, N=65536, K=2048))
    band = COLUMNS.replace("C: f32", "inout C: f32").replace(
        "C[j] = sum N i { A[i, j] }", "par N i { C[j] += A[i, j] }"
    )
    assert choice(mapped(band, N=65536, K=2048)) == found
    assert isinstance(found, Parted)
    assert (found.deal, found.widths, found.blocks, found.ahead) == ((("j", 32),), {"j": 4}, {"i": 33}, 8)


def test_blocks_are_small_where_all_of_them_are_there_at_once_then() -> None:
    threads = {k: getattr(choice(mapped(COLUMNS, N=257, K=k)), "threads", 0) for k in (65536, 100004, 200004, 1 << 22)}
    assert threads == {65536: 256, 100004: 128, 200004: 64, 1 << 22: 256}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_neighbours_share_takes_no_second_chunk_of_registers(dtype: str) -> None:
    arrays = f"A: {dtype}[M, N], B: {dtype}[M, N + 1], X: {dtype}[M], Y: f32[N]"
    text = f"kernel k({arrays}) {{ par N j {{ Y[j] = sum M i {{ X[i] * A[i, j] * B[i, j + 1] }} }} }}"
    assert getattr(choice(mapped(text, M=32749, N=4093)), "resident", 0) == 4


VARIANCE = """kernel k(X: f32[N], S: f32[1]) where N >= 1 {
    new m: f32
    m = sum N i { X[i] } / f32(N)
    S[0] = sum N i { (X[i] - m) * (X[i] - m) } / f32(N)
}"""
CHOSEN = "kernel k(X: f32[N], S: f32[1]) { if N > 5 { S[0] = sum N i { X[i] } } else { S[0] = 3.0 } }"
ASKED = "kernel k(X: f32[3, N], G: f32[1], S: f32[3]) { if G[0] > 5.0 { par 3 i { S[i] = sum N k { X[i, k] } } } }"


def parted(program: MappedProgram) -> list[Parted]:
    assert isinstance(program.candidate, Candidate)
    return [one for one in program.candidate.launches.values() if isinstance(one, Parted)]


@pytest.mark.parametrize(("text", "shared"), [(VARIANCE, [{"i": 528}, {"i_1": 528}]), (CHOSEN, [{"i": 528}])])
def test_sums_that_wait_for_sums_and_conditions_of_the_host_have_launches_of_their_own(
    text: str, shared: list[dict[str, int]]
) -> None:
    program = mapped(text)
    assert [one.blocks for one in parted(program)] == shared
    for n in (5000, 3):
        got, expected = results(program, 0, sizes={"N": n})
        np.testing.assert_allclose(got["S"], expected["S"], rtol=1e-6)


def test_blocks_are_not_counted_under_a_condition_on_data() -> None:
    text = ASKED.replace("S: f32[3])", "inout S: f32[3])")
    program = mapped(text)
    (only,) = parted(program)
    assert not only.blocks
    got, expected = results(program, 0, sizes={"N": 500})
    np.testing.assert_array_equal(got["S"], expected["S"])
    candidate = program.candidate
    assert isinstance(candidate, Candidate)
    wrong = {n: replace(c, blocks={"k": 2}) if c == only else c for n, c in candidate.launches.items()}
    with pytest.raises(TExprError, match="under a condition on data blocks do not share a reduction"):
        mapped(text, choices=replace(candidate, launches=wrong))


@pytest.mark.parametrize(
    "text",
    [
        "kernel k(X: f32[N], inout S: f32[1]) { seq N i #ordered { S[0] += X[i] } }",
        "kernel k(X: f32[N], inout S: f32[1]) { seq N i { S[0] += X[i] * S[0] } }",
        "kernel k(X: f32[N], inout S: f32[N]) { seq N i { S[i / 2] += X[i] } }",
        "kernel k(X: f32[N], inout S: f32[N], inout T: f32[1]) { seq N i { S[i] = X[i]; T[0] += S[i] } }",
        "kernel k(A: f32[M, N], B: f32[N, K], C: f32[M, K]) { par M i, K j { C[i, j] = sum N k { A[i, k] * B[k, j] }}}",
    ],
)
def test_what_is_no_reduction_or_reads_all_its_elements_again_is_not_shared_so(text: str) -> None:
    candidate = mapped(text).candidate
    assert isinstance(candidate, Candidate)
    assert not any(isinstance(one, Parted) for one in candidate.launches.values())


def test_a_counter_that_waits_for_too_many_or_too_few_blocks_is_refused() -> None:
    program = narrowed(PROGRAMS["columns"])
    check_orders(program)
    launch = only_launch(program)
    changes: list[dict[str, Any]] = [{"n": IndexConst(value=2)}, {"at": ()}]
    for change in changes:
        body = tuple(replace(node, **change) if isinstance(node, Last) else node for node in launch.body)
        wrong = replace(launch, body=body)
        with pytest.raises(InternalError, match="is not what so many blocks come to as it waits for"):
            check_orders(with_launch(program, wrong))


def test_results_that_are_put_after_the_count_are_missed() -> None:
    program = narrowed(DOT)
    launch = only_launch(program)
    body = list(launch.body)
    put = next(n for n, node in enumerate(body) if isinstance(node, Guard) and "blocks" in str(node))
    body.append(body.pop(put))
    wrong = with_launch(program, replace(launch, body=tuple(body)))
    with pytest.raises(InternalError, match="no barrier orders S1_block before S1_parts on S_blocks"):
        check_orders(wrong)
    with pytest.raises(TExprError, match="S_blocks"):
        results(wrong, 0)


def test_every_barrier_of_a_shared_reduction_is_needed() -> None:
    program = narrowed(PROGRAMS["columns"])
    launch = only_launch(program)
    assert len(barriers(launch)) == 1
    wrong = with_launch(program, without_barrier(launch, 0))
    with pytest.raises(InternalError, match="no barrier orders"):
        check_orders(wrong)
    with pytest.raises(TExprError, match="no barrier orders"):
        results(wrong, 0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shared_out": ("k",)}, "are no reductions that blocks can share"),
        ({"blocks": {"j": 2}}, "`blocks` has j, not one index of each reduction"),
        ({"deal": (("i", 32),)}, "`deal` deals threads to i"),
        ({"deal": (("j", 3),)}, "pieces that do not number 512"),
        ({"ahead": 3}, "`ahead` is a power of two"),
        ({"ahead": 1 << 20}, "`ahead` is a power of two up to 8"),
        ({"resident": 9}, "more threads than a multiprocessor runs"),
        ({"widths": {"i": 4}}, "no access is wide"),
    ],
)
def test_candidates_that_do_not_fit_are_refused(change: dict[str, Any], why: str) -> None:
    text = COLUMNS.replace("{ par", "where K % 4 == 0 { par")
    candidate = mapped(text).candidate
    assert isinstance(candidate, Candidate)
    ((name, first),) = candidate.launches.items()
    assert isinstance(first, Parted)
    wrong = replace(candidate, launches={name: replace(first, **change)})
    with pytest.raises(TExprError, match=why):
        mapped(text, choices=wrong)


@pytest.mark.parametrize("name", ["dot", "wide columns", "two"])
def test_every_neighbour_of_the_first_choice_is_right(name: str) -> None:
    sizes = {**SIZES, "K": 76}
    text, bound = PROGRAMS[name], {"M": 3} if "par M" in PROGRAMS[name] else {}
    first = mapped(text, **bound)
    every = candidates(problem_of(proved(text, **bound), first))
    tried = [c for c in every if all(isinstance(one, Parted) for one in c.launches.values())]
    assert len(tried) > 10
    for candidate in tried:
        got, expected = results(mapped(text, choices=candidate, **bound), 0, sizes=sizes)
        for array, found in expected.items():
            np.testing.assert_array_equal(got[array], found, err_msg=str(candidate))
