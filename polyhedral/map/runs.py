"""Runs: neighbouring iterations of an index that one thread takes, with its wide accesses around them.

    par N j { Y[j] = a * X[j] }          4 iterations, N any number

    j_first = 1024*j_block + 128*j_warp + 4*j_lane
    if j_first < N
      copy X_run[e] = X[j_first + e] for e < 4, 0 <= e < N - j_first, else 0, no other byte  (now, aligned)
      for j_vector < 4
        j = j_vector + j_first
        if j < N
          S0: Y_run[j_vector] = a * X_run[j_vector]
        else
          S0_none: Y_run[j_vector] = 0
      copy Y[j_first + e] = Y_run[e] for e < 4, 0 <= e < N - j_first  (now, aligned)

Where the extent is a multiple of the run, nothing is cut inside it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from texpr.grammar.ast import (
    Accumulate,
    And,
    Bind,
    Compare,
    CompareOp,
    Condition,
    Const,
    Gather,
    IndexExpr,
    IndexVar,
    Kernel,
    Or,
    Read,
    Subscript,
)
from texpr.grammar.index.expr import ONE, ZERO, add, conjunction, const, multiply, subtract
from texpr.grammar.index.interval import least
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import F32, DType
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.quotients import in_turn, quotients_of_first
from texpr.polyhedral.map.rounded_stores import rounded_stores, unrounded
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element, Vectors, Wide, at
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy, Generic, Origin
from texpr.polyhedral.mapped.places import Digit, Memory, Place
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.mapped.walks import every_node, map_nodes, of_kind
from texpr.polyhedral.names import stem
from texpr.polyhedral.walk import (
    read_accesses,
    rewrite_leaf,
    rewrite_read,
    subscript_names,
    subscript_reads,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Where runs are counted from a line of memory: the index `lead` says how many elements it lies before the first
    iteration. `part` numbers the runs of a thread, where it has several, and those of all threads cover so many
    iterations: only that of number 0 may begin before the first one."""

    lead: str
    part: str | None = None
    covered: int = 0


def rounds_inside(kernel: Kernel, extent: IndexExpr, covered: int, beyond: int = 0) -> int:
    """How many runs of each thread surely lie within the iterations, and so many elements `beyond` them too, where all
    threads cover so many at a time."""
    return max(0, least(extent, size_ranges(kernel)) - beyond) // covered if covered else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`count` iterations of `index` from the value of `first` on, `vector` the digit of the one at hand. `tiled` has
    the elements that lie in tiles of shared memory, each by the place of its first iteration; `phased`: in chunks."""

    index: str
    extent: IndexExpr
    first: str
    vector: Digit
    count: int
    span: Span
    tiled: Mapping[Element, View] = field(default_factory=dict)
    line: Line | None = None
    row: tuple[IndexExpr, ...] = ()
    phased: bool = False


def make_run(draft: Draft, index: str, extent: IndexExpr, count: int, span: Span, line: Line | None = None) -> Run:
    """A run with names of its own, and its digit in the draft."""
    name = draft.names.fresh(f"{stem(index)}_vector")
    digit = Digit(name=name, index=index, weight=1, radix=const(count), stride=ONE, place=Place.VECTOR)
    first = draft.names.fresh(f"{stem(index)}_first")
    draft.digits.append(digit)
    return Run(index=index, extent=extent, first=first, vector=digit, count=count, span=span, line=line)


def in_run(
    draft: Draft,
    run: Run,
    found: Vectors,
    body: tuple[Node, ...],
    digits: tuple[str, ...],
    spare: Collection[str] = (),
) -> tuple[Node, ...]:
    """The body for every iteration of a run, what it moves of arrays (`found`) before and after. `digits` are those of
    the threads that share out the runs; `spare` as in `each_of`."""
    moved = found.wide
    late = rounded_stores([wide for wide in moved if wide.element not in run.tiled], body)
    registers = registers_of(draft, run, moved, late=late)
    body = unrounded(body, late)
    loop = each_of(draft, run, moved, registers, body, digits, spare)
    copy = Copies(draft, run, digits, unseen=not spare)
    return (
        *(Fresh(buffer=name) for name in registers.values()),
        *loads_of(copy, moved, registers),
        loop,
        *stores_of(copy, moved, registers),
    )


Registers = Mapping[Element, str]
"""The registers in which a run has elements of arrays, by name."""


def registers_of(
    draft: Draft, run: Run, moved: Sequence[Wide], rows: Sequence[int] = (), late: Collection[Element] = ()
) -> dict[Element, str]:
    """Registers for what runs move, for so many rows of them; of f32 for what is rounded `late`, as it is stored."""
    layout = row_major((*map(const, rows), const(run.count)))
    return {w.element: _register(draft, run, w, layout, F32 if w.element in late else w.dtype) for w in moved}


def loads_of(copy: "Copies", moved: Sequence[Wide], registers: Registers) -> tuple[Node, ...]:
    """What is loaded before a run."""
    return (
        *(copy.load(wide, registers[wide.element]) for wide in moved if wide.loads and not wide.funnel),
        *_at_any_address(copy, tuple(copy.load(w, registers[w.element]) for w in moved if w.funnel), moved),
    )


def stores_of(copy: "Copies", moved: Sequence[Wide], registers: Registers) -> tuple[Copy, ...]:
    """What is stored behind it."""
    return tuple(copy.store(wide, registers[wide.element]) for wide in moved if wide.stores)


def each_of(
    draft: Draft,
    run: Run,
    moved: Sequence[Wide],
    registers: Registers,
    body: tuple[Node, ...],
    digits: tuple[str, ...],
    spare: Collection[str] = (),
    seen: Collection[str] = (),
) -> Loop:
    """The body for every iteration of a run, on registers in place of what is moved. What is no iteration may write
    `spare` registers, for nobody sees what it leaves there; others read those that are `seen`, where they lie alike."""
    inside = _inside(draft, run)
    here = (*run.row, IndexVar(name=run.vector.name))
    body = through(body, {element: (name, here) for element, name in registers.items()})
    body = body if run.line else quotients_of_first(body, run.index, run.first, run.count)
    if inside is not None and not is_harmless(draft, run, body, {*registers.values(), *spare}, seen):
        unwritten = [wide for wide in moved if wide.stores and not wide.loads]
        orelse = tuple(zero_of(draft, run, wide, registers[wide.element], digits) for wide in unwritten)
        body = (Guard(condition=inside, body=body, orelse=orelse, padding=True, span=run.span),)
    each = Define(index=run.index, digits=(run.vector,), offset=IndexVar(name=run.first))
    return Loop(
        index=run.vector.name,
        extent=run.vector.radix,
        body=(each, *body),
        digit=run.vector,
        unroll=True,
        span=run.span,
    )


def _at_any_address(copy: "Copies", loads: tuple[Copy, ...], moved: Sequence[Wide]) -> tuple[Node, ...]:
    """Loads at any address, of which nothing is asked where a run is whole and no chunk of it leaves its array: to ask
    of each chunk what it has took as many instructions as all else. The few others are made one by one: chunks of them
    that ask took registers of every thread (LayerNorm of 32749 x 4093 in bf16 ran at .88 of a copy so, at .92 now)."""
    whole = copy.whole([wide for wide in moved if wide.funnel]) if loads else None
    if whole is None:
        return loads
    fresh = copy.draft.names.fresh
    plain = tuple(replace(load, id=fresh(f"{load.id}_whole"), within=None) for load in loads)
    each = tuple(replace(load, access=Access.EACH) for load in loads)
    return (Guard(condition=whole, body=plain, orelse=each, padding=True, span=copy.run.span),)


def chunks_inside(problem: Problem, wide: Wide, last: tuple[Subscript, ...]) -> Condition | None:
    """Whether both chunks of an access at any address, which begins at these subscripts, lie in its array; None where
    that is not known of an address. Of rows that are gathered none is asked: in bf16 that took longer (.91 of a copy,
    .93 where each chunk asks)."""
    name = wide.element[0]
    plain = [s for s in last if not isinstance(s, Gather)]
    if len(plain) < len(last) or problem.kernel.buffer(name).align < ACCESS_BYTES:
        return None
    end = add(offset(problem.layouts[name], plain), const(2 * wide.width - 1))
    return Compare(op=CompareOp.LE, left=end, right=extent(problem.layouts[name]))


def _inside(draft: Draft, run: Run) -> Condition | None:
    """Which iterations of a run there are, None where all."""
    index = IndexVar(name=run.index)
    after = Compare(op=CompareOp.LT, left=index, right=run.extent)
    if run.line is None:
        return None if linear(run.extent).is_multiple(run.count, draft.problem.divisors) else after
    return And(parts=(_begun(run, index), _not_over(draft, run, after)))


def _begun(run: Run, index: IndexExpr) -> Condition:
    """Whether an index is not before the first iteration."""
    begun = Compare(op=CompareOp.LE, left=ZERO, right=index)
    if run.line is None or run.line.part is None:
        return begun
    return Or(parts=(Compare(op=CompareOp.LT, left=ZERO, right=IndexVar(name=run.line.part)), begun))


def _not_over(draft: Draft, run: Run, condition: Condition, beyond: int = 0) -> Condition:
    """A condition that asks for no more than that the run, and so many elements beyond it, end with the iterations."""
    part, whole = run.line.part if run.line else None, _whole_runs(draft, run, beyond)
    if part is None or not whole:
        return condition
    return Or(parts=(Compare(op=CompareOp.LT, left=IndexVar(name=part), right=const(whole)), condition))


def _whole_runs(draft: Draft, run: Run, beyond: int = 0) -> int:
    """How many runs of a thread, counted from a line, end with the iterations, and so many elements beyond them too."""
    return rounds_inside(draft.kernel, run.extent, run.line.covered, beyond) if run.line else 0


def is_harmless(
    draft: Draft, run: Run, body: tuple[Node, ...], spare: Collection[str], seen: Collection[str] = ()
) -> bool:
    """Whether nobody sees what the body does for what is no iteration: it touches `spare` registers, and the run's own,
    but for those that are `seen`, and reads nothing at a place that moves with it: an array in registers ends, too."""
    own = {node.buffer for node in of_kind(body, Fresh)}.union(spare)
    for leaf in (node.leaf for node in of_kind(body, Generic)):
        if not isinstance(leaf, Bind | Accumulate) or draft.buffers[leaf.buffer].memory is not Memory.REG:
            return False
        here = leaf.subscripts == (IndexVar(name=run.vector.name),) and leaf.buffer not in seen
        if not (leaf.buffer in own or here) or (isinstance(leaf, Accumulate) and leaf.buffer not in spare):
            return False
        for read in read_accesses(leaf):
            if run.index in subscript_names(read.subscripts) or subscript_reads(read.subscripts):
                return False
    return not any(isinstance(node, Guard) and isinstance(node.condition, Read) for node in every_node(body))


def _register(draft: Draft, run: Run, wide: Wide, layout: Layout, dtype: DType) -> str:
    name, reason = (
        wide.element[0],
        f"{run.count} neighbouring elements of {wide.element[0]}, moved {wide.width} at a time",
    )
    return draft.local(f"{name}_run", dtype, Memory.REG, layout, reason, span=wide.first.span)


def through(body: tuple[Node, ...], held: Mapping[Element, Element]) -> tuple[Node, ...]:
    """The body with registers, or elements of tiles, in place of elements."""

    def access(buffer: str, subscripts: tuple[Subscript, ...]) -> Element:
        return held.get((buffer, subscripts), (buffer, subscripts))

    def change(node: Node) -> Node:
        match node:
            case Generic(leaf=leaf):
                return replace(node, leaf=rewrite_leaf(leaf, access))
            case Guard(condition=Read() as read):
                return replace(node, condition=rewrite_read(read, access))
            case _:
                return node

    return map_nodes(body, change)


def zero_of(draft: Draft, run: Run, wide: Wide, register: str, digits: tuple[str, ...]) -> Generic:
    """A register of what is no iteration has a value, too: a wide access takes all of them."""
    id, span = draft.names.fresh(f"{getattr(wide.first, 'id', run.index)}_none"), wide.first.span
    at = (*run.row, IndexVar(name=run.vector.name))
    leaf = Bind(id=id, buffer=register, subscripts=at, value=nothing(draft.buffers[register].dtype, span), span=span)
    return Generic(id=id, leaf=leaf, origin=Origin.INIT, digits=digits)


def nothing(dtype: DType, span: Span) -> Const:
    """What stands for an element that there is not."""
    return Const(value=False if dtype.is_bool else 0, dtype=dtype, span=span)


class Copies:
    """The copies of a run into registers and out of them, as many accesses as each takes. `unseen`: what is no
    iteration leaves nothing that anybody sees."""

    def __init__(self, draft: Draft, run: Run, digits: tuple[str, ...], *, unseen: bool = False) -> None:
        self.draft, self.run, self.digits, self.unseen = draft, run, digits, unseen
        self.cut = _inside(draft, run) is not None
        self.element, self.access = (draft.names.fresh(f"{stem(run.index)}_{word}") for word in ("element", "access"))

    def load(self, wide: Wide, register: str) -> Copy:
        array, held = self._sides(wide, register)
        return self._copy(wide, "load", array, held, nothing(wide.dtype, wide.first.span))

    def store(self, wide: Wide, register: str) -> Copy:
        array, held = self._sides(wide, register)
        return self._copy(wide, "store", held, array, None)

    def whole(self, funnels: Sequence[Wide]) -> Condition | None:
        """Where a run has all its iterations and no chunk of these accesses leaves its array; None where that is not
        known of an index or an address."""
        run, problem, first = self.run, self.draft.problem, IndexVar(name=self.run.first)
        over = Compare(op=CompareOp.LE, left=add(first, const(run.count)), right=run.extent)
        ends: list[Condition] = [over] if self.cut else []
        for wide in funnels:
            last = at(wide.element[1], run.index, add(first, const(run.count - wide.width)))
            inside = chunks_inside(problem, wide, last)
            if inside is None:
                return None
            ends.append(inside)
        beyond = max(wide.width for wide in funnels) - 1  # of the chunk behind the last one
        within = _not_over(self.draft, run, conjunction(tuple(dict.fromkeys(ends))), beyond)
        return conjunction((_begun(run, first), within) if run.line else (within,))

    def _start(self, wide: Wide) -> IndexExpr:
        """The first iteration of an access, counted from that of the run."""
        return multiply(const(wide.width), IndexVar(name=self.access)) if self.run.count > wide.width else ZERO

    def _sides(self, wide: Wide, register: str) -> tuple[View, View]:
        """The elements in the array and those in registers."""
        here = add(self._start(wide), IndexVar(name=self.element))
        held = View(buffer=register, subscripts=(*self.run.row, here), dtype=self.draft.buffers[register].dtype)
        tile = self.run.tiled.get(wide.element)
        if tile is not None:
            *row, first = tile.plain or ()
            return replace(tile, subscripts=(*row, add(first, here))), held
        name, subscripts = wide.element
        first, one = IndexVar(name=self.run.first), IndexVar(name=self.element)
        turned = in_turn(subscripts, self.run.index, add(first, self._start(wide)), one)
        there = at(turned, self.run.index, add(first, here))
        array = View(buffer=name, subscripts=there, dtype=wide.dtype)
        return array, held

    def _copy(self, wide: Wide, what: str, source: View, target: View, other: Const | None) -> Copy:
        start, first = self._start(wide), IndexVar(name=self.run.first)
        begin = subtract(subtract(ZERO, first), start) if self.run.line else ZERO
        end = subtract(subtract(self.run.extent, first), start)
        exact = (self.run.line is None or wide.funnel) and not wide.shifted
        cut = wide.funnel or wide.shifted or (self.cut and wide.element not in self.run.tiled)  # a tile is full
        if wide.funnel and not self.cut:
            end = const(wide.width)
        part = self.run.line.part if self.run.line else None
        within = Within(
            begin=begin,
            end=end,
            other=other,
            exact=exact,
            part=IndexVar(name=part) if part else None,
            whole=_whole_runs(self.draft, self.run, wide.width - 1 if wide.funnel else 0),
            unseen=other is not None and (wide.shifted or (self.unseen and wide.funnel and part is not None)),
        )
        several = () if start == ZERO else ((self.access, const(self.run.count // wide.width)),)
        return Copy(
            id=self.draft.names.fresh(f"{getattr(wide.first, 'id', self.run.index)}_{what}"),
            source=source,
            target=target,
            over=(*several, (self.element, const(wide.width))),
            within=within if cut else None,
            access=self._access(wide),
            digits=self.digits,
            span=wide.first.span,
        )

    def _access(self, wide: Wide) -> Access:
        if wide.funnel or (self.run.line and not self.run.phased and wide.element in self.run.tiled):
            return Access.FUNNEL
        own = Access.SHIFTED if wide.shifted else Access.ALIGNED
        return own if wide.width * wide.dtype.size_bytes > 1 else Access.EACH
