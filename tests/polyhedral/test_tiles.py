"""Bands in tiles: which bands run so, what is staged for them, and that they compute what the program says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, proved, with_launch, without_barriers
from test_map_programs import arguments

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.layout.banks import bank_use
from texpr.polyhedral.map.cost import cost
from texpr.polyhedral.map.stage import map_program, problem_of
from texpr.polyhedral.map.tiles import load_units, run_units, staged, tile_lanes, tile_layout
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Candidate, Tiled
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target

SM90 = parse_target("cuda:sm_90a")
ROWS = "kernel k(A: {t}[M, N], B: {t}[N, M]) {{ par M i, N j {{ B[j, i] = A[i, j] }} }}"
FUSED = """kernel k(A: bf16[M, N], C: f32[N, M], B: f32[N, M]) {
    par M i, N j {
        let x = f32(A[i, j])
        B[j, i] += select(C[j, i] > 0.0, x, 2.0 * x)
    }
}"""
TWO = """kernel k(A: f32[M, N], C: f32[M, N], B: f32[N, M]) {
    par M i, N j {
        B[j, i] = A[i, j] - C[i, j]
    }
}"""
BOXES = "kernel k(A: {t}[P, M, N], B: {t}[N, M, P]) {{ par P p, M i, N j {{ B[j, i, p] = A[p, i, j] }} }}"
STRIDED = "kernel k(A: f32[M, 2 * N], B: f32[N, M]) { par M i, N j { B[j, i] = A[i, 2 * j] + A[i, 2 * j + 1] } }"
SHEARED = "kernel k(A: f32[M, M + N], B: f32[N, M]) { par M i, N j { B[j, i] = A[M - 1 - i, i + j] } }"
COUNTS = "kernel k(A: u8[M, N], B: i64[N, M]) { par M i, N j { B[j, i] = i64(A[i, j]) + 1 } }"
LOOK_UP = """kernel k(A: f32[M, N], w: i32[N], T: f32[64], B: f32[N, M]) {
    par M i, N j { B[j, i] = A[i, j] * T[w[j]] }
}"""


def choice(found: MappedProgram) -> Tiled | None:
    assert isinstance(found.candidate, Candidate)
    (only,) = found.candidate.launches.values()
    return only if isinstance(only, Tiled) else None


@pytest.mark.parametrize(
    ("text", "along", "reads"),
    [
        (ROWS.format(t="f32"), "i", ["A[i, j]"]),
        (ROWS.format(t="u8"), "i", ["A[i, j]"]),
        (FUSED, "i", ["A[i, j]"]),
        (TWO, "i", ["A[i, j]", "C[i, j]"]),
        (BOXES.format(t="bf16"), "p", ["A[p, i, j]"]),
        (STRIDED, "i", ["A[i, 2 * j]", "A[i, 2 * j + 1]"]),
        (LOOK_UP, "i", ["A[i, j]"]),
        ("kernel k(A: f32[M, N], B: f32[M, N]) { par M i, N j { B[i, j] = A[i, j] } }", "", []),
        (
            "kernel k(A: f32[M, N], B: f32[N, M]) { par M i, N j { if A[i, j] > 0.0 { B[j, i] = 1.0 } } }",
            "i",
            ["A[i, j]"],
        ),
        ("kernel k(A: f32[M, N], B: f32[N, M]) { par M i, N j { if i > j { B[j, i] = A[i, j] } } }", "", []),
        ("kernel k(A: f32[N, N]) { par N i { par i j { A[j, i] = A[i, j] } } }", "", []),
        (
            ROWS.format(t="f32").replace("{ par", "where N % 2 == 0 { par", 1).replace("N j", "N j #vector(2)"),
            "",
            [],
        ),
        ("kernel k(A: f32[M, 4], B: f32[4, M]) { par M i, 4 j { B[j, i] = A[i, j] } }", "", []),
    ],
)
def test_reads_are_staged_where_no_lanes_serve_all_accesses(text: str, along: str, reads: list[str]) -> None:
    found = choice(mapped(text))
    assert (found.along if found else "", list(found.staged) if found else []) == (along, reads)


def test_what_one_index_alone_tells_is_not_staged() -> None:
    arrays, value = "X: f32[M, N], G: f32[N], B: f32[N], Y: f32[M, N]", "X[i, j] * G[j] + B[j]"
    assert choice(mapped(f"kernel k({arrays}) {{ par M i, N j {{ Y[i, j] = {value} }} }}")) is None


def test_tiles_touch_far_fewer_sectors_than_the_flat_band() -> None:
    text = ROWS.format(t="f32")
    tiled = mapped(text, M=4096, N=4096)
    problem = problem_of(proved(text, M=4096, N=4096), tiled)
    assert isinstance(tiled.candidate, Candidate)
    paid = cost(problem, tiled.candidate)
    assert paid.sectors == 2 * 4096 * 4096 * 4 // 32
    assert {a.buffer: a.width for a in tiled.report.accesses} == {"A": 4, "B": 4}


@pytest.mark.parametrize(
    ("text", "sizes", "grid"),
    [
        (BOXES, {"P": 64, "M": 4, "N": 64}, ("p", "i", "j")),  # what is written lies so
        (ROWS, {"M": 1025, "N": 65}, ("i", "j")),
        (ROWS, {"M": (1 << 20) + 1, "N": 65}, ("j", "i")),  # neighbours along j share sectors of A
    ],
)
def test_blocks_follow_what_is_written_or_share_sectors_soon(
    text: str, sizes: dict[str, int], grid: tuple[str, ...]
) -> None:
    found = choice(mapped(text.format(t="f32"), **sizes))
    assert found is not None
    assert found.grid == grid


RAGGED = ((64, 64), (70, 90), (33, 129), (300, 18), (72, 40))
SAME = [
    *((ROWS.format(t=t), {"M": m, "N": n}) for t in ("f32", "bf16", "u8", "f64") for m, n in RAGGED),
    *((text, {"M": 40, "N": 72}) for text in (FUSED, TWO, STRIDED, SHEARED, COUNTS, LOOK_UP)),
    (BOXES.format(t="bf16"), {"P": 24, "M": 3, "N": 40}),
    (BOXES.format(t="f32"), {"P": 64, "M": 2, "N": 64}),
]


def given(program: MappedProgram, sizes: dict[str, int]) -> dict[str, Any]:
    values = arguments(program.kernel, sizes)
    return {name: abs(value) if name == "w" else value for name, value in values.items()}


@pytest.mark.parametrize(("text", "sizes"), SAME)
def test_tiles_compute_what_the_interpreter_computes(text: str, sizes: dict[str, int]) -> None:
    program = mapped(text, **sizes)
    assert choice(program) is not None
    arrays = given(program, sizes)
    expected = interpret(program.kernel, arrays).outputs["B"]
    np.testing.assert_array_equal(simulate(program, arrays)["B"], expected)


def test_tiles_of_bound_and_free_sizes_run_on_the_cpu_as_emitted() -> None:
    kept: list[tuple[Emitted, MappedProgram, dict[str, int]]] = []
    for number, (text, sizes) in enumerate(SAME[::3]):
        for bound in (sizes, {}) if number % 2 else (sizes,):
            named = text.replace("kernel k", f"kernel k{len(kept)}", 1)
            program = mapped(named, **bound)
            assert choice(program) is not None
            kept.append((Emitted(program), program, sizes))
    module = HostModule("\n".join(emitted.source for emitted, *_ in kept), werror=True)
    for emitted, program, sizes in kept:
        arrays = given(program, sizes)
        expected = interpret(program.kernel, arrays).outputs["B"]
        assert emitted.run(module, arrays) is None
        np.testing.assert_array_equal(arrays["B"], expected)


@pytest.mark.parametrize("dtype", ["u8", "bf16", "f32", "f64"])
@pytest.mark.parametrize("sizes", [{"M": 1024, "N": 1024}, {"M": 1022, "N": 1023}])
def test_a_warp_meets_in_no_bank_of_a_tile(dtype: str, sizes: dict[str, int]) -> None:
    text = ROWS.format(t=dtype)
    program = mapped(text, **sizes)
    problem, found = problem_of(proved(text, **sizes), program), choice(program)
    assert found is not None
    (region,) = problem.regions()
    nest, _ = region.nest
    (one,) = staged(problem, nest, found)
    layout, size = tile_layout(problem, nest, found, one), one.wide.dtype.size_bytes

    def degree(units: Any, each: dict[str, int], width: int) -> float:
        at = tile_lanes(problem, nest, units, found.threads, each)
        return bank_use(layout, size, [at["j"], at["i"]], SM90, width=width).degree

    put = degree(load_units(found, one), {"i": one.along, "j": one.across}, one.along)
    run = found.widths.get("i", 1)
    assert (put, degree(run_units(found), {"i": run}, min(run, one.along))) == (1, 1)


def test_without_its_barrier_a_tile_is_read_before_it_is_written() -> None:
    program = mapped(ROWS.format(t="f32"), M=64, N=64)
    wrong = with_launch(program, without_barriers(only_launch(program)))
    with pytest.raises(TExprError, match="A_tile"):
        simulate(wrong, given(program, {"M": 64, "N": 64}))
    with pytest.raises(InternalError, match="no barrier orders S0_stage before S0_load_1 on A_tile"):
        check_orders(wrong)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"along": "j"}, "`along` and `across` are two of i, j"),
        ({"tile": {"i": 64}}, "`tile` gives i and j powers of two up to 256"),
        ({"tile": {"i": 48, "j": 64}}, "`tile` gives i and j powers of two up to 256"),
        ({"staged": ("B[j, i]",)}, r"`staged` has B\[j, i\]; what can be staged is A\[i, j\]"),
        ({"staged": ()}, "`staged` has nothing"),
        ({"band": 0}, "`band`: 1 to 64 tiles"),
        ({"band": 65}, "`band`: 1 to 64 tiles"),
        ({"resident": 9}, "`resident`: a multiprocessor has no room for 9 blocks"),
        ({"widths": {"i": 3}}, "`widths` gives i or j 2, 4, 8 or 16"),
        ({"widths": {"i": 4, "j": 8}}, "nothing that is staged is read 8 elements of j at a time"),
        ({"tile": {"i": 16, "j": 16}}, "a tile has no equal shares for 256 threads"),
        ({"tile": {"i": 256, "j": 256}}, "its tiles need 262144 bytes of shared memory"),
        ({"threads": 48}, "a block cannot have 48 threads"),
        ({"grid": ("i",)}, "`grid` orders i; the band has i, j"),
    ],
)
def test_tiles_that_do_not_fit_are_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    text = ROWS.format(t="f32")
    found = choice(mapped(text, M=128, N=128))
    assert found is not None
    wrong = Candidate(launches={"k_0": replace(found, **changes)})
    with pytest.raises(TExprError, match=said) as refused:
        map_program(proved(text, M=128, N=128), SM90, choices=wrong)
    assert [d.code for d in refused.value.diagnostics] == ["E0401"]


def test_runs_of_tiles_have_a_wide_access() -> None:
    text = ROWS.format(t="f32")
    found = choice(mapped(text, M=1021, N=128))
    assert found is not None and found.widths == {"i": 4, "j": 4} and found.lines == {"i": "B[j, i]"}
    for changes, said in (
        ({"lines": {}}, "no access is wide where a thread takes 4 iterations of i"),
        ({"lines": {"i": "A[i, j]"}}, r"`lines`: runs of i are counted from B\[j, i\]"),
        ({"widths": {"i": 2, "j": 4}}, "`lines`: what is staged is not read by runs of 16 bytes"),
        ({"tile": {"i": 8, "j": 128}, "threads": 64}, "`lines`: a tile is no longer than a sector"),
    ):
        wrong = Candidate(launches={"k_0": replace(found, **changes)})
        with pytest.raises(TExprError, match=said):
            map_program(proved(text, M=1021, N=128), SM90, choices=wrong)


@pytest.mark.parametrize(("dtype", "lines"), [("f32", True), ("bf16", True), ("f64", True), ("u8", False)])
def test_rows_at_any_address_are_written_in_whole_sectors(dtype: str, lines: bool) -> None:
    program = mapped(ROWS.format(t=dtype), M=1021, N=1023)
    found = choice(program)
    assert found is not None and bool(found.lines) is lines
    stores = [copy for copy in of_kind(only_launch(program).body, Copy) if copy.target.buffer == "B"]
    assert [copy.access for copy in stores] == [Access.ALIGNED] * lines


@pytest.mark.parametrize(
    ("dtype", "rows", "side"), [("bf16", 257, 64), ("bf16", 509, 128), ("bf16", 256, 128), ("f32", 161, 64)]
)
def test_tiles_are_shorter_along_rows_where_most_are_cut(dtype: str, rows: int, side: int) -> None:
    text = ROWS.format(t=dtype).replace("= A[i, j]", f"= A[i, j] + {dtype}(i)")  # which no strip has
    found = choice(mapped(text, M=rows, N=4093))
    assert found is not None
    assert found.tile == {"i": side, "j": 64 if dtype == "f32" else 128}


@pytest.mark.parametrize(
    ("text", "rows", "columns", "tile", "threads", "resident"),
    [
        (ROWS.format(t="f32"), 32768, 4096, (128, 64), 512, 2),
        (ROWS.format(t="f32"), 32749, 4093, (136, 64), 512, 2),  # in phase
        (ROWS.format(t="f32"), 2048, 2048, (64, 64), 256, 3),  # few blocks
        (ROWS.format(t="f32"), 257, 100003, (72, 64), 256, 4),  # few tiles along, of which two are cut
        (ROWS.format(t="f32"), 5003, 5003, (72, 64), 256, 4),
        (ROWS.format(t="f32"), 701, 3001, (64, 64), 256, 4),  # too few blocks
        (ROWS.format(t="f64"), 5003, 5003, (32, 32), 256, 4),
        (ROWS.format(t="f32"), 257, 4093, (64, 64), 256, 4),
        (ROWS.format(t="bf16"), 32768, 4096, (128, 128), 256, 3),
        (TWO, 32768, 4096, (64, 64), 256, 3),
    ],
)
def test_wide_elements_have_longer_tiles_where_blocks_are_many(
    text: str, rows: int, columns: int, tile: tuple[int, int], threads: int, resident: int
) -> None:
    found = choice(mapped(text, M=rows, N=columns))
    assert found is not None
    assert (found.tile, found.threads, found.resident) == (dict(zip("ij", tile, strict=True)), threads, resident)


@pytest.mark.parametrize(("dtype", "width"), [("f32", 4), ("bf16", 8), ("f64", 2), ("u8", 1)])
def test_rows_at_any_address_are_brought_16_bytes_at_a_time(dtype: str, width: int) -> None:
    program = mapped(ROWS.format(t=dtype), M=1021, N=1023)
    found = choice(program)
    assert found is not None and found.widths.get("j", 1) == width
    loads = [copy for copy in of_kind(only_launch(program).body, Copy) if copy.source.buffer == "A"]
    found_so = [(copy.access, copy.within and copy.within.exact) for copy in loads]
    wide = [(Access.FUNNEL, None), (Access.FUNNEL, False), (Access.EACH, True)]  # whole, not at the array's end, there
    assert found_so == (wide if width > 1 else [(Access.ALIGNED, None), (Access.ALIGNED, True)])


BANDED = [(256, 512, 2), (256, 512, 4), (256, 640, 4), (384, 640, 3), (256, 576, 4), (136, 1000, 3)]


@pytest.mark.parametrize(("m", "n", "band"), BANDED)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_tiles_in_bands_are_each_taken_once(dtype: str, m: int, n: int, band: int) -> None:
    sizes = {"M": m, "N": n}
    first = choice(mapped(ROWS.format(t=dtype), **sizes))
    assert first is not None
    banded = Candidate(launches={"k_0": replace(first, band=band)})
    program = map_program(proved(ROWS.format(t=dtype), **sizes), SM90, choices=banded)
    assert program.host != mapped(ROWS.format(t=dtype), **sizes).host
    values = given(program, sizes)
    for name, value in interpret(program.kernel, values).outputs.items():
        np.testing.assert_array_equal(simulate(program, values)[name], value)


@pytest.mark.parametrize(
    ("dtype", "m", "n", "asked", "band"),
    [
        ("bf16", 131072, 1024, "", 4),
        ("f16", 131072, 512, "", 4),
        ("bf16", 131072, 2048, "", 1),  # rows that are read are longer
        ("bf16", 100096, 1024, "", 1),  # rows that are written lie less evenly
        ("bf16", 131072, 768, "", 1),  # six tiles of a row
        ("bf16", 4096, 1024, "", 1),  # few blocks
        ("f32", 131072, 512, "", 1),
        ("bf16", 131072, 1024, "#raster(2)", 1),  # as the author says
    ],
)
def test_tiles_of_narrow_rows_whose_columns_lie_far_apart_are_in_bands(
    dtype: str, m: int, n: int, asked: str, band: int
) -> None:
    text = ROWS.format(t=dtype).replace(") {", f") {asked} {{", 1)
    found = choice(mapped(text, M=m, N=n))
    assert found is not None
    assert found.band == band
