"""Rows in registers: the loads before the loops over a row, and these loops with registers in place of elements.

    row = 4*row_lane                                      4 threads, 4 neighbours each, two runs: N = 32
    copy X_row[4*part + e] = X[i, row + 16*part + e] for part < 2, e < 4
    …
    for k_1_serial < 2  (unrolled)
      for k_1_vector < 4  (unrolled)
        S1: s_part += exp(X_row[4*k_1_serial + k_1_vector] - m)

The loops over a row give every thread the same iterations, so it reads what it loaded itself. Runs in slots come one
after the other, and the first loop over the row waits for each of them when it gets there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from texpr.grammar.ast import (
    Compare,
    CompareOp,
    Condition,
    Const,
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
from texpr.grammar.records import dataclass
from texpr.grammar.walk import rewrite
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.digits import ThreadDigits, over_ranks, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.held import ROW, Held, RowElement, along_row, named
from texpr.polyhedral.map.quotients import in_turn
from texpr.polyhedral.map.runs import Line, Run, nothing, rounds_inside
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element, at, element_width, is_run
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.candidate import Row
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.sync import Close, GroupKind, WaitGroup
from texpr.polyhedral.mapped.tree import Define, Fresh, Lead, Loop, Node
from texpr.polyhedral.mapped.views import View, Within

MOST_AHEAD = 6  # runs of a thread: more leave no registers for addresses (LayerNorm of 4194 x 32000 in bf16: -.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The digits of a loop's index, by `digits` of which and `begin` a thread has its first iteration, behind the
    definitions in `threads`."""

    band: ThreadDigits
    digits: tuple[Digit, ...]
    begin: IndexExpr = ZERO
    threads: tuple[Define, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTile:
    """`rounds` runs of `width` neighbours of each element, in the registers of that name, in which the threads cover so
    many iterations. The runs are counted from a line of memory where there is an index `lead`. Those that are `packed`
    stay so: a thread has no register for each of their elements. Where the row lies in `slots` of each
    thread, named by registers, these have the run at hand; the `first` loop over it waits for them. What is no element
    of the row is `outside`, if that is a value that changes nothing, else 0. `ahead`: all runs are to be under way
    before what came first is used."""

    registers: Mapping[RowElement, str]
    rounds: int
    width: int
    covered: int
    lead: str | None = None
    asks: bool = False
    packed: frozenset[str] = frozenset()
    slots: Mapping[str, str] = field(default_factory=dict)
    first: str = ""
    outside: Const | None = None
    ahead: bool = False

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

    def shares(self, draft: Draft, band: ThreadDigits) -> "Shares":
        """Who has which runs, by the digits of a loop's only index; slots are told by the number of a thread."""
        if not self.slots:
            return Shares(band=band, digits=band.digits[0], begin=self.begin)
        name = draft.names.fresh("thread")
        own = tuple(
            replace(d, index=name, weight=d.weight // self.width) if d.place in (Place.LANE, Place.WARP) else d
            for d in band.digits[0]
        )
        return Shares(
            band=replace(band, digits=(own,)),
            threads=(Define(index=name, digits=tuple(d for d in reversed(own) if d.index == name)),),
            digits=tuple(d for d in own if d.index != name),
            begin=add(self.begin, multiply(const(self.width), IndexVar(name=name))),
        )

    def place(self, serial: tuple[Digit, ...], neighbour: IndexExpr) -> IndexExpr:
        """Where a neighbour of the run at hand is in registers."""
        part = IndexVar(name=serial[0].name) if serial and not self.slots else ZERO
        return add(multiply(const(self.width), part), neighbour)

    def at_hand(
        self, draft: Draft, loop: Seq | Par, run: Run | None, serial: tuple[Digit, ...], shares: "Shares"
    ) -> tuple[Node, ...]:
        """What brings the run at hand from slots to registers."""
        if not shares.threads or run is None:
            return ()
        first, part = IndexVar(name=run.first), IndexVar(name=serial[0].name) if serial else ZERO
        fresh, found = draft.names.fresh, list[Node]()
        thread = IndexVar(name=shares.threads[0].index)
        for name in self.registers.values():
            each, dtype = fresh(f"{loop.index}_element"), draft.buffers[name].dtype
            own = (part, thread, IndexVar(name=each))
            found.append(Fresh(buffer=name))
            found.append(
                Copy(
                    id=fresh(f"{loop.index}_at_hand"),
                    source=View(buffer=self.slots[name], subscripts=own, dtype=dtype),
                    target=View(buffer=name, subscripts=(IndexVar(name=each),), dtype=dtype),
                    over=((each, const(self.width)),),
                    within=self._within(draft, loop, first, part if serial else None),
                    access=Access.ALIGNED,
                    digits=shares.band.threads,
                    span=loop.span,
                )
            )
        return tuple(found)

    def arrived(self, loop: Seq | Par) -> tuple[Node, ...]:
        """What waits for a thread's runs, in the turn of each of them: an empty group in each turn makes them as many
        as have to be over before the next one."""
        if not self.slots or loop.index != self.first:
            return ()
        kind = GroupKind.CP_ASYNC
        return WaitGroup(kind=kind, behind=self.rounds - 1), *((Close(kind=kind),) if self.rounds > 1 else ())

    def _within(self, draft: Draft, loop: Seq | Par, first: IndexExpr, part: IndexExpr | None) -> Within | None:
        """Which elements of a run of slots there are."""
        known = constant_value(loop.extent)
        if self.lead is None and known is not None and known % self.covered == 0:
            return None
        return Within(
            begin=ZERO if self.lead is None else subtract(ZERO, first),
            end=subtract(loop.extent, first),
            other=self.outside or nothing(draft.buffers[next(iter(self.registers.values()))].dtype, loop.span),
            part=part,
            whole=rounds_inside(draft.kernel, loop.extent, self.covered),
        )

    def through(
        self, stmts: tuple[Stmt, ...], index: str, serial: tuple[Digit, ...], run: Run | None
    ) -> tuple[Stmt, ...]:
        """The statements of a loop over the row, which reads registers: those of the digit at hand and of its run."""
        neighbour = IndexVar(name=run.vector.name) if run is not None else ZERO
        place = (self.place(serial, neighbour),)

        def change(node: Tree) -> Tree:
            if not isinstance(node, Read):
                return node
            name = self.registers.get(along_row((node.buffer, node.subscripts), index))
            return node if name is None else replace(node, buffer=name, subscripts=place)

        return tuple(rewrite(stmt, change) for stmt in stmts)


def make_tile(
    draft: Draft,
    row: Row,
    held: Held,
    width: int,
    threads: int = 1,
    *,
    bound: bool = False,
    wrote: bool = False,
    outside: Const | None = None,
) -> RowTile:
    """The registers of a row, in the draft, or the slots of so many threads; `bound`: those of a thread are as few as
    several blocks leave it. It does well then with one run at a time, which a condition before each of them keeps apart
    (cross entropy of 8192 x 32000 in f32 takes 54 registers so, else 72, and runs at .99, not .86); but for narrow rows
    that no loop `wrote`. `outside`: what changes nothing that the loops make of the row's only array; not of
    rows that are asked for run by run and written (softmax of 257 x 100003 in f32 runs at .88 so, else .865)."""
    registers, slots = dict[RowElement, str](), dict[str, str]()
    for element in held.elements:
        buffer = draft.kernel.buffer(element[0])
        reason = f"a thread's part of a row of {buffer.name}, read from memory once"
        if row.slots:
            shape = (const(held.rounds), const(threads), const(width))
            own = draft.local(f"{buffer.name}_row", buffer.dtype, Memory.SHARED, row_major(shape), reason)
            reason = f"the run at hand of a row of {buffer.name}"
        layout = row_major((const(width if row.slots else held.rounds * width),))
        word = "now" if row.slots else "row"
        name = registers[element] = draft.local(f"{buffer.name}_{word}", buffer.dtype, Memory.REG, layout, reason)
        slots |= {name: own} if row.slots else {}
    lead = draft.names.fresh("lead") if row.line else None
    narrow = {n for n in registers.values() if draft.buffers[n].dtype.size_bytes < 4} if held.rounds * width > 1 else ()
    asks = bound and (wrote or not narrow)
    told = asks and not row.slots and (wrote or not row.line)
    return RowTile(
        registers=registers,
        rounds=held.rounds,
        width=width,
        covered=held.covered,
        lead=lead,
        asks=asks,
        packed=frozenset(narrow if bound and not row.line and not row.slots else ()),
        slots=slots,
        first=row.indices[0],
        outside=outside if len(registers) == 1 and width > 1 and not told else None,
        ahead=len(row.indices) > 1 and not row.slots and held.rounds * len(held.elements) <= MOST_AHEAD,
    )


def load_row(draft: Draft, tile: RowTile, row: Row, loop: Seq | Par, threads: int, ranks: int = 1) -> tuple[Node, ...]:
    """The loads of all elements of a row, before the first loop over it: those of one array follow one another, and
    none waits for another one."""
    index = draft.names.fresh("row")
    band = thread_digits((index,), ((0, threads),), draft.names, draft.target.warp_size, {index: tile.width})
    band = over_ranks(band, ranks, draft.names)
    shares = tile.shares(draft, band)
    draft.digits += shares.band.all
    first = Define(index=index, digits=tuple(reversed(shares.digits)), offset=shares.begin)
    fresh: tuple[Node, ...] = tuple(Fresh(buffer=n, packed=n in tile.packed) for n in tile.registers.values())
    part = draft.names.fresh(f"{index}_part") if tile.slots else ""
    loads: tuple[Node, ...] = tuple(_load(draft, tile, e, index, shares, loop, part) for e in tile.registers)
    if tile.slots:
        fresh = tuple(Fresh(buffer=name) for name in tile.slots.values())
        loads = (*loads, Close(kind=GroupKind.CP_ASYNC))
        if tile.rounds > 1:
            loads = (Loop(index=part, extent=const(tile.rounds), body=loads, unroll=True, span=loop.span),)
    if tile.lead is None:
        return (*fresh, *shares.threads, first, *loads)
    name, subscripts = next(iter(tile.registers))
    dtype = draft.kernel.buffer(name).dtype
    start = View(buffer=name, subscripts=at(subscripts, ROW.name, ZERO), dtype=dtype)
    return (*fresh, Lead(index=tile.lead, of=start, bytes=row.line), *shares.threads, first, *loads)


def _load(
    draft: Draft, tile: RowTile, element: RowElement, index: str, shares: Shares, loop: Seq | Par, of: str
) -> Copy:
    """The loads of an element, as wide as its layout lets them be; into slots those `of` one part, by its name. What
    lies before a line's row and behind it is 0, or what is outside, so that who does not ask where the row ends has
    something to compute with."""
    fresh, dtype = draft.names.fresh, draft.kernel.buffer(element[0]).dtype
    element_here = named(element, index)
    width = min(tile.width, element_width(draft.problem, element_here, index, tile.origin(index)))
    chunk = ACCESS_BYTES // dtype.size_bytes
    funnel = width < chunk <= tile.width and is_run(draft.problem, element_here, index)
    width = chunk if funnel else width
    part, access, each = of or fresh(f"{index}_part"), fresh(f"{index}_access"), fresh(f"{index}_element")
    several = {part: (tile.rounds, tile.width), access: (tile.width // width, width)}
    over = {name: count for name, (count, _) in several.items() if count > 1}
    held = _total((IndexVar(name=name), several[name][1]) for name in over)
    covered = tile.covered
    from_first = _total((IndexVar(name=name), covered if name == part else width) for name in over)
    start, here = add(IndexVar(name=index), from_first), IndexVar(name=each)
    turned = in_turn(element[1], ROW.name, start, here)
    array = View(buffer=element[0], subscripts=at(turned, ROW.name, add(start, here)), dtype=dtype)
    known = constant_value(loop.extent)
    none = tile.outside or nothing(dtype, loop.span)
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
            unseen=bool(tile.slots),  # what comes from there to registers has it again
            ahead=tile.ahead,
        )
    name = tile.registers[element]
    target = View(buffer=name, subscripts=(add(held, here),), dtype=dtype)
    if tile.slots:
        number, thread = IndexVar(name=part) if part in over else ZERO, IndexVar(name=shares.threads[0].index)
        target = View(buffer=tile.slots[name], subscripts=(number, thread, here), dtype=dtype)
    return Copy(
        id=fresh(f"{index}_load"),
        source=array,
        target=target,
        over=(
            *((name, const(count)) for name, count in over.items() if name != of),
            (each, const(width)),
        ),
        within=within,
        access=Access.FUNNEL if funnel else Access.ALIGNED if width * dtype.size_bytes > 1 else Access.EACH,
        completion=Completion.CP_ASYNC if tile.slots else Completion.NOW,
        digits=shares.band.threads,
        span=loop.span,
    )


def _total(terms: Iterable[tuple[IndexExpr, int]]) -> IndexExpr:
    total: IndexExpr = ZERO
    for value, factor in terms:
        total = add(total, multiply(const(factor), value))
    return total
