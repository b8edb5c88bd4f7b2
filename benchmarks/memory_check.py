"""The memory-bound programs at a small size, compared with their references."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from memory_problems import Numbers, Problem, Shape, arrays_of, error_of

import texpr
from texpr.codegen.artifact import signature
from texpr.codegen.manifest import Manifest
from texpr.grammar.ast import Accumulate, Kernel
from texpr.grammar.core import buffers_written
from texpr.grammar.types import ELEMENT_TYPES
from texpr.grammar.walk import walk
from texpr.runtime.host_arrays import numpy_dtype

SMALL = (37, 45)
ROUNDINGS = 4  # tolerances of a sum that is kept in memory in bf16: each addition may round
Run = Callable[[Any, dict[str, int], dict[str, Any]], object]
"""Calls a kernel of these sizes with arrays by name."""


def fault(problem: Problem, dtype: str, run: Run) -> str:
    """What is wrong with a program of this type; empty where nothing is."""
    sizes = problem.sizes(*SMALL)
    kernel = texpr.parse(problem.text(dtype), problem.program).only
    core = kernel.core(sizes=sizes)
    manifest = signature_of(kernel, sizes)
    arrays = arrays_of(problem, manifest.parameters, sizes, NumpyDraws(sum(map(ord, problem.name))))
    numbers = Numbers(np, np.vectorize(math.erf, otypes=[float]))
    want = problem.expected(numbers, {name: wide(array) for name, array in arrays.items()})
    run(kernel, sizes, arrays)
    (output,) = (p.name for p in manifest.parameters if p.writes)
    error = error_of(np, wide(arrays[output]), want, exact=problem.exact)
    allowed = problem.tolerance(dtype) * (ROUNDINGS if dtype == "bf16" and _accumulates_in_memory(core) else 1)
    return "" if error <= allowed else f"{problem.name} of {dtype}: an error of {error:.1e}"


def signature_of(kernel: Any, sizes: dict[str, int]) -> Manifest:
    """The parameters of a kernel of these sizes, and what it does with them."""
    core = kernel.core(sizes=sizes)
    return signature(core, "cpu", "0", buffers_written(core))


def _accumulates_in_memory(kernel: Kernel) -> bool:
    parameters = {buffer.name for buffer in kernel.params}
    return any(isinstance(node, Accumulate) and node.buffer in parameters for node in walk(kernel))


def on_cpu(kernel: Any, sizes: dict[str, int], arrays: dict[str, Any]) -> None:
    kernel.compile("cpu", sizes=sizes)(**arrays)


class NumpyDraws:
    """Arrays of NumPy, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def normal(self, shape: Shape, dtype: str) -> Any:
        return _of_type(self._generator.standard_normal(shape), dtype)

    def uniform(self, shape: Shape, dtype: str) -> Any:
        return _of_type(self._generator.random(shape), dtype)

    def below(self, limit: int, shape: Shape, dtype: str) -> Any:
        return _of_type(self._generator.integers(0, limit, shape), dtype)

    def permutation(self, count: int, dtype: str) -> Any:
        return _of_type(self._generator.permutation(count), dtype)

    def full(self, shape: Shape, value: float, dtype: str) -> Any:
        return _of_type(np.full(shape, value), dtype)


def _of_type(array: Any, dtype: str) -> Any:
    return array.astype(numpy_dtype(ELEMENT_TYPES[dtype]))


def wide(array: Any) -> Any:
    """Floats as float64."""
    return array if array.dtype.kind == "i" else array.astype(np.float64)
