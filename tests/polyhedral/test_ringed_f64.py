"""Products of matrices of f64 on tensor cores, by single warps on every target that has them: sm_90a, too, whose
warpgroups multiply none."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from test_piped_types import HEADS, LARGE, arguments, text

import texpr
from texpr.grammar.index.expr import constant_value
from texpr.grammar.types import F64
from texpr.polyhedral.layout.place import every_place
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped import atoms
from texpr.polyhedral.mapped.atoms import SharedOperand
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.orders.shortened import shortened
from texpr.polyhedral.simulate.stage import simulate

SMALL = Ringed(along="j", across="i", tile={"i": 64, "j": 64}, each={"i": 32, "j": 32}, depth=16, stages=2, band=2)
BANKS_BYTES, PHASE = 128, 16  # of all banks, and the lanes of 8 bytes each that they serve at once


def f64(case: str) -> str:
    return text(case, "f64", "f64")


def mapped(program: str, how: Ringed | None = None, target: str = "sm_90a", **sizes: int) -> MappedProgram:
    choice = None if how is None else Candidate(launches={"g_0": how})
    kernel = texpr.parse(program).only
    return kernel.compile(f"cuda:{target}", stop_after="map", mapping=choice, sizes=sizes or LARGE).mapping.program


def form(program: str, target: str = "sm_90a", **sizes: int) -> Any:
    return mapped(program, None, target, **sizes).candidate.launches["g_0"]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_products_of_f64_go_to_tensor_cores_whatever_way_they_lie(target: str) -> None:
    assert {type(form(f64(case), target, M=1023, N=1025, K=1027)) for case in HEADS} == {Ringed}


def test_products_that_are_rounded_by_themselves_stay_where_they_are() -> None:
    assert not isinstance(form(text("nn", "f64", "f64", " #strict")), Ringed)


def near(values: dict[str, Any], got: Any, case: str) -> None:
    a, b = (values[name] if letter == "n" else values[name].T for name, letter in zip("AB", case, strict=True))
    np.testing.assert_allclose(got, a @ b, rtol=0, atol=1e-13)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("case", "sizes", "depth"),
    [("nn", (40, 67, 37), 16), ("nt", (66, 36, 20), 8), ("tn", (33, 68, 16), 16), ("tt", (7, 70, 9), 8)],
)
def test_a_ragged_product_is_right_in_the_simulator(case: str, sizes: tuple[int, int, int], depth: int) -> None:
    program = mapped(f64(case), replace(SMALL, depth=depth), **dict(zip("MNK", sizes, strict=True)))
    values = arguments(program)
    near(values, simulate(program, values)["C"], case)


def test_threads_bring_rows_of_several_panels_at_once() -> None:
    """256 threads have 32 rows of 128 bytes, and a panel 16."""
    how = replace(SMALL, tile={"i": 128, "j": 128}, each={"i": 64, "j": 32})
    program = mapped(f64("nn"), how, M=36, N=36, K=18)
    values = arguments(program)
    near(values, simulate(program, values)["C"], "nn")


def test_tiles_are_large_where_there_are_enough_of_them() -> None:
    tiles = [form(f64("nn"), M=n, N=n, K=n).tile for n in (512, 1024, 4096)]
    assert [tile["i"] * tile["j"] for tile in tiles] == [64 * 64, 128 * 64, 128 * 128]


@pytest.mark.gxx
@pytest.mark.parametrize(("case", "target"), [("nn", "sm_90a"), ("tt", "sm_80")])
def test_the_text_of_a_product_is_right_on_the_cpu(case: str, target: str) -> None:
    sizes = {"M": 66, "N": 37, "K": 19}
    values = arguments(mapped(f64(case), SMALL, target, **sizes))
    choice = Candidate(launches={"g_0": SMALL})
    texpr.parse(f64(case)).only.compile(f"cuda-host:{target}", mapping=choice, sizes=sizes)(**values)
    near(values, values["C"], case)


AROUND = (
    "kernel g(A: f64[M, K], B: f64[K, N], v: f64[N], D: f32[M, N], inout C: f64[M, N])"
    + """ { par M i, N j {
    let s = sum K k { A[i, k] * B[k, j] }
    C[i, j] = C[i, j] + v[j] * s
    D[i, j] = f32(s)
} }"""
)


def test_what_is_around_a_product_is_done_with_its_sums() -> None:
    how = replace(form(AROUND), tile=SMALL.tile, each=SMALL.each, depth=16, stages=2, resident=1)
    program = mapped(AROUND, how, M=34, N=66, K=16)
    values = arguments(program)
    got, product = simulate(program, values), values["A"] @ values["B"]
    np.testing.assert_allclose(got["C"], values["C"] + values["v"] * product, rtol=0, atol=1e-12)
    np.testing.assert_allclose(got["D"], product, rtol=1e-6, atol=1e-6)


@cache
def large() -> MappedProgram:
    return mapped(f64("nt"), SMALL, M=64, N=64, K=192)


def test_the_checker_finds_nothing() -> None:
    assert faults(large(), {}) == faults(shortened(large()), {}) == ()


@pytest.mark.parametrize(("row_bytes", "k_contiguous"), [(64, True), (128, True), (128, False)])
def test_lanes_that_are_served_at_once_read_different_banks(row_bytes: int, k_contiguous: bool) -> None:
    """Of every register of both operands: as many lanes as all banks serve read as many banks."""
    for role in "ab":
        atom = atoms.load_blocks(F64, 32, SharedOperand(swizzle_bytes=row_bytes, k_contiguous=k_contiguous), role)
        held = every_place(atom.operands["target"].layout)
        shape = tuple(constant_value(n) for n in atom.operands["target"].layout.shape)
        tile = every_place(atom.operands["source"].layout)[Unit.ADDRESS][: shape[0], : shape[1]]
        for register in range(int(held[Unit.REGISTER].max()) + 1):
            mine = held[Unit.REGISTER] == register
            banks = np.empty(32, int)
            banks[held[Unit.LANE][mine]] = tile[mine] * F64.size_bytes % BANKS_BYTES
            assert len({*banks[:PHASE]}) == len({*banks[PHASE:]}) == PHASE
