"""Sizes that the arrays of a call tell, and what depends on them, as compiled code asks for it.

    A: f32[M * K], B: f32[K, N], C: f32[M, N]        a free size is an axis that is it alone; in ABI order

    size0 = array2.shape[0]                          M
    size1 = array1.shape[0]                          K
    size2 = array1.shape[1]                          N
    if size0 < 1 or size0 > 2147483647: return -1    of each
    if array0.shape[0] != (size0 * size1): return -1

Where one cannot be asked so, `bind_arguments` tells every call.
"""

from collections.abc import Sequence
from math import prod

from texpr.codegen.manifest import JsonCondition, JsonExpr, Manifest, Parameter
from texpr.grammar.index.operators import CompareOp

MOST = (1 << 31) - 1  # of a size: the time of another way is of no account to larger arrays
IN_WORDS = (1 << 63) - 1  # of any expression
COMPARED = frozenset(op.value for op in CompareOp)


class NotAskedError(Exception):
    """Compiled code cannot tell: a size that no axis is alone, or expressions that may leave 64 bits."""


class EntrySizes:
    """The sizes of a kernel: numbers, and names of those that are `free`, each with the axis that it is."""

    def __init__(self, manifest: Manifest) -> None:
        """Raises NotAskedError for a free size that no axis is alone."""
        axes = dict[JsonExpr, str]()
        for k, parameter in enumerate(manifest.parameters):
            for axis, extent in enumerate(() if parameter.scalar or parameter.flat else parameter.shape):
                if isinstance(extent, str):
                    axes.setdefault(extent, f"array{k}.shape[{axis}]")
        self.free, self._values = dict[str, str](), dict[str, int | str]()
        for name, value in manifest.sizes.items():
            if value is None:
                own = f"size{len(self.free)}"
                if name not in axes:
                    raise NotAskedError
                self.free[own] = axes[name]
            self._values[name] = own if value is None else value
        self.facts = tuple(map(self.condition, manifest.facts)) if self.free else ()

    def expression(self, expr: JsonExpr) -> str:
        """Raises NotAskedError for one that may leave 64 bits, or that has other operators than + - * and / % by a
        number."""
        return self._bounded(expr)[0]

    def condition(self, given: JsonCondition) -> str:
        """Raises NotAskedError for others than comparisons and what joins them."""
        match given:
            case ["and" | "or" as op, *parts] if parts:
                return "(" + f" {op} ".join(map(self.condition, parts)) + ")"
            case [op, left, right] if op in COMPARED:
                return f"{self.expression(left)} {op} {self.expression(right)}"
        raise NotAskedError

    def _bounded(self, expr: JsonExpr) -> tuple[str, int]:
        """The text, and what its value stays below, but for the sign."""
        match expr:
            case int():
                return str(expr), abs(expr) + 1
            case str() if expr in self._values:
                value = self._values[expr]
                return str(value), (MOST if isinstance(value, str) else abs(value)) + 1
            case ["+" | "-" | "*" as op, left, right]:
                (one, most), (other, rest) = self._bounded(left), self._bounded(right)
                bound = most * rest if op == "*" else most + rest
                if bound <= IN_WORDS:
                    return f"({one} {op} {other})", bound
            case ["/" | "%" as op, left, int(divisor)] if divisor > 0:
                one, most = self._bounded(left)
                return f"({one} {'//' if op == '/' else op} {divisor})", max(most, divisor)
        raise NotAskedError


def is_dense(parameter: Parameter) -> bool:
    """Whether the strides are those of a row-major array, whatever the sizes."""
    return all(
        _factors(stride) == _product(parameter.shape[axis + 1 :]) for axis, stride in enumerate(parameter.strides)
    )


def _product(extents: Sequence[JsonExpr]) -> tuple[int, list[str]]:
    parts = [_factors(extent) for extent in extents]
    return prod(number for number, _ in parts), sorted(text for _, texts in parts for text in texts)


def _factors(expr: JsonExpr) -> tuple[int, list[str]]:
    """A number, and what else the expression is a product of."""
    match expr:
        case int():
            return expr, []
        case ["*", left, right]:
            return _product((left, right))
    return 1, [str(expr)]
