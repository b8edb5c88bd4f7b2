"""Stages: `#stages(n)` on a `seq` that one thread runs makes of its reads asynchronous copies that run n - 1 iterations
ahead of it, through n slots that the thread has in shared memory.

    seq M i #stages(3) { s += X[i, j] }

    ahead of it: for i < 2: copy X_stage[i, thread] = X[i, j]; a group
    for i < M
      if i + 2 < M: copy X_stage[(i + 2) % 3, thread] = X[i + 2, j]
      a group; wait for all groups but the youngest 2
      s += X_stage[i % 3, thread]
    wait for all groups

A thread reads what it copied itself, so it waits for its own copies alone, and nobody for it. Copied is what an
iteration surely reads of arrays that the launch does not write, 4, 8 or 16 bytes at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from texpr.grammar.ast import (
    Attr,
    Compare,
    CompareOp,
    Gather,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import Diagnostic, TExprError, error, fail
from texpr.grammar.index.expr import add, combine, const, constant_value, multiply, names
from texpr.grammar.permissions import stages_of
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.digits import thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.side import at_condition
from texpr.polyhedral.map.vectors import Element, at_places, events_of
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.candidate import Blocks, Choice, Contracted, Flat, Multiplied, Single, Tiled
from texpr.polyhedral.mapped.operators import Copy, Generic
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.ringed import Ringed
from texpr.polyhedral.mapped.sync import Close, GroupKind, WaitGroup
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Lead, Loop, Node
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.mapped.walks import branches, every_node, tree_writes, with_branches
from texpr.polyhedral.walk import map_reads, subscript_names

COPIED_BYTES = (4, 8, 16)  # by cp.async


def asked_stages(stmts: Sequence[Stmt]) -> Iterator[tuple[Seq, Attr, int]]:
    """The `seq`s whose author gives stages, and how many. Raises E0401 for a number that is not known."""
    for stmt in statements(tuple(stmts)):
        attr = stages_of(stmt) if isinstance(stmt, Seq) else None
        if isinstance(stmt, Seq) and attr is not None:
            yield stmt, attr, _number(attr)


def _number(attr: Attr) -> int:
    value = attr.args[0]
    if not isinstance(value, IndexConst):
        help = "bind the size, or write a number"
        raise fail("E0401", "how many stages there are is not known", attr.span, "a free size", help=help)
    return value.value


def refused(attr: Attr, why: str) -> Diagnostic:
    help = "remove #stages; the compiler then loads ahead as it finds best"
    return error("E0402", f"#stages is not mapped here: {why}", attr.span, "this attribute", help=help)


def check_stages(stmts: Sequence[Stmt], choice: Choice) -> None:
    """Raises E0402 for `#stages` where no thread runs the loop alone, and no tiles have so many slots."""
    for seq, attr, stages in asked_stages(stmts):
        why = _why_not(seq, stages, choice)
        if why:
            raise TExprError((refused(attr, why),))


def _why_not(seq: Seq, stages: int, choice: Choice) -> str:
    match choice:
        case Contracted():
            return "" if stages == 2 else "the tiles of the contraction have 2 stages"
        case Piped(stages=own) | Ringed(stages=own):
            return "" if stages == own else f"the pipe of the tiles has room for {own} stages"
        case Blocks(rows=rows) if seq.index in (index for row in rows for index in row.indices):
            return "the threads of a block hold the row in registers, and load all of it ahead"
        case Single() | Flat() | Tiled() | Blocks():
            return ""
        case _:
            return "threads share its iterations out, with all loads of a round ahead"


def staged(
    draft: Draft, threads: int, body: tuple[Node, ...], stmts: Sequence[Stmt], choice: Choice
) -> tuple[Node, ...]:
    """The body of a launch with the stages that its author asks for. Raises E0402 where nothing can be copied ahead."""
    for seq, attr, stages in asked_stages(stmts):
        if draft.target.is_cuda and not isinstance(choice, Contracted | Multiplied) and stages > 1:
            own = _Stages(draft, threads, seq, stages, tree_writes(body))
            body = own.through(body)
            if own.why:
                raise TExprError((refused(attr, own.why),))
    return body


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slots:
    """What a thread reads in each iteration, `count` neighbours, in the slots of that name."""

    name: str
    dtype: DType
    count: int

    def view(self, slot: IndexExpr, thread: str, *inside: IndexExpr) -> View:
        return View(buffer=self.name, subscripts=(slot, IndexVar(name=thread), *inside), dtype=self.dtype)


Place = tuple[Element, tuple[int, ...]]
"""An element, and the conditions around where it is read, by their numbers."""


class _Stages:
    """The loops of a `seq` in a launch, with copies that run ahead. `why` says why none has them."""

    def __init__(self, draft: Draft, threads: int, seq: Seq, stages: int, changed: set[str]) -> None:
        self.draft, self.threads, self.seq, self.stages, self.changed = draft, threads, seq, stages, changed
        self.why = "no thread runs the loop alone"

    def through(self, nodes: tuple[Node, ...], *, asked: bool = False) -> tuple[Node, ...]:
        """The nodes, with the innermost loops over the iterations of the `seq` in stages; `asked`: data says whether a
        thread comes here."""
        found: list[Node] = []
        for node in nodes:
            if not self._is_loop(node) or any(map(self._is_loop, every_node(branches(node)[0]))):
                by_data = asked or (isinstance(node, Guard) and isinstance(node.condition, Read))
                found.append(with_branches(node, [self.through(inside, asked=by_data) for inside in branches(node)]))
            elif asked:
                self.why = "data says whether the loop runs"
                found.append(node)
            else:
                assert isinstance(node, Loop), "one of the seq"
                found += self._staged(node)
        return tuple(found)

    def _is_loop(self, node: Node) -> bool:
        return isinstance(node, Loop) and node.span.place == self.seq.span.place and not node.vector

    def _staged(self, loop: Loop) -> tuple[Node, ...]:
        if loop.unroll:
            self.why = "the loop is written out, and its loads are on their way together"
            return (loop,)
        names = self.draft.names
        thread = names.fresh("thread")
        band = thread_digits((thread,), ((0, self.threads),), names, self.draft.target.warp_size)
        one = _Ahead(self, loop, thread)
        body = one.reading(one.body)
        if not one.slots:
            self.why = "no iteration surely reads 4, 8 or 16 bytes of an array at a place that moves with the loop"
            return (loop,)
        self.why = ""
        self.draft.digits += band.all
        first, here, ahead = names.fresh(f"{loop.index}_first"), IndexVar(name=loop.index), const(self.stages - 1)
        begin = Loop(
            index=first,
            extent=ahead,
            body=(*one.copies(IndexVar(name=first)), Close(kind=GroupKind.CP_ASYNC)),
            unroll=True,
            span=loop.span,
        )
        turn = (
            *one.copies(add(here, ahead)),
            Close(kind=GroupKind.CP_ASYNC),
            WaitGroup(kind=GroupKind.CP_ASYNC, behind=self.stages - 1),
            *body,
        )
        return (
            Define(index=thread, digits=tuple(reversed(band.all))),
            *one.before,
            *(Fresh(buffer=slots.name) for slots in one.slots.values()),
            begin,
            replace(loop, body=turn),
            WaitGroup(kind=GroupKind.CP_ASYNC),
        )


class _Ahead:
    """The reads of one loop: `reading` puts slots in their place, `copies` fills the slots of an iteration."""

    def __init__(self, stages: _Stages, loop: Loop, thread: str) -> None:
        self.stages, self.loop, self.thread, self.draft = stages, loop, thread, stages.draft
        self.before: list[Define] = []
        self.moving, self.known = {loop.index}, set[str]()
        self.body = self._apart(loop.body)
        inside = {node.index for node in every_node(self.body) if isinstance(node, Define | Lead | Loop)}
        self.unknown = inside - self.known
        self.slots: dict[Place, _Slots] = {}
        self.conditions = 0

    def _apart(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes of an iteration, in which places of threads are told by indices from before the loop."""
        found: list[Node] = []
        for node in nodes:
            match node:
                case Define(index=index, digits=digits, offset=offset):
                    own = tuple(digit for digit in digits if digit.name == self.loop.index)
                    rest = tuple(digit for digit in digits if digit.name != self.loop.index)
                    if rest:
                        name = self.draft.names.fresh(f"{index}_thread")
                        self.before.append(Define(index=name, digits=rest))
                        node = replace(node, digits=own, offset=add(offset, IndexVar(name=name)))
                    self.known.add(index)
                    self.moving |= {index} if own or names(offset) & self.moving else set()
                case Guard(condition=condition, body=body) if not isinstance(condition, Read):
                    node = replace(node, body=self._apart(body))
                case _:
                    pass
            found.append(node)
        return tuple(found)

    # ---- the loop's own reads ----

    def reading(self, nodes: tuple[Node, ...], around: tuple[int, ...] = ()) -> tuple[Node, ...]:
        """The nodes of an iteration, which read slots."""
        slot = combine(IndexOp.MOD, IndexVar(name=self.loop.index), const(self.stages.stages))
        found: list[Node] = []
        for node in nodes:
            match node:
                case Generic(leaf=leaf):
                    sure = [e.element for e in events_of((leaf,)) if e is not None and e.surely and not e.writes]
                    held = {element: own for element in sure if (own := self._slots(element, around)) is not None}

                    def change(read: Read, held: dict[Element, _Slots] = held) -> Read:
                        own = held.get((read.buffer, read.subscripts))
                        return read if own is None else own.view(slot, self.thread).read(read.span)

                    found.append(replace(node, leaf=replace(leaf, value=map_reads(leaf.value, change))))
                case Copy(source=source, over=((each, extent),)) if self._is_wide(node):
                    own = self._slots((source.buffer, source.subscripts), around, constant_value(extent) or 0)
                    if own is not None:
                        node = replace(node, source=own.view(slot, self.thread, IndexVar(name=each)))
                    found.append(node)
                case Guard(condition=condition) if not isinstance(condition, Read):
                    self.conditions += 1
                    found.append(replace(node, body=self.reading(node.body, (*around, self.conditions))))
                case _:
                    found.append(node)
        return tuple(found)

    def _is_wide(self, copy: Copy) -> bool:
        return copy.completion is Completion.NOW and copy.access is Access.ALIGNED and copy.within is None

    def _slots(self, element: Element, around: tuple[int, ...], count: int = 1) -> _Slots | None:
        """The slots of an element, new ones where it has none; None where it cannot be copied ahead."""
        for depth in range(len(around) + 1):
            known = self.slots.get((element, around[:depth]))
            if known is not None:
                return known if known.count == count else None
        name, subscripts = element
        buffer, used = self.draft.buffers[name], subscript_names(subscripts)
        moves = bool(used & self.moving) and not used & self.unknown
        copied = buffer.memory is Memory.GLOBAL and name not in self.stages.changed
        size = buffer.dtype.size_bytes
        if not (moves and copied) or size * count not in COPIED_BYTES or any(isinstance(s, Gather) for s in subscripts):
            return None
        shape = (self.stages.stages, self.stages.threads, *((count,) if count > 1 else ()))
        own = self.draft.local(
            f"{name}_stage",
            buffer.dtype,
            Memory.SHARED,
            row_major(tuple(map(const, shape))),
            f"what a thread reads of {name} in {self.stages.stages} iterations, copied ahead",
        )
        self.slots[element, around] = found = _Slots(name=own, dtype=buffer.dtype, count=count)
        return found

    # ---- the copies ----

    def copies(self, iteration: IndexExpr) -> tuple[Node, ...]:
        """What fills the slots of an iteration, where there is such a one."""
        index = self.draft.names.fresh(f"{self.loop.index}_ahead")
        here: IndexExpr = IndexVar(name=index)
        slot = combine(IndexOp.MOD, here, const(self.stages.stages))
        self.conditions = 0
        body = self._filling(self.body, {self.loop.index: here}, slot, set())
        some = Compare(op=CompareOp.LT, left=here, right=self.loop.extent)
        return (
            Define(index=index, digits=(), offset=iteration),
            Guard(condition=some, body=body, padding=True, span=self.loop.span),
        )

    def _filling(
        self,
        nodes: tuple[Node, ...],
        places: dict[str, IndexExpr],
        slot: IndexExpr,
        done: set[Place],
        around: tuple[int, ...] = (),
    ) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in nodes:
            match node:
                case Define(index=index, digits=digits, offset=offset):
                    fresh = self.draft.names.fresh(index)
                    by = (multiply(const(digit.weight), places[digit.name]) for digit in digits)
                    (moved,) = at_places((offset,), places)
                    assert not isinstance(moved, Gather), "an offset is none"
                    found.append(Define(index=fresh, digits=(), offset=reduce(add, by, moved)))
                    places = {**places, index: IndexVar(name=fresh)}
                case Guard(condition=condition, body=body) if not isinstance(condition, Read):
                    self.conditions += 1
                    inside = self._filling(body, places, slot, done, (*around, self.conditions))
                    if any(isinstance(each, Copy) for each in every_node(inside)):
                        there = at_condition(condition, places)
                        found.append(replace(node, condition=there, body=inside, orelse=()))
                case Generic() | Copy():
                    for read in node.reads:
                        place = ((read.buffer, read.subscripts), around)
                        if place in self.slots and place not in done:
                            done.add(place)
                            found.append(self._copy(node, self.slots[place], place[0], places, slot))
                case _:
                    pass
        return tuple(found)

    def _copy(
        self, node: Generic | Copy, slots: _Slots, element: Element, places: Mapping[str, IndexExpr], slot: IndexExpr
    ) -> Copy:
        name, subscripts = element
        over = node.over if isinstance(node, Copy) and slots.count > 1 else ()
        inside = tuple(IndexVar(name=each) for each, _ in over)
        return Copy(
            id=self.draft.names.fresh(f"{name}_ahead"),
            source=View(buffer=name, subscripts=at_places(subscripts, places), dtype=slots.dtype),
            target=slots.view(slot, self.thread, *inside),
            over=over,
            completion=Completion.CP_ASYNC,
            digits=node.digits,
            unused=node.unused,
            span=node.span,
        )
