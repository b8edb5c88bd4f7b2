"""Views: an element of a buffer for each value of an operator's indices.

A[i, c + e] for e < 8, -c <= e < N - c
"""

from collections.abc import Mapping
from dataclasses import replace

from texpr.grammar.ast import Const, Gather, IndexExpr, Read, Subscript
from texpr.grammar.index.expr import ZERO, substitute
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import DType

Box = tuple[tuple[str, IndexExpr], ...]
"""Indices and their extents: each runs from 0 to its extent - 1, the last one fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An element of a buffer for each value of an operator's indices."""

    buffer: str
    subscripts: tuple[Subscript, ...]
    dtype: DType

    def read(self, span: Span) -> Read:
        """The element as a value."""
        return Read(buffer=self.buffer, subscripts=self.subscripts, dtype=self.dtype, span=span)

    @property
    def plain(self) -> tuple[IndexExpr, ...] | None:
        """The subscripts; None where one is read from data."""
        found = tuple(s for s in self.subscripts if not isinstance(s, Gather))
        return found if len(found) == len(self.subscripts) else None

    def first(self, over: Box) -> "View":
        """The element at 0 of some indices; what is read from data stays."""
        return self.at({name: ZERO for name, _ in over})

    def at(self, values: Mapping[str, IndexExpr]) -> "View":
        """The element at these values of some indices; what is read from data stays."""

        def at_values(subscript: Subscript) -> Subscript:
            if isinstance(subscript, Gather):
                return subscript
            return substitute(subscript, lambda leaf: values.get(leaf.name))

        return replace(self, subscripts=tuple(map(at_values, self.subscripts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """Only the values in [begin, end) of a copy's last index are wanted: no other element is read into the result or
    written. Of a target in registers the others become `other`. A wide load may read and discard the rest of an aligned
    chunk that holds a wanted element, also behind the array's end, unless it is `exact`. Where accesses follow one
    another, `part` numbers them: only that of number 0 may begin before `begin`, and only those from `whole` on may end
    behind `end`; who emits them need not ask the others. `together`: of an access all elements are wanted, or none.
    `unseen`: nothing that is kept depends on `other`, and who emits may leave any value in its place. `inside`: no
    chunk that holds a wanted element leaves its array, which who emits need not ask. `around`: nor does any other, so
    that one of which nothing is wanted may be read, too. `ahead`: all accesses that follow one another are to be under
    way before the first one's elements are used."""

    begin: IndexExpr
    end: IndexExpr
    other: Const | None = None
    exact: bool = False
    part: IndexExpr | None = None
    whole: int = 0
    together: bool = False
    unseen: bool = False
    inside: bool = False
    around: bool = False
    ahead: bool = False
