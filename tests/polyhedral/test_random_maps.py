"""Random kernels whose pars fill warps and blocks, or miss or pass them by one, run on threads as they mean."""

from typing import Any

import numpy as np
import pytest
from order_oracle import missing
from random_kernels import random_kernel

from texpr.grammar.ast import Kernel
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.map.stage import map_program
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.simulate.stage import simulate
from texpr.polyhedral.target import parse_target


def mapped_kernel(kernel: Kernel) -> MappedProgram | None:
    """The kernel on CUDA, or None where the proofs refuse it."""
    try:
        return map_program(prove(build_program(kernel)), parse_target("cuda:sm_90a"))
    except TExprError as refused:
        assert all(d.code.startswith(("E03", "W")) for d in refused.diagnostics), str(refused)
        return None


def arguments(kernel: Kernel, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    shapes = {b.name: tuple(max(0, int(index_value(e, {}))) for e in b.shape) for b in kernel.params}
    return {name: generator.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("batch", range(2))
def test_a_legal_kernel_of_filled_warps_and_blocks_is_mapped_right(batch: int) -> None:
    ran = 0
    for seed in range(batch * 60, batch * 60 + 60):
        kernel = random_kernel(seed, fills=True)
        program = mapped_kernel(kernel)
        if program is None:
            continue
        ran += 1
        assert missing(program, {}) == [], seed
        arrays = arguments(kernel, seed)
        want = interpret(kernel, {name: array.copy() for name, array in arrays.items()}).outputs
        got = simulate(program, arrays, seed=seed)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-3, err_msg=f"seed {seed}: {name}")
    assert ran >= 8
