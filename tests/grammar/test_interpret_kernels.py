"""The conformance kernels: fast mode is inside the float64 bound, exact mode finds nothing and agrees."""

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest

from texpr.grammar import numerics
from texpr.grammar.ast import Role
from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.check.stage import check
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.text.parser import parse_text
from texpr.grammar.types import F64

KERNELS = Path(__file__).parent.parent / "kernels"
EXACT_ITERATIONS = 3000  # product of the sizes up to which the scalar mode is run


def cases():
    table = tomllib.loads((KERNELS / "cases.toml").read_text(encoding="utf-8"))
    for name, case in table.items():
        for number, sizes in enumerate(case.get("sizes", [{}])):
            yield pytest.param(name, sizes, case.get("types", {}), id=f"{name}-{number}")


def arguments(kernel, sizes, seed):
    """Random arrays for a kernel with bound sizes: small floats, and integers that may be subscripts."""
    generator = np.random.default_rng(seed)
    least = min((n for b in kernel.params for n in shape_of(b)), default=1)
    values = {}
    for buffer in kernel.params:
        shape = shape_of(buffer)
        if buffer.dtype.is_float:
            array = numerics.cast(generator.standard_normal(shape), F64, buffer.dtype)
        elif buffer.dtype.is_bool:
            array = generator.integers(0, 2, shape).astype(np.bool_)
        else:
            array = generator.integers(0, max(1, min(least, 8)), shape).astype(numerics.storage(buffer.dtype))
        values[buffer.name] = np.asarray(array) if buffer.role is Role.PARAM else np.asarray(array).item()
    return values


def shape_of(buffer):
    return tuple(int(index_value(n, {})) for n in buffer.shape)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "sizes", "types"), list(cases()))
def test_a_conformance_kernel_is_interpreted_the_same_in_every_mode(name, sizes, types):
    text = (KERNELS / f"{name}.tex").read_text(encoding="utf-8")
    for kernel in check(parse_text(text, name), types=types):
        known = {n: v for n, v in sizes.items() if any(size.name == n for size in kernel.sizes)}
        values = arguments(bind_sizes(kernel, known), known, seed=7)
        wide = interpret(kernel, values, float64=True, sizes=known)
        modes = ("fast", "exact") if math.prod(known.values()) <= EXACT_ITERATIONS else ("fast",)
        for mode in modes:
            got = interpret(kernel, values, mode=mode, sizes=known, seed=3)
            for buffer in kernel.params:
                if buffer.role is Role.PARAM:
                    close(buffer, got.outputs[buffer.name], wide)


def close(buffer, got, wide):
    expected, bound, undecided = (part[buffer.name] for part in (wide.outputs, wide.bounds, wide.undecided))
    assert undecided.sum() <= 0.2 * undecided.size
    if not buffer.dtype.is_float:
        assert np.array_equal(got[~undecided], expected[~undecided]), buffer.name
        return
    narrow = numerics.cast(got, buffer.dtype, F64)
    with np.errstate(invalid="ignore"):
        right = (
            (np.abs(narrow - expected) <= 4 * bound) | (narrow == expected) | (np.isnan(narrow) & np.isnan(expected))
        )
    assert (right | undecided).all(), buffer.name
