"""A product of matrices on tensor cores, written by hand as a value of the types: printed, checked, simulated,
compiled. Its text runs on the CPU where the mapping makes such a product (`test_piped.py`)."""

import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emitted import Emitted
from gemm_by_hand import Shape, gemm
from spoil import detuned, spoiled

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostModule
from texpr.codegen.plan import plan
from texpr.codegen.toolchain import INCLUDE, NVCC_FLAGS, NVCC_WERROR, find_nvcc
from texpr.grammar.diagnostics import Diagnostic, TExprError
from texpr.grammar.types import BF16
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.layout.value import Layout, Xor
from texpr.polyhedral.mapped.atoms import SharedOperand, wgmma
from texpr.polyhedral.mapped.operators import Contract
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.tree import Node
from texpr.polyhedral.mapped.walks import launches, map_nodes
from texpr.polyhedral.orders.happens import faults
from texpr.polyhedral.simulate.stage import simulate

SMALL = Shape(256, 256, 192, 2)


@cache
def small() -> MappedProgram:
    return gemm(SMALL)


PRINTED = """\
    part load (4 warps, 40 registers)
      if true  (once)
"""


def test_a_product_is_printed_as_its_parts() -> None:
    text = show(small())
    assert PRINTED in text
    for line in (
        "S0: copy a[x, y] = from A[i0 + x, 64 * k + y] for x < 128, y < 64  (transaction, ring, own block, clipped)",
        "S2: contract c[m, n] += from a[64 * g + m, d], b[n, d] for m < 64, n < 256, d < 64, from 0 unless k > 0",
        "S3: unload d[g, w, q % 2, x, y] = from c[16 * w + x, 64 * q + y] for x < 16, y < 64  (stmatrix.x4 bf16)",
    ):
        assert line in text, line


def run(mapped: MappedProgram, shape: Shape, seed: int) -> tuple[Diagnostic | None, Any, Any]:
    """The finding of a run of the text on the CPU, what it computed, and what it should have."""
    emitted, arrays = Emitted(mapped), operands(shape, seed)
    report = emitted.run(HostModule(emitted.source), arrays, seed)
    return report, arrays["C"], product(arrays)


@pytest.mark.nvcc
def test_a_product_keeps_its_sums_in_registers(tmp_path: Path) -> None:
    mapped = gemm(Shape(4096, 4096, 4096))
    text = tmp_path / "gemm.cu"
    text.write_text(emit_cuda(plan(mapped), mapped.target).source)
    flags = [*NVCC_FLAGS, *NVCC_WERROR, "-gencode", "arch=compute_90a,code=sm_90a", "-I", str(INCLUDE), "-Xptxas", "-v"]
    command = [find_nvcc().path, *flags, "-cubin", "-o", str(tmp_path / "gemm.cubin"), str(text)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr, done.stderr


@cache
def checked() -> MappedProgram:
    """Two tiles a cluster, and more steps of k than the ring has slots."""
    return gemm(Shape(512, 256, 6 * 64, 2))


def test_the_checker_finds_no_fault_in_a_product() -> None:
    assert faults(checked(), {}) == ()


def operands(shape: Shape, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal((rows, shape.k)).astype(ml_dtypes.bfloat16) for rows in (shape.m, shape.n))
    return {"A": a, "B": b, "C": np.full((shape.m, shape.n), np.nan, ml_dtypes.bfloat16)}


def product(arrays: dict[str, Any]) -> Any:
    return arrays["A"].astype(np.float64) @ arrays["B"].astype(np.float64).T


def far(got: Any, wanted: Any) -> bool:
    return not np.linalg.norm(got.astype(np.float64) - wanted) < 2e-3 * np.linalg.norm(wanted)


def test_a_product_is_right_in_the_simulator() -> None:
    arrays = operands(SMALL, 3)
    assert not far(simulate(small(), arrays)["C"], product(arrays))


def test_a_ragged_product_in_shared_memory_at_its_addresses_is_right_in_the_simulator() -> None:
    shape = Shape(136, 264, 72, 2)
    arrays = operands(shape, 3)
    assert not far(simulate(plan(gemm(shape)), arrays, seed=1)["C"], product(arrays))


SHORT = Shape(256, 128, 2 * 64, 2, columns=128, consumers=1, stages=2, buffers=1)
"""Two tiles a cluster, and each slot twice: small, so that it runs in no time."""
HARMLESS = (
    r"double (barrier|fence|close|wait \()",
    r"(earlier fence \(wgmma\)|later wait ring)$",  # a fence of registers is not of what a wait is for
    r"a relaxed barrier of the cluster$",  # behind the fence it says that the pipes are there
)


def changes() -> tuple[list[tuple[str, MappedProgram]], list[tuple[str, MappedProgram]]]:
    """The changes of syncs that do harm, and those that do none."""
    every = [*spoiled(gemm(SHORT)), *detuned(gemm(SHORT))]
    harmless = [c for c in every if any(re.match(pattern, c[0]) for pattern in HARMLESS)]
    harmful = [c for c in every if all(c is not other for other in harmless)]
    assert (len(harmful), len(harmless)) == (61, 16)
    return harmful, harmless


def test_the_checker_finds_every_change_of_a_product_that_does_harm_and_no_other() -> None:
    harmful, harmless = changes()
    assert [text for text, mapped in harmful if not faults(mapped, {})] == []
    assert [text for text, mapped in harmless if faults(mapped, {})] == []


def test_the_simulator_finds_every_change_of_a_product_that_does_harm() -> None:
    arrays = operands(SHORT, 0)
    wanted = product(arrays)

    def found(mapped: MappedProgram) -> bool:
        try:
            return far(simulate(mapped, arrays)["C"], wanted)
        except TExprError:
            return True

    harmful, _ = changes()
    assert [text for text, mapped in harmful if not found(mapped)] == []


@pytest.mark.gxx
def test_a_product_without_its_fence_of_registers_is_told_on_the_cpu() -> None:
    (mapped,) = (mapped for text, mapped in spoiled(small()) if text == "drop fence (wgmma)")
    report, _, _ = run(mapped, SMALL, 0)
    assert report is not None and "fence" in report.message


def refusal(name: str, layout: Layout) -> str:
    """What is said of a product one of whose tiles lies otherwise."""
    changed = replace(small().buffers[name], layout=layout)
    mapped = replace(small(), buffers={**small().buffers, name: changed})
    with pytest.raises(TExprError) as caught:
        emit_cuda(plan(mapped), mapped.target)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E0502"
    return diagnostic.message


def test_a_tile_that_no_product_reads_is_refused() -> None:
    found = refusal("a", row_major((128, 64)))
    assert found == "S2 takes a otherwise than under a swizzle of 128 bytes, which is not emitted for CUDA"


def test_an_xor_that_no_box_is_written_with_is_refused() -> None:
    mixed = replace(row_major((128, 64)), xor=Xor(bits=3, base=4, shift=3))
    assert refusal("a", mixed) == "S0 copies with an XOR that no box is written with, which is not emitted for CUDA"


def test_another_instruction_than_the_header_has_is_refused() -> None:
    def narrower(node: Node) -> Node:
        if isinstance(node, Contract):
            return replace(node, atom=wgmma(BF16, 128, SharedOperand(), SharedOperand()))
        return node

    (launch,) = launches(small().host)
    mapped = replace(small(), host=(replace(launch, body=map_nodes(launch.body, narrower)),))
    with pytest.raises(TExprError, match=r"S2 takes the instruction wgmma\.m64n128k16 bf16 between such tiles"):
        emit_cuda(plan(mapped), mapped.target)
