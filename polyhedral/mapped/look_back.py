"""The operator that folds on over blocks, which are numbered as they begin.

S9: b = Sum of b and of t of all blocks before part, one for each j
"""

from dataclasses import field

from texpr.grammar.ast import Condition, IndexExpr, Read, Subscript
from texpr.grammar.index.expr import ZERO, names
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import DType
from texpr.polyhedral.mapped.views import Box, View
from texpr.polyhedral.walk import subscript_names


@dataclass(frozen=True, slots=True, kw_only=True)
class LookBack:
    """The `target` of part 0 stays; of any other `part` it becomes that of part 0 combined with the `value`s of all
    parts before, from left to right, in every thread. The blocks of one place `at` have a part each, and a lower one
    begins earlier: the launch numbers its blocks. All threads of a block come here together, once; of those that have
    one element, with one value, one `holds` it, and `element` numbers the first of a thread's among the `elements` of
    the block. Words `flags[at, part]` tell what is in `space`, for other blocks, and `hand`, for one's own; it has room
    for a value more where `one_asks`: one warp for all how far the blocks before are. Where values are of a type `own`
    that is half as wide, and lanes side by side have elements side by side, parts are told as such."""

    id: str
    monoid: str
    value: View
    target: View
    over: Box
    at: tuple[IndexExpr, ...]
    part: IndexExpr
    element: IndexExpr
    elements: int
    holds: Condition
    flags: str
    space: str
    hand: str
    one_asks: bool = False
    own: DType | None = None
    span: Span = field(default=NO_SPAN, compare=False, repr=False)

    @property
    def digits(self) -> tuple[str, ...]:
        return ()

    @property
    def unused(self) -> None:
        """Every thread takes part."""
        return None

    @property
    def names(self) -> frozenset[str]:
        own = subscript_names((*self.value.subscripts, *self.target.subscripts, *self.at, self.part, self.element))
        return own | names(self.holds)

    @property
    def reads(self) -> tuple[Read, ...]:
        return (self.value.read(self.span), self.target.read(self.span))

    @property
    def writes(self) -> tuple[tuple[str, tuple[Subscript, ...]], ...]:
        return ((self.target.buffer, self.target.subscripts), (self.space, (ZERO,)), (self.hand, (ZERO,)))
