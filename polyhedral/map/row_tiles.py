"""Rows in registers: the loads before the loops over a row, and these loops with registers in place of elements.

    row = 4*row_lane                                      4 threads, 4 neighbours each, two runs: N = 32
    copy X_row[4*part + e] = X[i, row + 16*part + e] for part < 2, e < 4
    …
    for k_1_serial < 2  (unrolled)
      for k_1_vector < 4  (unrolled)
        S1: s_part += exp(X_row[4*k_1_serial + k_1_vector] - m)

The loops over a row give every thread the same iterations, so it reads what it loaded itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from texpr.grammar.ast import (
    Compare,
    CompareOp,
    Condition,
    IndexExpr,
    IndexVar,
    Kernel,
    Or,
    Par,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.ast import Node as Tree
from texpr.grammar.index.expr import ZERO, add, const, constant_value, multiply, subtract
from texpr.grammar.index.linear import linear
from texpr.grammar.walk import rewrite
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.digits import over_ranks, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.held import ROW, Held, RowElement, along_row, named
from texpr.polyhedral.map.quotients import in_turn
from texpr.polyhedral.map.runs import Line, Run, nothing, rounds_inside
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element, at, element_width, is_run
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.candidate import Row
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Digit, Memory
from texpr.polyhedral.mapped.tree import Define, Fresh, Lead, Node
from texpr.polyhedral.mapped.views import View, Within


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTile:
    """`rounds` runs of `width` neighbours of each element, in the registers of that name, in which the threads cover so
    many iterations. The runs are counted from a line of memory where there is an index `lead`. Those that are `packed`
    stay so: a thread has no register for each of their elements."""

    registers: Mapping[RowElement, str]
    rounds: int
    width: int
    covered: int
    lead: str | None = None
    asks: bool = False
    packed: frozenset[str] = frozenset()

    @property
    def begin(self) -> IndexExpr:
        """Where the first run begins."""
        return ZERO if self.lead is None else multiply(const(-1), IndexVar(name=self.lead))

    def origin(self, index: str) -> Element | None:
        """The element that is aligned where runs are counted from, as a loop over the row names it."""
        return None if self.lead is None else self.elements(index)[0]

    def line(self, serial: tuple[Digit, ...]) -> Line | None:
        """Of a run, by the digit that numbers those of a thread."""
        if self.lead is None:
            return None
        return Line(lead=self.lead, part=serial[0].name if serial else None, covered=self.covered)

    def unless_whole(
        self, kernel: Kernel, extent: IndexExpr, serial: tuple[Digit, ...], condition: Condition
    ) -> Condition:
        """The condition that there is an iteration, not asked in runs of a thread that surely lie in the row, but where
        each of them is one by itself."""
        whole = rounds_inside(kernel, extent, self.covered) if serial and not self.asks else 0
        if not whole:
            return condition
        return Or(parts=(Compare(op=CompareOp.LT, left=IndexVar(name=serial[0].name), right=const(whole)), condition))

    def elements(self, index: str) -> tuple[Element, ...]:
        """What is in registers, as a loop over the row names it."""
        return tuple(named(element, index) for element in self.registers)

    def through(
        self, stmts: tuple[Stmt, ...], index: str, serial: tuple[Digit, ...], run: Run | None
    ) -> tuple[Stmt, ...]:
        """The statements of a loop over the row, which reads registers: those of the digit at hand and of its run."""
        part = IndexVar(name=serial[0].name) if serial else ZERO
        neighbour = IndexVar(name=run.vector.name) if run is not None else ZERO
        place = (add(multiply(const(self.width), part), neighbour),)

        def change(node: Tree) -> Tree:
            if not isinstance(node, Read):
                return node
            name = self.registers.get(along_row((node.buffer, node.subscripts), index))
            return node if name is None else replace(node, buffer=name, subscripts=place)

        return tuple(rewrite(stmt, change) for stmt in stmts)


def make_tile(draft: Draft, row: Row, held: Held, width: int, *, bound: bool = False, wrote: bool = False) -> RowTile:
    """The registers of a row, in the draft; `bound`: those of a thread are as few as several blocks leave it. It does
    well then with one run at a time, which a condition before each of them keeps apart (cross entropy of 8192 x 32000
    in f32 takes 54 registers so, else 72, and runs at .99, not .86); but for narrow rows that no loop `wrote`."""
    registers: dict[RowElement, str] = {}
    for element in held.elements:
        buffer = draft.kernel.buffer(element[0])
        reason = f"a thread's part of a row of {buffer.name}, read from memory once"
        layout = row_major((const(held.rounds * width),))
        registers[element] = draft.local(f"{buffer.name}_row", buffer.dtype, Memory.REG, layout, reason)
    lead = draft.names.fresh("lead") if row.line else None
    narrow = {n for n in registers.values() if draft.buffers[n].dtype.size_bytes < 4} if held.rounds * width > 1 else ()
    return RowTile(
        registers=registers,
        rounds=held.rounds,
        width=width,
        covered=held.covered,
        lead=lead,
        asks=bound and (wrote or not narrow),
        packed=frozenset(narrow if bound and not row.line else ()),
    )


def load_row(draft: Draft, tile: RowTile, row: Row, loop: Seq | Par, threads: int, ranks: int = 1) -> tuple[Node, ...]:
    """The loads of all elements of a row, before the first loop over it: those of one array follow one another, and
    none waits for another one."""
    index = draft.names.fresh("row")
    band = thread_digits((index,), ((0, threads),), draft.names, draft.target.warp_size, {index: tile.width})
    band = over_ranks(band, ranks, draft.names)
    draft.digits += band.all
    first = Define(index=index, digits=tuple(reversed(band.all)), offset=tile.begin)
    fresh = (Fresh(buffer=name, packed=name in tile.packed) for name in tile.registers.values())
    loads = (_load(draft, tile, element, index, band.threads, loop) for element in tile.registers)
    if tile.lead is None:
        return (*fresh, first, *loads)
    name, subscripts = next(iter(tile.registers))
    dtype = draft.kernel.buffer(name).dtype
    start = View(buffer=name, subscripts=at(subscripts, ROW.name, ZERO), dtype=dtype)
    return (*fresh, Lead(index=tile.lead, of=start, bytes=row.line), first, *loads)


def _load(
    draft: Draft, tile: RowTile, element: RowElement, index: str, digits: tuple[str, ...], loop: Seq | Par
) -> Copy:
    """The loads of an element, as wide as its layout lets them be. What lies before a line's row and behind it is 0, so
    that who does not ask where the row ends computes with something."""
    fresh, dtype = draft.names.fresh, draft.kernel.buffer(element[0]).dtype
    element_here = named(element, index)
    width = min(tile.width, element_width(draft.problem, element_here, index, tile.origin(index)))
    chunk = ACCESS_BYTES // dtype.size_bytes
    funnel = width < chunk <= tile.width and is_run(draft.problem, element_here, index)
    width = chunk if funnel else width
    part, access, each = (fresh(f"{index}_{word}") for word in ("part", "access", "element"))
    several = {part: (tile.rounds, tile.width), access: (tile.width // width, width)}
    over = {name: count for name, (count, _) in several.items() if count > 1}
    held = _total((IndexVar(name=name), several[name][1]) for name in over)
    covered = tile.covered
    from_first = _total((IndexVar(name=name), covered if name == part else width) for name in over)
    start, here = add(IndexVar(name=index), from_first), IndexVar(name=each)
    turned = in_turn(element[1], ROW.name, start, here)
    array = View(buffer=element[0], subscripts=at(turned, ROW.name, add(start, here)), dtype=dtype)
    known = constant_value(loop.extent)
    none = nothing(dtype, loop.span)
    within = None
    if tile.lead is not None or known is None or known % covered:
        own = tile.lead is None and not funnel  # no access has a chunk that another one has, too
        together = linear(loop.extent).is_multiple(width, draft.problem.divisors)
        within = Within(
            begin=ZERO if tile.lead is None else subtract(ZERO, start),
            end=subtract(loop.extent, start),
            other=none,
            exact=own and not together,
            part=IndexVar(name=part) if part in over else None,
            whole=rounds_inside(draft.kernel, loop.extent, covered),
            together=own and together,
        )
    return Copy(
        id=fresh(f"{index}_load"),
        source=array,
        target=View(buffer=tile.registers[element], subscripts=(add(held, here),), dtype=dtype),
        over=(*((name, const(count)) for name, count in over.items()), (each, const(width))),
        within=within,
        access=Access.FUNNEL if funnel else Access.ALIGNED if width * dtype.size_bytes > 1 else Access.EACH,
        digits=digits,
        span=loop.span,
    )


def _total(terms: Iterable[tuple[IndexExpr, int]]) -> IndexExpr:
    total: IndexExpr = ZERO
    for value, factor in terms:
        total = add(total, multiply(const(factor), value))
    return total
