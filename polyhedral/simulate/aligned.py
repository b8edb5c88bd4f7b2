"""What tensor cores of sm_90a make of products of f8: 32 of them at a time are added to a sum, all aligned.

    top      the greatest exponent: of the sum, and of the products, which is that of both factors together
    unit     2^(top - 13): whole units of the sum and of each product count, and the 14 first bits of the result

What is beyond is cut off. A denormal factor has the exponent of the least normal number; products that are 0 have none.
So `wgmma` of an H200 does it, bit by bit (`tests/atoms/wgmma_cases.py`). Its `mma.sync`, of which an assembler makes
products of f16, keeps 24 bits; other targets have such an instruction, which is taken to keep no more than 14.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from texpr.grammar import numerics
from texpr.grammar.interpret.bound import PORTION_DIGITS
from texpr.grammar.types import DType
from texpr.polyhedral.mapped.atoms import PRODUCT_BYTES

Array = NDArray[Any]
NONE = -(1 << 20)  # an exponent below all others


def aligned_sums(a: Array, b: Array, sums: Array, kinds: tuple[DType, DType]) -> Array:
    """`sums[m, n]` and the products of a[m, k] and b[n, k], of these types, 32 of k after the other; all in f64."""
    with np.errstate(all="ignore"):
        exact = sums + a @ b.T
        for first in range(0, a.shape[1], PRODUCT_BYTES):
            left, right = (own[:, first : first + PRODUCT_BYTES] for own in (a, b))
            sums = _added(left[:, None], right[None], sums, kinds)
    return np.where(np.isfinite(exact), sums, exact)


def _added(a: Array, b: Array, sums: Array, kinds: tuple[DType, DType]) -> Array:
    products = a * b
    exponents = [
        np.maximum(_exponent(own), _exponent(np.float64(numerics.least_normal(kind))))
        for own, kind in zip((a, b), kinds, strict=True)
    ]
    tops = np.where(products == 0, NONE, exponents[0] + exponents[1]).max(axis=-1)
    unit = np.ldexp(1.0, np.maximum(np.maximum(tops, _exponent(sums)), -1000) - PORTION_DIGITS + 1)
    units = np.trunc(products / unit[..., None]).sum(axis=-1) + np.trunc(sums / unit)
    rest = np.ldexp(1.0, np.maximum(_exponent(units) - PORTION_DIGITS + 1, 0))
    return np.asarray(np.trunc(units / rest) * rest * unit)


def _exponent(values: Array | np.float64) -> Array:
    return np.where(values == 0, NONE, np.frexp(values)[1] - 1)
