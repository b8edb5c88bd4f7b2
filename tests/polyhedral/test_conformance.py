"""The conformance kernels: each access of each is as good as the kernel allows, and the table of them is a golden file.
Those that must be refused are in `tests/kernels/refused`.

An access is at its ideal where a warp's request touches no more 32-byte sectors than its bytes fill. What cannot be,
and what is not yet, stands here by name; whatever becomes better must be taken off the list.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from stages import proved

from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.program import AccessReport, MappedProgram
from texpr.polyhedral.mapped.walks import launches
from texpr.polyhedral.schedule.stage import schedule
from texpr.polyhedral.target import parse_target

KERNELS = Path(__file__).resolve().parents[1] / "kernels"
PROGRAMS = [
    "vector_add",
    "saxpy_seq",
    "saxpy_two_seq",
    "matmul_seed",
    "matmul_at_b",
    "matmul_a_bt",
    "matmul_tiled",
    "matmul_batched",
    "transpose",
    "permute_021",
    "copy_offset",
    "mvt",
    "atax",
    "bicg",
    "gesummv",
    "two_mm",
    "syrk",
    "syr2k",
    "doitgen",
    "jacobi_1d",
    "jacobi_2d",
    "conv1d",
    "conv2d",
    "depthwise",
    "softmax",
    "layernorm",
    "attention_tile",
    "sum_axis0",
    "sum_axis1",
    "histogram",
    "max_pool",
    "complex_aos",
    "block_cyclic",
    "modular",
    "ragged",
    "reversed",
    "n_body",
    "small_matvec",
]
WIDTHS = {"vector_add": 4, "saxpy_seq": 4, "saxpy_two_seq": 4, "complex_aos": 4}
SHORT = "in the case of rows of at most 32 elements, one a thread: what follows reads the rest of each sector"
FEW = "in the case of rows of at most 8 elements, all of one a thread: what follows reads the rest of each sector"
CANNOT = {
    ("copy_offset", "A"): "begins beside a sector: one more",
    ("jacobi_1d", "A"): "begins beside a sector: one more",
    ("jacobi_1d", "B"): "begins beside a sector: one more",
    ("jacobi_2d", "A"): "begins beside a sector: one more",
    ("jacobi_2d", "B"): "begins beside a sector: one more",
    ("conv2d", "X"): "begins beside a sector: one more",
    ("atax", "A"): SHORT,
    ("bicg", "A"): SHORT,
    ("gesummv", "A"): SHORT,
    ("gesummv", "B"): SHORT,
    ("sum_axis1", "A"): SHORT,
    ("softmax", "X"): FEW,
    ("softmax", "Y"): FEW,
    ("layernorm", "X"): FEW,
    ("layernorm", "Y"): FEW,
}
RUNS = "of free size: four neighbours of a lane, one by one"
NOT_YET = {
    ("matmul_seed", "C"): RUNS,
    ("matmul_at_b", "C"): RUNS,
    ("matmul_a_bt", "C"): RUNS,
    ("matmul_batched", "C"): RUNS,
    ("conv2d", "Y"): RUNS,
    ("two_mm", "t"): RUNS,
    ("two_mm", "D"): RUNS,
    ("syrk", "C"): RUNS,
    ("syr2k", "A"): "a tile in shared memory",
    ("syr2k", "B"): "a tile in shared memory",
    ("small_matvec", "A"): "lanes along the batch",
    ("small_matvec", "X"): "lanes along the batch",
}


@cache
def mapped(name: str) -> MappedProgram:
    program = proved((KERNELS / f"{name}.tex").read_text(encoding="utf-8"))
    return map_program(program, parse_target("cuda:sm_90a"), others=schedule(program).others)


def wasteful(access: AccessReport) -> bool:
    return access.sectors is not None and access.ideal_sectors is not None and access.sectors > access.ideal_sectors


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_access_is_at_its_ideal_or_named(name: str) -> None:
    found = {(name, a.buffer) for a in mapped(name).report.accesses if wasteful(a)}
    assert found == {key for key in {**CANNOT, **NOT_YET} if key[0] == name}


@pytest.mark.parametrize("name", WIDTHS)
def test_contiguous_accesses_are_wide(name: str) -> None:
    assert {a.width for a in mapped(name).report.accesses} == {WIDTHS[name]}


def test_what_one_launch_cannot_hold_is_several() -> None:
    """The blocks of a launch do not wait for one another: products of products, and a step of a stencil each."""
    assert [len(list(launches(mapped(name).host))) for name in ("two_mm", "jacobi_1d", "jacobi_2d")] == [2, 2, 2]


def test_the_table_of_the_conformance_kernels(golden: Callable[[str, str], None]) -> None:
    rows = [(name, access) for name in PROGRAMS for access in mapped(name).report.accesses]
    far = 2 + max(len(access.relation) for _, access in rows)
    lines = [
        f"{'program':<16}{'access':<{far}}{'':<6}{'width':>6}{'stride':>8}{'d':>8}{'sectors':>9}{'ideal':>7}  remark"
    ]
    for name, access in rows:
        remark = {**CANNOT, **NOT_YET}.get((name, access.buffer), "") if wasteful(access) else ""
        figures = [access.width, access.lane_stride, access.distance, access.sectors, access.ideal_sectors]
        told = ["" if figure is None else str(figure) for figure in figures]
        columns = "".join(f"{t:>{w}}" for t, w in zip(told, (6, 8, 8, 9, 7), strict=True))
        lines.append(f"{name:<16}{access.relation:<{far}}{access.mode:<6}{columns}  {remark}".rstrip())
    golden("map/conformance.txt", "\n".join(lines) + "\n")
