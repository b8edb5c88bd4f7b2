"""The blocks of a band on the grid, and the order that its author, by `#raster(n)`, or its candidate gives them.

par M i, N j, blocks of 64 x 64, #raster(4)      a group of 4 rows of blocks, column after column, then the next one

    i = 64*(block % 4) + 256*(block / (4*columns))      j = 64*(block / 4 % columns)

What blocks read of a group's rows and of one column is then used again while the L2 has it. The last group has whole
rows too: blocks beyond the last one of the band do nothing.
"""

from collections.abc import Sequence

from texpr.grammar.ast import Attr, Compare, CompareOp, IndexConst, IndexExpr, IndexVar
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import ONE, at_least_zero, ceildiv, const, constant_value, minimum
from texpr.grammar.permissions import raster_of
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.map.digits import Piece, grid_digits, place_on_grid
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.mapped.places import Digit, Scope
from texpr.polyhedral.mapped.tree import Define, Guard, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The digits of each dimension of a band, slowest first; `rows` have some more blocks than their `extent` needs."""

    digits: tuple[tuple[Digit, ...], ...]
    rows: tuple[Digit, ...] = ()
    extent: IndexExpr = ONE

    @property
    def all(self) -> tuple[Digit, ...]:
        """Every digit once."""
        return tuple(digit for of_dim in self.digits for digit in of_dim)


def _rows(attr: Attr) -> int:
    """The argument of `#raster(n)`. Raises E0401 for a number that is not known."""
    value = attr.args[0]
    if not isinstance(value, IndexConst):
        help = "bind the size, or write a number"
        raise fail("E0401", "how many rows of blocks a group has is not known", attr.span, "a free size", help=help)
    return value.value


def raster_grid(
    draft: Draft,
    indices: Sequence[str],
    extents: Sequence[IndexExpr],
    covered: Sequence[int],
    order: Sequence[int],
    span: Span,
    band: int = 1,
) -> Grid:
    """The blocks of a band, the first dimension of `order` fastest, or in groups of so many rows as the author asks, or
    else of `band`."""
    radices = {dim: ceildiv(at_least_zero(extents[dim]), covered[dim]) for dim in order}
    several = [dim for dim in order if radices[dim] != ONE]
    attr = raster_of(draft.kernel)
    asked = band if attr is None else _rows(attr) if draft.target.is_cuda else 1
    if asked == 1 or len(several) < 2:
        found = grid_digits(indices, extents, covered, order, draft.names, draft.target, span)
        return Grid(digits=tuple((digit,) if digit else () for digit in found))
    if attr is not None:
        draft.obeyed.add(attr)
    columns, rows, *rest = several
    group = _group(asked, radices[rows])
    split = (
        (rows, const(group), covered[rows]),
        (columns, radices[columns], covered[columns]),
        (rows, ceildiv(radices[rows], group), covered[rows] * group),
        *((dim, radices[dim], covered[dim]) for dim in rest),
    )
    pieces = [Piece(index=indices[dim], radix=radix, weight=weight) for dim, radix, weight in split]
    placed = place_on_grid(pieces, draft.names, draft.target, span, together=3)
    digits: list[tuple[Digit, ...]] = [() for _ in indices]
    for (dim, _, _), digit in zip(split, placed, strict=True):
        digits[dim] = ((digit,) if digit else ()) + digits[dim]
    known = constant_value(radices[rows])
    if known is not None and known % group == 0:
        return Grid(digits=tuple(digits))
    return Grid(digits=tuple(digits), rows=digits[rows], extent=extents[rows])


def _group(asked: int, rows: IndexExpr) -> int:
    known = constant_value(minimum(const(asked), rows))
    return known or asked


def within_rows(draft: Draft, grid: Grid, body: tuple[Node, ...], span: Span) -> tuple[Node, ...]:
    """The body of a launch for the blocks that the last group has of the band."""
    if not grid.rows:
        return body
    first = draft.names.fresh(f"{grid.rows[0].index}_row")
    inside = Compare(op=CompareOp.LT, left=IndexVar(name=first), right=grid.extent)
    guard = Guard(condition=inside, body=body, padding=True, uniform=Scope.BLOCK, span=span)
    return (Define(index=first, digits=grid.rows), guard)
