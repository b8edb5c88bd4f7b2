"""The memory-bound programs at a small size, compared with their references."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from memory_problems import Numbers, Problem, error_of, shape_of

import texpr
from texpr.codegen.artifact import signature
from texpr.grammar.core import buffers_written
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime.host_arrays import numpy_dtype

SMALL = (37, 45)
ROUNDINGS = 4  # of a narrow sum that is kept in memory: each addition may round, where a GPU's register does not
Run = Callable[[Any, dict[str, int], dict[str, Any]], object]
"""Calls a kernel of these sizes with arrays by name."""


def fault(problem: Problem, dtype: str, run: Run) -> str:
    """What is wrong with a program of this type; empty where nothing is."""
    sizes = problem.sizes(*SMALL)
    kernel = texpr.parse(problem.text(dtype), problem.program).only
    core = kernel.core(sizes=sizes)
    manifest = signature(core, "cpu", "0", buffers_written(core))
    generator = np.random.default_rng(sum(map(ord, problem.name)))
    arrays = {p.name: _array(generator, problem, p, sizes) for p in manifest.parameters}
    numbers = Numbers(np, np.vectorize(math.erf, otypes=[float]))
    want = problem.expected(numbers, {name: _wide(array) for name, array in arrays.items()})
    run(kernel, sizes, arrays)
    (output,) = (p.name for p in manifest.parameters if p.writes)
    error = error_of(np, _wide(arrays[output]), want, exact=problem.exact)
    return (
        "" if error <= ROUNDINGS * problem.tolerance(dtype) else f"{problem.name} of {dtype}: an error of {error:.1e}"
    )


def on_cpu(kernel: Any, sizes: dict[str, int], arrays: dict[str, Any]) -> None:
    kernel.compile("cpu", sizes=sizes)(**arrays)


def _array(generator: Any, problem: Problem, parameter: Any, sizes: dict[str, int]) -> Any:
    shape, dtype = shape_of(parameter, sizes), numpy_dtype(ELEMENT_TYPES[parameter.dtype])
    if parameter.mode == "write":
        return np.full(shape, -1, dtype)
    match problem.inputs.get(parameter.name):
        case "positive":
            return generator.random(shape).astype(dtype)
        case "rows":
            return generator.permutation(shape[0])
        case "classes":
            return generator.integers(0, sizes["N"], shape)
        case "keys":
            return generator.integers(0, 256, shape).astype(dtype)
        case "one key":
            return np.full(shape, 77, dtype)
    return generator.standard_normal(shape).astype(dtype)


def _wide(array: Any) -> Any:
    return array if array.dtype.kind == "i" else array.astype(np.float64)
