"""Scans of columns whose rows begin anywhere in memory: lanes shift what they move between one another.

    par 4093 j { s = 0; seq M i { s += X[i, j]; Y[i, j] = s } }     bf16: 8 columns a thread, 256 a warp

    if i_first + 16 <= M
      copy X_run[q, e] = X[i_first + q, j_first + e] for q < 16, e < 8, 0 <= e < 4093 - j_first  (shifted)

Rows lie a number of elements apart, so that by how much each is shifted is known where text is unrolled. Of a row a
block may store a strip from one sector of memory to another, so that no two blocks write to the same one; what it has
less than its columns the next block has, too:

      lead = Y[i, 0] behind a multiple of 32 bytes
      copy Y[i, j_first + e] = Y_run[q, e] for e < 8, 240*j_block + skip <= j_first + e < 240*j_block + 240 + skip
                                                                     skip = (16 - lead) % 16, 0 where a row begins
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from texpr.grammar.ast import Compare, CompareOp, Condition, Gather, IndexExpr, IndexOp, IndexVar, New, Par
from texpr.grammar.index.expr import (
    ONE,
    ZERO,
    add,
    at_least_zero,
    ceildiv,
    combine,
    conjunction,
    const,
    constant_value,
    minimum,
    multiply,
    subtract,
)
from texpr.grammar.index.interval import Ranges
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.lines import lead_of
from texpr.polyhedral.map.objective import SECTOR_BYTES
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.runs import Registers, Run, zero_of
from texpr.polyhedral.map.scan import Scan
from texpr.polyhedral.map.scan_work import Scans
from texpr.polyhedral.map.vectors import (
    ACCESS_BYTES,
    Element,
    Event,
    Wide,
    address,
    along,
    arrays_of,
    at_places,
    events_of,
    is_run,
    plain_subscripts,
)
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Scanned
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Scope
from texpr.polyhedral.mapped.tree import Guard, Loop, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.walk import subscript_names


def shifted(problem: Problem, nest: Nest, choice: Scanned, one: Scan) -> tuple[Wide, ...]:
    """What lanes shift of what a scan moves: all of it, where a choice has whole warps along columns whose rows do not
    begin alike, else nothing."""
    if choice.along in choice.shared_out or not choice.deal or choice.deal[0][0] != choice.along:
        return ()
    index, (_, lanes), width = choice.along, choice.deal[0], choice.widths.get(choice.along, 1)
    if lanes % problem.target.warp_size or choice.ahead > problem.target.warp_size:  # a lane brings the end of a row
        return ()
    found = shifted_along(problem, nest, one, index)
    return found if found and found[0].whole == width else ()


def shifted_along(problem: Problem, nest: Nest, one: Scan, index: str) -> tuple[Wide, ...]:
    """All that a scan moves along an index of the band, where nothing is wide at addresses that the index tells, and
    rows of all of it have elements of one size, and lie a number of elements apart."""
    events = list(events_of(one.body))
    if None in events:
        return ()
    moving: dict[Element, list[Event]] = {}
    for event in filter(None, events):
        if index in subscript_names(event.element[1]):
            moving.setdefault(event.element, []).append(event)
    arrays, written = arrays_of(problem), {e.element[0] for e in filter(None, events) if e.writes}
    found = [_wide(problem, element, touches, index, one.index) for element, touches in moving.items()]
    alone = all(
        name in arrays and (name not in written or sum(other == name for other, _ in moving) == 1) for name, _ in moving
    )
    whole = [wide for wide in found if wide is not None]
    if not whole or len(whole) < len(found) or not alone or len({wide.width for wide in whole}) > 1:
        return ()
    aligned = along(problem, one.body, index, (*nest.indices, one.index)).vectors(whole[0].width)
    return () if aligned.whole(whole[0].width) else tuple(whole)


def strip_of(problem: Problem, nest: Nest, choice: Scanned, found: Scans) -> int:
    """How many columns a block stores of each row, from one sector to another: all but those of a sector, where its
    lanes are a warp that shifts what it moves, and it looks back; 0 where it stores all, or writes something else."""
    moved = shifted(problem, nest, choice, found.scans[0]) if choice.look_back and len(found.scans) == 1 else ()
    beside = [stmt for stmt in found.stmts if found.at(stmt) is None and not isinstance(stmt, New)]
    arrays = arrays_of(problem)
    written = any(e is None or (e.writes and e.element[0] in arrays) for e in events_of(tuple(beside)))
    if not moved or written or choice.deal[0][1] != problem.target.warp_size:
        return 0
    return choice.deal[0][1] * moved[0].width - SECTOR_BYTES // moved[0].dtype.size_bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows are `left` from one on, and whether a thread has `all` of its own."""

    left: IndexExpr
    all: Condition

    @staticmethod
    def of(one: Scan, first: str, count: int) -> "Rows":
        """Those of a thread that goes over so many iterations from the first on, also where there are fewer."""
        extent, end = one.loop.extent, add(IndexVar(name=first), const(count))
        left = subtract(extent, IndexVar(name=one.index))
        return Rows(left, Compare(op=CompareOp.LE, left=end, right=extent))


@dataclass(frozen=True, slots=True)
class Strip:
    """The strips of a band: each begins at the value of the name `first` and has `count` columns, of which a block
    stores its `own` ones, from one sector on."""

    draft: Draft
    columns: Par
    first: str
    count: int
    own: int

    def number(self, extent: IndexExpr) -> IndexExpr:
        """How many there are."""
        return add(ONE, at_least_zero(ceildiv(subtract(extent, const(self.count)), self.own)))

    def all_columns(self, ranges: Ranges) -> int:
        """The columns of all blocks, where a number says how many there are; else those of one."""
        number = constant_value(self.number(add(ranges[self.columns.index][1], ONE)))
        return self.count if number is None else self.own * (number - 1) + self.count

    @property
    def is_inner(self) -> tuple[Condition, ...]:
        """Whether a block has neither the first columns nor the last ones: where all of these hold."""
        begin, all_ = IndexVar(name=self.first), const(self.count)
        left = subtract(self.columns.extent, begin)
        return Compare(op=CompareOp.LT, left=ZERO, right=begin), Compare(op=CompareOp.LT, left=all_, right=left)

    def ends(self, skip: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
        """Which of its columns a block stores that has neither end of them, where so many are of a sector before."""
        return skip, add(skip, const(self.own))

    def ends_at_edges(self, skip: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
        """The same of any block: the first one begins with the columns, and the last one ends with them."""
        begin, all_ = IndexVar(name=self.first), const(self.count)
        left = subtract(self.columns.extent, begin)
        is_last = minimum(ONE, at_least_zero(subtract(add(all_, ONE), left)))
        end = add(self.ends(skip)[1], multiply(const(self.count - self.own), is_last))
        return minimum(skip, begin), minimum(left, end)

    def stores(self, copies: Sequence[Copy], moved: Sequence[Wide], here: str, rows: "Rows | None") -> tuple[Node, ...]:
        """The stores of what a thread has of a row, from the name `here` on, and where in a sector the row begins;
        `rows`: how many there are from this one on, where that is not asked before."""
        stored = zip(copies, (wide for wide in moved if wide.stores), strict=True)
        return tuple(node for copy, wide in stored for node in self._store(copy, wide, here, rows))

    def _store(self, copy: Copy, wide: Wide, here: str, rows: "Rows | None") -> tuple[Node, ...]:
        """A block that is neither the first nor the last one stores whole chunks, where a thread has all its rows."""
        lead, sector = self.draft.names.fresh("lead"), SECTOR_BYTES // wide.dtype.size_bytes
        node = lead_of(self.draft.problem, lead, wide.element, self.columns.index, SECTOR_BYTES)
        skip = combine(IndexOp.MOD, subtract(const(sector), IndexVar(name=lead)), const(sector))
        own = self.ends(skip)[1]
        some = self._copy(copy, here, *self.ends_at_edges(skip), None if rows is None else rows.left)
        inner = conjunction(self.is_inner if rows is None else (*self.is_inner, rows.all))
        whole = self._copy(copy, here, skip, own, None, together=True)
        whole = replace(whole, id=self.draft.names.fresh(f"{copy.id}_whole"))
        scope = Scope.BLOCK if rows is None else Scope.WARP
        return node, Guard(condition=inner, body=(whole,), orelse=(some,), uniform=scope, span=copy.span)

    def _copy(
        self, copy: Copy, here: str, begin: IndexExpr, end: IndexExpr, rows: IndexExpr | None, *, together: bool = False
    ) -> Copy:
        first, strip = IndexVar(name=here), IndexVar(name=self.first)
        end = end if rows is None else minimum(multiply(const(self.count), rows), end)
        within = Within(
            begin=subtract(add(strip, begin), first), end=subtract(add(strip, end), first), together=together
        )
        return replace(copy, within=within)


def _wide(problem: Problem, element: Element, touches: list[Event], index: str, over: str) -> Wide | None:
    """The access to an element that is read, or that is bound and not read."""
    name, subscripts = element
    buffer, first = problem.kernel.buffer(name), touches[0]
    if any(isinstance(s, Gather) for s in subscripts) or not is_run(problem, element, index):
        return None
    apart, size = address(problem, element).coefficient(over), buffer.dtype.size_bytes
    stored = any(event.writes for event in touches)
    plain = len(touches) == 1 and first.binds and not first.atomic if stored else True
    if not plain or not any(e.surely for e in touches) or not apart or buffer.align < ACCESS_BYTES or size < 2:
        return None
    width = ACCESS_BYTES // size
    if width < 2:
        return None
    return Wide(
        element=element,
        dtype=buffer.dtype,
        width=width,
        loads=not stored,
        stores=stored,
        first=first.stmt,
        shifted=True,
    )


@dataclass(frozen=True, slots=True)
class AllRows:
    """The rows of a thread's tile, so many from the `first` on, of which it has a run of `columns`."""

    draft: Draft
    scan: Scan
    columns: Par
    run: Run
    first: str
    count: int

    def brought(
        self,
        loads: Sequence[Node],
        moved: Sequence[Wide],
        registers: Registers,
        digits: tuple[str, ...],
        each_row: Callable[..., tuple[Node, ...]],
    ) -> tuple[Node, ...]:
        """The loads of all rows at once where there are all of them, else each element that there is, by what makes
        nodes for `each_row`, or others where there is none."""
        copies = [load for load in loads if isinstance(load, Copy)]
        fresh = self.draft.names.fresh
        each = tuple(replace(load, id=fresh(f"{load.id}_each"), access=Access.EACH) for load in copies)
        none = none_of(self.draft, self.run, moved, registers, digits)
        whole, body = self._are_there(moved), tuple(map(self._in_one, copies))
        orelse = each_row(each, orelse=(none,))
        return (Guard(condition=whole, body=body, orelse=orelse, padding=True, span=self.scan.loop.span),)

    def _are_there(self, moved: Iterable[Wide]) -> Condition:
        """Whether there are all of them, and neither of two chunks behind the last of their columns leaves an array
        that is loaded: the same for all lanes."""
        problem, over, end = self.draft.problem, self.scan.index, add(IndexVar(name=self.first), const(self.count))
        parts: list[Condition] = [Compare(op=CompareOp.LE, left=end, right=self.scan.loop.extent)]
        for wide in (one for one in moved if one.loads):
            layout, apart = problem.layouts[wide.element[0]], address(problem, wide.element).coefficient(over) or 0
            row = subtract(end, ONE) if apart > 0 else IndexVar(name=self.first)  # the one behind all others
            column = subtract(self.columns.extent, ONE)
            last = at_places(wide.element[1], {over: row, self.columns.index: column})
            behind = add(offset(layout, plain_subscripts(last)), const(2 * wide.width))
            parts.append(Compare(op=CompareOp.LE, left=behind, right=extent(layout)))
            if (constant_value(self.columns.extent) or 0) < wide.width:
                parts.append(Compare(op=CompareOp.LE, left=const(wide.width), right=self.columns.extent))
        return conjunction(tuple(dict.fromkeys(parts)))

    def _in_one(self, load: Copy) -> Copy:
        begin: IndexExpr = IndexVar(name=self.first)
        places: dict[str, IndexExpr] = {self.scan.index: begin}
        box = load.over
        if self.count > 1:
            ahead = self.draft.names.fresh("row")
            places = {self.scan.index: add(begin, IndexVar(name=ahead))}
            places |= {row.name: IndexVar(name=ahead) for row in self.run.row if isinstance(row, IndexVar)}
            box = ((ahead, const(self.count)), *box)

        def moved(view: View) -> View:
            return replace(view, subscripts=at_places(view.subscripts, places))

        return replace(load, source=moved(load.source), target=moved(load.target), over=box)


def none_of(draft: Draft, run: Run, moved: Sequence[Wide], registers: Registers, digits: tuple[str, ...]) -> Loop:
    """Registers of what would be loaded, where there is nothing."""
    zeros = tuple(zero_of(draft, run, wide, registers[wide.element], digits) for wide in moved if wide.loads)
    return Loop(
        index=run.vector.name, extent=run.vector.radix, body=zeros, digit=run.vector, unroll=True, span=run.span
    )
