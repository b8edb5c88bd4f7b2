"""Integers at a few points, such as the lanes of a warp, that are computed with like one integer: without NumPy, which
takes longer to load than a kernel to compile, and without its limit of 64 bits.

    Points((0, 1, 2, 3)) * 4 + 1                       Points((1, 5, 9, 13))
"""

from collections.abc import Callable, Iterator
from operator import add, and_, floordiv, mod, mul, rshift, sub, xor

from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True)
class Points:
    """One integer for each point."""

    at: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.at)

    def __iter__(self) -> Iterator[int]:
        return iter(self.at)

    def __add__(self, other: "int | Points") -> "Points":
        return each(add, self, other)

    def __radd__(self, other: int) -> "Points":
        return each(add, other, self)

    def __sub__(self, other: "int | Points") -> "Points":
        return each(sub, self, other)

    def __mul__(self, other: "int | Points") -> "Points":
        return each(mul, self, other)

    def __rmul__(self, other: int) -> "Points":
        return each(mul, other, self)

    def __floordiv__(self, other: "int | Points") -> "Points":
        return each(floordiv, self, other)

    def __mod__(self, other: "int | Points") -> "Points":
        return each(mod, self, other)

    def __rshift__(self, other: int) -> "Points":
        return each(rshift, self, other)

    def __and__(self, other: int) -> "Points":
        return each(and_, self, other)

    def __xor__(self, other: "int | Points") -> "Points":
        return each(xor, self, other)


def each(function: Callable[[int, int], int], left: int | Points, right: int | Points) -> Points:
    """A function of two integers at each point; an integer is the same at all of them."""
    if isinstance(left, int):
        assert isinstance(right, Points)
        return Points(tuple([function(left, value) for value in right.at]))
    if isinstance(right, int):
        return Points(tuple([function(value, right) for value in left.at]))
    return Points(tuple(map(function, left.at, right.at)))
