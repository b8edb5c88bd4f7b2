"""The monoids of `polyhedral/mapped/monoids.py` for Numba: functions on tuples of scalars, by the catalogue's names.

`numba_monoid("ScaledSum", F32).combine` is compiled into its callers. Importing this module imports Numba.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from texpr.codegen.cpu.intrinsics import exp, maximum, minimum
from texpr.grammar.numerics import storage
from texpr.grammar.types import DType
from texpr.polyhedral.mapped.monoids import MONOIDS

Function = Callable[..., Any]
Functions = tuple[Function, Function, Function]  # lift(x, index), combine(a, b), result(a)

inline: Any = njit(error_model="numpy", boundscheck=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbaMonoid:
    """Numba's functions of one monoid for one element type; a partial is a tuple."""

    identity: tuple[Any, ...]
    lift: Function
    combine: Function
    result: Function


def _same(a: Any) -> Any:
    return a


def _scalar(operation: Function) -> Functions:
    def lift(x: Any, index: Any) -> Any:
        return (x,)

    def combine(a: Any, b: Any) -> Any:
        return (operation(a[0], b[0]),)

    return lift, combine, _same


def _sum(kind: Any) -> Functions:
    return _scalar(inline(lambda a, b: kind(a + b)))


def _product(kind: Any) -> Functions:
    return _scalar(inline(lambda a, b: kind(a * b)))


def _chosen(kind: Any, of_floats: Function, of_integers: Function) -> Function:
    return of_floats if issubclass(kind, np.floating) else inline(lambda a, b: kind(of_integers(a, b)))


def _greatest(kind: Any) -> Functions:
    return _scalar(_chosen(kind, maximum, max))


def _least(kind: Any) -> Functions:
    return _scalar(_chosen(kind, minimum, min))


def _scaled_sum(kind: Any) -> Functions:
    zero, one = kind(0), kind(1)

    def lift(x: Any, index: Any) -> Any:
        return x, one

    scale = inline(lambda before, after: one if before == after else exp(before - after))

    def combine(a: Any, b: Any) -> Any:
        greatest = maximum(a[0], b[0])
        return greatest, a[1] * scale(a[0], greatest) + b[1] * scale(b[0], greatest)

    def result(a: Any) -> Any:
        return a[0], (zero if a[1] == zero else a[1] + (a[0] - a[0]))

    return lift, combine, result


def _extreme(choose: Function) -> Functions:
    def lift(x: Any, index: Any) -> Any:
        return x, np.int32(index)

    def combine(a: Any, b: Any) -> Any:
        if a[0] == b[0] or (a[0] != a[0] and b[0] != b[0]):
            return a if a[1] < b[1] else b
        return a if a[0] != a[0] or choose(a[0], b[0]) == a[0] else b

    return lift, combine, _same


def _arg_greatest(kind: Any) -> Functions:
    return _extreme(_chosen(kind, maximum, max))


def _arg_least(kind: Any) -> Functions:
    return _extreme(_chosen(kind, minimum, min))


def _moments(kind: Any) -> Functions:
    zero, one = kind(0), kind(1)

    def lift(x: Any, index: Any) -> Any:
        return one, x, x - x

    def combine(a: Any, b: Any) -> Any:
        if b[0] == zero:
            return a
        if a[0] == zero:
            return b
        count = a[0] + b[0]
        share, apart = b[0] / count, b[1] - a[1]
        mean = a[1] + apart * share if apart - apart == zero else a[1] * (one - share) + b[1] * share
        return count, mean, a[2] + b[2] + apart * apart * (a[0] * share)

    return lift, combine, _same


_MAKERS: dict[str, Callable[[Any], Functions]] = {
    "Sum": _sum,
    "Product": _product,
    "Greatest": _greatest,
    "Least": _least,
    "ScaledSum": _scaled_sum,
    "ArgGreatest": _arg_greatest,
    "ArgLeast": _arg_least,
    "Moments": _moments,
}


@cache
def numba_monoid(name: str, dtype: DType) -> NumbaMonoid:
    """The monoid of that name of the catalogue for elements of `dtype`, one that is computed in."""
    kind = storage(dtype).type
    identity = MONOIDS[name].identity(dtype)
    components = [kind(v) if not MONOIDS[name].indexed or n == 0 else np.int32(v) for n, v in enumerate(identity)]
    lift, combine, result = (inline(function) for function in _MAKERS[name](kind))
    return NumbaMonoid(identity=tuple(components), lift=lift, combine=combine, result=result)
