"""Blocks that share the products of a tile: each leaves its sums in memory, and the last one to be counted adds them.

    copy C_blocks[i_tile, j_tile, part, …, thread, e] = C_sum[…]          neighbours of a thread beside those of others
    the last of 2 blocks:
      for each_part < 2
        copy C_more[…] = C_blocks[i_tile, j_tile, each_part, …, thread, e]
        C_total[…] += C_more[…]
      what comes at the end

The order of the parts is fixed, so bits do not depend on timing; long sums are added in f64.
"""

from collections.abc import Callable

from texpr.grammar.ast import AccOp, Accumulate, Bind, IndexExpr, IndexVar, Read
from texpr.grammar.index.expr import ONE, add, const, multiply
from texpr.grammar.records import dataclass
from texpr.grammar.types import F64
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.brought import Block, zero
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.long_sums import as_type
from texpr.polyhedral.map.meeting import by_the_last, left_in_memory
from texpr.polyhedral.map.vectors import ACCESS_BYTES
from texpr.polyhedral.mapped.access import Access, Cache
from texpr.polyhedral.mapped.operators import Copy, Elementwise, Origin
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.tree import Define, Fresh, Loop, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.names import stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Which `part` of the products a block has, by name, and which tile, by its number along each digit of the grid."""

    part: str
    numbers: tuple[Define, ...]

    @property
    def tile(self) -> tuple[IndexExpr, ...]:
        return tuple(IndexVar(name=number.index) for number in self.numbers)

    @property
    def digits(self) -> tuple[Digit, ...]:
        return tuple(digit for number in self.numbers for digit in number.digits)

    @property
    def tiles(self) -> tuple[IndexExpr, ...]:
        """How many of them there are."""
        return tuple(digit.radix for digit in self.digits)


def met(
    block: Block, split: Split, sums: str, shape: tuple[int, int], end: Callable[[str], tuple[Node, ...]]
) -> tuple[tuple[Node, ...], Order]:
    """The sums of all blocks that share a tile, added by the last one, which does what comes at the `end` with them;
    and the order between blocks."""
    draft, update, span = block.draft, block.one.update, block.span
    fresh, parts = draft.names.fresh, const(block.choice.parts)
    dtype, (rows, columns) = draft.buffers[sums].dtype, shape
    width = min(columns, ACCESS_BYTES // dtype.size_bytes)
    thread = fresh("thread")
    band = thread_digits((thread,), ((0, block.choice.threads),), draft.names, draft.target.warp_size)
    draft.digits += band.all
    digits = tuple(digit.name for digit in band.all)
    space = block.local(
        f"{update.buffer}_blocks",
        dtype,
        Memory.GLOBAL,
        row_major((*split.tiles, parts, const(rows * columns // width), const(block.choice.threads), const(width))),
        f"the sums of {block.choice.parts} blocks for each tile; the last one adds them",
    )
    row, run, e = (fresh(f"{stem(update.buffer)}_{word}") for word in ("row", "run", "element"))
    runs = columns // width

    def there(part: str) -> View:
        number = add(multiply(const(runs), IndexVar(name=row)), IndexVar(name=run))
        at = (*split.tile, IndexVar(name=part), number, IndexVar(name=thread), IndexVar(name=e))
        return View(buffer=space, subscripts=at, dtype=dtype)

    column = add(multiply(const(width), IndexVar(name=run)), IndexVar(name=e))
    inner = ((run, const(runs)), (e, const(width)))
    put = Copy(
        id=fresh(f"{update.id}_block"),
        source=View(buffer=sums, subscripts=(IndexVar(name=row), column), dtype=dtype),
        target=there(split.part),
        over=((row, const(rows)), *inner),
        access=Access.ALIGNED,
        digits=digits,
        span=span,
    )
    wide = F64 if update.id in draft.long else dtype
    total = block.registers(f"{update.buffer}_total", wide, shape, "the sums of all blocks")
    more = block.registers(f"{update.buffer}_more", dtype, (columns,), "sums of another block")
    own = fresh("own"), fresh("own")
    every = tuple((name, const(n)) for name, n in zip(own, shape, strict=True))
    start = Bind(
        id=fresh(f"{update.id}_total"),
        buffer=total,
        subscripts=tuple(IndexVar(name=name) for name in own),
        value=zero(wide),
        span=span,
    )
    part = fresh("each_part")
    get = Copy(
        id=fresh(f"{update.id}_parts"),
        source=there(part),
        target=View(buffer=more, subscripts=(column,), dtype=dtype),
        over=inner,
        access=Access.ALIGNED,
        cache=Cache.BYPASS,
        digits=digits,
        span=span,
    )
    value = Read(buffer=more, subscripts=(IndexVar(name=own[1]),), dtype=dtype, span=span)
    added = Accumulate(
        id=fresh(f"{update.id}_added"),
        op=AccOp.ADD,
        buffer=total,
        subscripts=(IndexVar(name=row), IndexVar(name=own[1])),
        value=as_type(value, wide),
        span=span,
    )
    adds = Elementwise(id=added.id, leaves=(added,), over=every[1:], origin=Origin.COMBINE, digits=digits)
    digit = Digit(name=row, index=row, weight=1, radix=const(rows), stride=ONE, place=Place.SERIAL)
    draft.digits.append(digit)
    each_row = Loop(index=row, extent=const(rows), body=(get, adds), digit=digit, unroll=True, span=span)
    order = left_in_memory(put.id, get.id, space, span)
    last = by_the_last(
        draft,
        split.tile,
        split.tiles,
        parts,
        (
            Fresh(buffer=total),
            Fresh(buffer=more),
            Elementwise(id=start.id, leaves=(start,), over=every, digits=digits),
            Loop(index=part, extent=parts, body=(each_row,), unroll_by=1, span=span),
            *end(total),
        ),
        (order,),
        span,
    )
    return (Define(index=thread, digits=tuple(reversed(band.digits[0]))), put, last), order
