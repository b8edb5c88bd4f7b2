"""Scans that blocks share: each tile has a block, which has what is before from those that began earlier."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, with_launch
from test_map_programs import arguments
from test_scanned import PROGRAMS, choice, narrowed, results, right_on_the_cpu, same, with_names

import texpr
from texpr.codegen.toolchain import compile_cubin
from texpr.grammar.ast import Always
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.expr import const
from texpr.polyhedral.mapped.between import Init
from texpr.polyhedral.mapped.candidate import Candidate, Scanned
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.program import HostLoop
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Guard, Loop
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate

CHAINED = [name for name in PROGRAMS if name not in ("two scans", "element", "elements", "compacted", "triangle")]


BY_BLOCKS = ("inclusive", "stream", "two folds", "previous of columns", "left", "batches")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CHAINED)
@pytest.mark.parametrize("n", [1001, 130, 1, 0])
def test_blocks_that_look_back_hand_on_what_the_loop_does(name: str, n: int) -> None:
    if "where" not in PROGRAMS[name] or n > 0:
        same(*results(narrowed(PROGRAMS[name], look_back=True), n))


@pytest.mark.parametrize("name", ["inclusive", "columns", "stream"])
def test_bits_do_not_depend_on_how_far_the_blocks_before_are(name: str) -> None:
    program = narrowed(PROGRAMS[name], look_back=True)
    sizes = {"M": 201, "N": 9} if name == "columns" else {"M": 3, "N": 901}
    known = {size.name: sizes[size.name] for size in program.kernel.sizes}
    random = np.random.default_rng(11)
    values = {n: random.normal(size=v.shape).astype(v.dtype) for n, v in arguments(program.kernel, known).items()}
    how = {"sizes": known, "addresses": dict.fromkeys(values, 16)}
    runs = [simulate(program, values, seed=seed, interleaved=seed > 0, **how) for seed in range(4)]
    for run in runs[1:]:
        same(run, runs[0])
    found = runs[0]["Y"].astype(np.float64)
    axis = 0 if name == "columns" else -1
    np.testing.assert_allclose(found, values["X"].astype(np.float64).cumsum(axis=axis), rtol=1e-5, atol=1e-5)


@pytest.mark.gxx
def test_the_text_is_right_on_the_cpu_in_any_order_of_blocks() -> None:
    programs = {name: narrowed(PROGRAMS[name], look_back=True) for name in BY_BLOCKS}
    programs["columns of 4"] = narrowed(PROGRAMS["columns"], {"N": 64}, widths={"j": 4}, look_back=True)
    programs["tall columns"] = narrowed(PROGRAMS["columns"], ahead=64, look_back=True)
    programs["rows from lines"] = narrowed(PROGRAMS["halves"], {"N": 701}, look_back=True)
    right_on_the_cpu(programs)


def test_the_text_of_columns_that_blocks_share_is_the_golden_one(golden: Any) -> None:
    golden("cuda/running_columns.cu", Emitted(mapped(PROGRAMS["columns"], M=32768, N=4096)).source)


@pytest.mark.nvcc
def test_blocks_that_look_back_compile_without_warnings() -> None:
    every = [mapped(PROGRAMS["columns"], M=32768, N=4096), mapped(PROGRAMS["stream"], N=1 << 27)]
    texts = [Emitted(with_names(program, f"look_back_{n}")).source for n, program in enumerate(every)]
    assert compile_cubin("\n".join(texts), "sm_90a", werror=True)


def test_a_block_that_looks_back_has_a_number_and_a_part_of_its_own() -> None:
    program = narrowed(PROGRAMS["columns"], look_back=True)
    check_orders(program)
    launch = only_launch(program)
    (look,) = (node for node in launch.body if isinstance(node, LookBack))
    inside = Guard(condition=Always(value=True), body=(look,))
    wrong = [
        replace(launch, turns=""),
        replace(launch, body=tuple(replace(n, at=()) if n is look else n for n in launch.body)),
        replace(launch, body=tuple(replace(n, part=look.at[0]) if n is look else n for n in launch.body)),
        replace(launch, body=(*launch.body, look)),
        replace(launch, body=tuple(inside if n is look else n for n in launch.body)),
    ]
    for one in wrong:
        with pytest.raises(InternalError, match="does not have each part of a place in a block of its own"):
            check_orders(with_launch(program, one))
    for init in (Init.NONE, Init.ZERO_ONCE):
        with pytest.raises(InternalError, match="nobody makes"):
            check_orders(replace(program, words=tuple(replace(w, init=init) for w in program.words)))


IN_A_LOOP = """kernel k(X: i32[T, N], Y: i32[T, N], W: i32[N]) where N >= 1 {
    par N a { W[a] = 1 }
    seq T t {
        new s: i32; s = 0; seq N j { s += X[t, j] + W[j]; Y[t, j] = s }
        par N b { W[b] = Y[t, N - 1 - b] }
    }
}"""


def test_a_call_clears_flags_once_so_blocks_share_no_scan_in_a_loop_of_launches() -> None:
    program = mapped(IN_A_LOOP, N=1 << 20)
    assert isinstance(program.candidate, Candidate)
    found = program.candidate.launches["k_1"]
    assert isinstance(found, Scanned) and not found.look_back
    launches = {**program.candidate.launches, "k_1": replace(found, look_back=True)}
    with pytest.raises(TExprError, match="in a loop of launches, blocks do not share a scan"):
        mapped(IN_A_LOOP, choices=replace(program.candidate, launches=launches), N=1 << 20)


def test_clusters_of_blocks_that_look_back_are_whole() -> None:
    text = PROGRAMS["stream"].replace(") {", ") #cluster_shape(2) {", 1)
    assert only_launch(mapped(text, N=1 << 20)).cluster == (2, 1, 1)
    with pytest.raises(TExprError, match="share a reduction or a scan are counted, and are no whole clusters"):
        mapped(text)


def test_flags_that_an_earlier_launch_set_are_found() -> None:
    program = narrowed(PROGRAMS["columns"], look_back=True)
    launch = only_launch(program)
    twice = replace(program, host=(HostLoop(index="t", extent=const(2), body=(launch,)),))
    with pytest.raises(InternalError, match="nobody makes"):
        check_orders(twice)
    with pytest.raises(TExprError, match="is published a second time"):
        results(twice, 30)


def test_what_stands_beside_a_scan_keeps_its_blocks_together() -> None:
    text = """kernel k(X: f32[N], Y: f32[N], Z: f32[1]) where N >= 1 {
        new s: f32; s = 0.0
        seq N j { s += X[j]; Y[j] = s }
        Z[0] = Y[N - 1]
    }"""
    found = choice(mapped(text, N=1 << 20))
    assert isinstance(found, Scanned) and not found.look_back
    same(*results(mapped(text), 301))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("two scans", {}, "`look_back`: blocks of a warp or more share one scan"),
    ("inclusive", {"threads": 16}, "`look_back`: blocks of a warp or more share one scan"),
    ("triangle", {}, "`look_back`: the extent of j depends on an index of the band"),
    ("elements", {}, "`look_back`: a block would write S that another one reads"),
]


@pytest.mark.parametrize(("name", "change", "why"), REFUSED)
def test_blocks_that_cannot_share_a_scan_are_refused(name: str, change: dict[str, Any], why: str) -> None:
    with pytest.raises(TExprError, match=why) as refused:
        narrowed(PROGRAMS[name], look_back=True, **change)
    assert [d.code for d in refused.value.diagnostics] == ["E0401"]


RUNNING = """kernel k(X: {t}[{m}, {n}], Y: {t}[{m}, {n}]) {{ par {n} j {{
    new total: f32; total = 0.0
    seq {m} i {{ total += f32(X[i, j]); Y[i, j] = {t}(total) }}
}} }}"""


def running(dtype: str, rows: int, columns: int) -> tuple[str, Candidate]:
    """Running sums of so many columns that begin anywhere, and how the compiler maps many of them."""
    candidate = mapped(RUNNING.format(t=dtype, m=32749, n=4093)).candidate
    assert isinstance(candidate, Candidate)
    return RUNNING.format(t=dtype, m=rows, n=columns), candidate


@pytest.mark.gxx
@pytest.mark.parametrize(
    ("name", "columns", "ahead", "blocks", "tolerance"),
    [("bf16", 301, 32, 17 * 2, 2**-8), ("f32", 61, 16, 33, 2**-22)],  # two strips; more parts than a warp asks for
)
def test_long_sums_are_told_in_half_the_bytes_and_behind_a_barrier(
    name: str, columns: int, ahead: int, blocks: int, tolerance: float
) -> None:
    text, candidate = running(name, 4100, columns)
    ((launch, found),) = candidate.launches.items()
    assert isinstance(found, Scanned)
    longer = replace(candidate, launches={launch: replace(found, ahead=ahead)})
    dtype = ml_dtypes.bfloat16 if name == "bf16" else np.float32
    compiled = texpr.parse(text).only.compile("cuda-host:sm_90a", mapping=longer)
    source = compiled.source
    assert f"grid ({blocks}, 1, 1)" in source
    assert "256, true, true, tx::f32>(" in source
    told, *others = [at for at, line in enumerate(source.splitlines()) if "tx::tell_folded(" in line]
    assert not others and "tx::sync_block(5);" in source.splitlines()[told - 1]
    x = np.random.default_rng(7).standard_normal((4100, columns)).astype(dtype)
    y = np.full_like(x, np.nan)
    compiled(X=x, Y=y)
    expected = x.astype(np.float64).cumsum(axis=0)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=tolerance, atol=1e-4)


def test_what_no_barrier_follows_is_told_at_once() -> None:
    text, candidate = running("bf16", 4300, 301)
    program = mapped(text, choices=candidate)
    launch = only_launch(program)
    look = next(n for n, node in enumerate(launch.body) if isinstance(node, LookBack))
    behind = tuple(node for node in launch.body[look:] if not isinstance(node, Barrier))
    source = Emitted(with_launch(program, replace(launch, body=(*launch.body[:look], *behind)))).source
    assert "tell_folded" not in source and "256, true, false, tx::f32>(" in source


def test_it_is_told_once_whatever_barriers_stand_inside_of_what_follows() -> None:
    text, candidate = running("bf16", 4300, 301)
    program = mapped(text, choices=candidate)
    launch = only_launch(program)
    look = next(n for n, node in enumerate(launch.body) if isinstance(node, LookBack))
    barrier = next(node for node in launch.body[look:] if isinstance(node, Barrier))
    loop = Loop(index="again", extent=const(3), body=(barrier,))
    body = (*launch.body[: look + 1], loop, *launch.body[look + 1 :])
    lines = Emitted(with_launch(program, replace(launch, body=body))).source.splitlines()
    (told,) = [line for line in lines if "tell_folded" in line]
    assert told.startswith("  tx::")  # not in the loop


TWO = """kernel k(X: {t}[{m}, {n}], Y: {t}[{m}, {n}], Z: {t}[{m}, {n}]) {{ par {n} j {{
    new total: f32; total = 0.0; new square: f32; square = 0.0
    seq {m} i {{
        total += f32(X[i, j]); square += f32(X[i, j]) * f32(X[i, j])
        Y[i, j] = {t}(total); Z[i, j] = {t}(square)
    }}
}} }}"""


@pytest.mark.gxx
@pytest.mark.parametrize(
    ("threads", "ahead", "columns", "blocks"),
    [(128, 32, 131, 33 * 2), (256, 16, 35, 33)],  # more parts than a warp asks for at once: of two strips, of one
)
def test_two_running_sums_are_told_behind_one_barrier(threads: int, ahead: int, columns: int, blocks: int) -> None:
    candidate = mapped(TWO.format(t="f32", m=32749, n=4093)).candidate
    assert isinstance(candidate, Candidate)
    ((name, found),) = candidate.launches.items()
    assert isinstance(found, Scanned)
    forced = replace(found, threads=threads, deal=(("j", 32),), widths={"j": 4}, ahead=ahead, strip=120, look_back=True)
    how = replace(candidate, launches={name: forced})
    compiled = texpr.parse(TWO.format(t="f32", m=4100, n=columns)).only.compile("cuda-host:sm_90a", mapping=how)
    assert f"grid ({blocks}, 1, 1)" in compiled.source
    calls = [line for line in compiled.source.splitlines() if "tx::look_back<" in line]
    assert len(calls) == 2 == compiled.source.count("tx::tell_folded(") and all("true, tx::f32>" in c for c in calls)
    x = np.random.default_rng(5).standard_normal((4100, columns)).astype(np.float32)
    y, z = np.full_like(x, np.nan), np.full_like(x, np.nan)
    compiled(X=x, Y=y, Z=z)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(y, wide.cumsum(axis=0), rtol=2**-22, atol=1e-4)
    np.testing.assert_allclose(z, (wide * wide).cumsum(axis=0), rtol=2**-21)


@pytest.mark.nvcc
def test_folds_in_half_the_bytes_compile_without_warnings() -> None:
    text, candidate = running("bf16", 4300, 301)
    source = Emitted(with_names(mapped(text, choices=candidate), "running")).source
    assert compile_cubin(source, "sm_90a", werror=True)
