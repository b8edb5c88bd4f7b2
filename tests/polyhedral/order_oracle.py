"""Which accesses of two threads of a block must be ordered, by enumeration: an oracle for `orders/find.py`.

`missing(program, sizes)` walks the launches of a mapped program at given sizes. Every thread of a few blocks takes
every step, in NumPy, as digits, loops, guards and subscripts say; two accesses of different threads to one element, one
of them a write, must be covered by an order of the launch: from the earlier to the later one, carried by the outermost
loop around both in which they differ, between threads of a wide enough scope. Nothing else is exempt but

- two indivisible updates with one operator,
- the two arms of a condition on data that has one value for the block, in one iteration,
- accesses between which all blocks meet,
- a read in another entry of a `new` than the write: the element was written again since, which is ordered,
- subscripts and conditions on data inside one execution of a par: which elements its iterations touch is not known
  here, and the proof of races says that they are different ones.

Subscripts that read data are taken to be any element. Loops of many iterations run their first three and last two. It
shares no code with `find.py`, `actors.py` and `flow.py`.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from oracle_meetings import blocks_meeting
from oracle_rows import Rows, joined, reads_of, spread

from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Atomic,
    Bind,
    Gather,
    IndexVar,
    Read,
    Subscript,
)
from texpr.grammar.index.value import condition_value, index_value
from texpr.polyhedral.layout.place import coordinates
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped.between import AfterLaunch, GridBarrier, TriggerNext
from texpr.polyhedral.mapped.expand import expand
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import Copy, Elementwise, Generic, Reduce, Scan, Unused
from texpr.polyhedral.mapped.places import Memory, Place, Scope
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedProgram
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node
from texpr.polyhedral.mapped.views import View

Needed = tuple[str, str, str, str | None, Scope]
"""Source, sink, buffer, the loop that carries it, and the scope of the two threads."""
MOST_PAIRS = 3_000_000
BEGINS = 3  # elements behind a line of memory


class RaceError(AssertionError):
    """Two threads touch one element in one execution of a par, which no order can mend."""


@dataclass(frozen=True)
class Around:
    """What encloses a node: loops and guards with the branch taken, definitions of thread digits with their depth."""

    nodes: tuple[tuple[Node, int], ...] = ()
    path: tuple[int, ...] = ()
    band: tuple[int, ...] = ()
    band_depth: int = 0
    data: bool = False  # a condition on data, not uniform over the block, stands around within the band


@dataclass
class Site:
    """One access in the text, with the rows (thread, turns of the loops around, element) of all its executions."""

    id: str
    around: Around
    buffer: str
    writes: bool
    operator: Any
    thread: Any
    turns: Any
    elements: Any
    wild: tuple[bool, ...]


@dataclass
class Walker:
    program: MappedProgram
    launch: Launch
    sites: list[Site] = field(default_factory=list)
    entries: dict[str, tuple[tuple[Node, int], ...]] = field(default_factory=dict)
    asked: int = 0  # conditions on data so far

    def walk(self, body: Sequence[Node], around: Around, rows: Rows) -> None:
        for number, node in enumerate(body):
            here = replace(around, path=(*around.path, number))
            match node:
                case Define(index=index, digits=digits, offset=offset):
                    total = sum((d.weight * rows.values[d.name] for d in digits), index_value(offset, rows.values))
                    rows = Rows(rows.thread, {**rows.values, index: total}, rows.turns)
                    if any(d.place in (Place.LANE, Place.WARP) for d in digits):
                        depth = around.band_depth if around.band else len(around.nodes)
                        around = replace(around, band=(*around.band, id(node)), band_depth=depth)
                case Loop():
                    self.loop(node, here, rows)
                case Guard():
                    self.guard(node, here, rows)
                case Generic():
                    self.statement(node, here, rows)
                case Reduce() | Scan():
                    self.reduction(node, here, rows)
                case Copy():
                    every = spread(node.over, rows)
                    if node.within is not None:
                        place = every.array(IndexVar(name=node.over[-1][0]))
                        begin, end = every.array(node.within.begin), every.array(node.within.end)
                        every = every.only((begin <= place) & (place < end))
                    self.statement(node.each, here, every)
                case Lead(index=index, of=of, bytes=line):
                    rows = Rows(rows.thread, {**rows.values, index: self.lead(of, line, rows)}, rows.turns)
                case Last(body=inside):  # whichever block it is, its own threads need these orders
                    self.walk(inside, replace(here, nodes=(*here.nodes, (node, 0)), path=(*here.path, 0)), rows)
                case Fresh(buffer=buffer):
                    self.entries[buffer] = around.nodes
                case Elementwise():
                    self.walk((expand(node),), here, rows)
                case Barrier() | AfterLaunch() | TriggerNext() | GridBarrier() | LookBack():  # no access here
                    pass
                case _:
                    raise AssertionError(f"the accesses of a {type(node).__name__} are not known here")

    def lead(self, of: View, line: int, rows: Rows) -> Any:
        """The elements since the last line, of an array that begins some elements behind one."""
        layout = self.program.buffers[of.buffer].layout
        assert layout is not None
        at = coordinates(layout, [rows.array(s) for s in of.subscripts], rows.values)[Unit.ADDRESS]
        return (at + BEGINS) % (line // of.dtype.size_bytes)

    def loop(self, loop: Loop, here: Around, rows: Rows) -> None:
        extent = rows.array(loop.extent)
        most = int(extent.max(initial=0))
        kept = range(most) if most <= 5 else (0, 1, 2, most - 2, most - 1)
        parts = []
        for turn in kept:
            part = rows.only(extent > turn)
            count = len(part.thread)
            values = {**part.values, loop.index: np.full(count, turn)}
            parts.append(Rows(part.thread, values, np.column_stack((part.turns, np.full(count, turn)))))
        inside = replace(here, nodes=(*here.nodes, (loop, 0)), path=(*here.path, 0))
        self.walk(loop.body, inside, joined(parts, rows, loop.index))

    def guard(self, guard: Guard, here: Around, rows: Rows) -> None:
        condition, data = guard.condition, here.data
        then = orelse = rows
        if isinstance(condition, Read):
            asking = rows.only(rows.thread == 0) if guard.once else rows
            for read, some in reads_of(condition, asking):
                self.touch(f"if@{self.asked}", here, read.buffer, read.subscripts, some)
            self.asked += 1
            data = data or guard.uniform is Scope.THREAD
        else:
            chosen = np.broadcast_to(np.asarray(condition_value(condition, rows.values), bool), rows.thread.shape)
            then, orelse = rows.only(chosen), rows.only(~chosen)
        for branch, (inside, some) in enumerate(((guard.body, then), (guard.orelse, orelse))):
            within = replace(here, nodes=(*here.nodes, (guard, branch)), path=(*here.path, branch), data=data)
            self.walk(inside, within, some)

    def statement(self, statement: Generic, here: Around, rows: Rows) -> None:
        defined = {name for name in rows.values if isinstance(rows.values[name], np.ndarray)}
        assert set(statement.digits) <= defined, f"{statement.id} uses digits that mean nothing there"
        if statement.unused is Unused.ONCE:
            rows = rows.only(rows.thread == 0)
        leaf = statement.leaf
        for read, some in reads_of(leaf.value, rows):
            self.touch(statement.id, here, read.buffer, read.subscripts, some)
        if isinstance(leaf, Anchor):
            return
        for subscript in leaf.subscripts:
            if isinstance(subscript, Gather):
                for read, some in reads_of(subscript.value, rows):
                    self.touch(statement.id, here, read.buffer, read.subscripts, some)
        assert isinstance(leaf, Bind | Accumulate | Atomic)
        operator = leaf.op if statement.atomic and not isinstance(leaf, Bind) else None
        self.touch(statement.id, here, leaf.buffer, leaf.subscripts, rows, writes=True, operator=operator)

    def reduction(self, node: Reduce | Scan, here: Around, rows: Rows) -> None:
        """Every thread reads the values of the box, then writes the targets."""
        rows = rows.only(rows.thread == 0) if node.unused is Unused.ONCE else rows
        every = spread(node.over, rows)
        for value in node.values:
            for read, some in reads_of(value, every):
                self.touch(node.id, here, read.buffer, read.subscripts, some)
        for target in node.targets:
            self.touch(node.id, here, target.buffer, target.subscripts, rows, writes=True)

    def touch(
        self,
        id: str,
        around: Around,
        buffer: str,
        subscripts: tuple[Subscript, ...],
        rows: Rows,
        *,
        writes: bool = False,
        operator: Any = None,
    ) -> None:
        placed = self.program.buffers[buffer]
        if placed.memory is Memory.REG or placed.scope is Scope.THREAD or not len(rows.thread):
            return
        wild = tuple(isinstance(s, Gather) for s in subscripts)
        zero = np.zeros(rows.thread.shape, np.int64)
        columns = [zero if isinstance(s, Gather) else rows.array(s) for s in subscripts]
        elements = np.column_stack(columns) if columns else np.zeros((len(rows.thread), 0), np.int64)
        self.sites.append(Site(id, around, buffer, writes, operator, rows.thread, rows.turns, elements, wild))


def loops_of(nodes: Sequence[tuple[Node, int]]) -> list[Loop]:
    return [node for node, _ in nodes if isinstance(node, Loop)]


def needed_between(source: Site, sink: Site, walker: Walker) -> Iterator[Needed]:
    """The orders that `source` before `sink` needs. RaceError where no order helps."""
    if source.operator is not None and source.operator == sink.operator:
        return
    shared = 0
    for (a, one), (b, other) in zip(source.around.nodes, sink.around.nodes, strict=False):
        if a is not b:
            break
        shared += 1
        if one != other:
            break
    nodes = [node for node, _ in source.around.nodes[:shared]]
    loops = [node for node in nodes if isinstance(node, Loop)]
    last = nodes[-1] if nodes else None
    exclusive = (
        isinstance(last, Guard)
        and isinstance(last.condition, Read)
        and last.uniform is not Scope.THREAD
        and source.around.nodes[shared - 1][1] != sink.around.nodes[shared - 1][1]
    )
    one_par = bool(source.around.band) and source.around.band == sink.around.band
    vague = any(source.wild) or any(sink.wild) or source.around.data or sink.around.data
    inside = len(loops_of(source.around.nodes[: source.around.band_depth]))  # loops around the par
    entry = [node for node, _ in walker.entries.get(source.buffer, ())]
    flow = source.writes and not sink.writes
    forward = source.around.path < sink.around.path
    found: dict[tuple[int, bool], tuple[int, int]] = {}
    for first, second, column in meetings(source, sink, len(loops)):
        warps = source.thread[first] // 32 != sink.thread[second] // 32
        for at in np.unique(column):
            for crossing in (False, True):
                some = np.flatnonzero((column == at) & (warps == crossing))
                if len(some):
                    pair = int(source.thread[first[some[0]]]), int(sink.thread[second[some[0]]])
                    found.setdefault((int(at), crossing), pair)
    for (at, crossing), pair in found.items():
        carrier = None if at == len(loops) else loops[at]
        if carrier is None and (not forward and source is not sink):
            continue
        if carrier is None and exclusive:
            continue
        if flow and carrier is not None and any(carrier is node for node in entry):
            continue
        if one_par and at >= inside and vague:
            continue
        if (carrier is None and source is sink) or (
            carrier is not None and (carrier.digit is not None or carrier.parallel)
        ):
            raise RaceError(f"threads {pair} both reach {source.buffer} in {source.id} and {sink.id}")
        scope = Scope.BLOCK if crossing else Scope.WARP
        yield source.id, sink.id, source.buffer, carrier.index if carrier else None, scope


def meetings(source: Site, sink: Site, depth: int) -> Iterator[tuple[Any, Any, Any]]:
    """Rows of both that touch one element by different threads, the source's first, and the loop that tells them apart
    (`depth` for none)."""
    tame = [k for k, (a, b) in enumerate(zip(source.wild, sink.wild, strict=True)) if not a and not b]
    both = np.concatenate((source.elements[:, tame], sink.elements[:, tame]))
    _, key = np.unique(both, axis=0, return_inverse=True)
    key = np.asarray(key).reshape(-1) if tame else np.zeros(len(both), np.int64)
    sides = []
    for site, keys in ((source, key[: len(source.thread)]), (sink, key[len(source.thread) :])):
        table = np.column_stack((keys, site.thread, site.turns[:, :depth]))
        _, chosen = np.unique(table, axis=0, return_index=True)
        sides.append((chosen, keys[chosen]))
    (rows, row_keys), (others, other_keys) = sides
    order = np.argsort(other_keys, kind="stable")
    others, other_keys = others[order], other_keys[order]
    low, high = np.searchsorted(other_keys, row_keys), np.searchsorted(other_keys, row_keys, side="right")
    count = high - low
    step = max(1, len(rows) * MOST_PAIRS // max(1, int(count.sum())))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        many = count[part]
        first = np.repeat(rows[part], many)
        base = np.repeat(low[part] - np.concatenate(([0], np.cumsum(many)[:-1])), many)
        second = others[base + np.arange(len(first))]
        apart = source.thread[first] != sink.thread[second]
        first, second = first[apart], second[apart]
        if not len(first):
            continue
        change = sink.turns[second, :depth] - source.turns[first, :depth]
        different = change != 0
        column = (
            np.where(different.any(axis=1), different.argmax(axis=1), depth) if depth else np.zeros(len(first), int)
        )
        sign = np.take_along_axis(change, np.minimum(column, depth - 1)[:, None], axis=1)[:, 0] if depth else 0
        later = (column == depth) | (sign > 0)
        yield first[later], second[later], column[later]


def launches_at(nodes: Sequence[HostNode], values: Mapping[str, int]) -> Iterator[tuple[Launch, dict[str, int]]]:
    """The launches of a host program with host indices: the first two turns and the last of each loop."""
    for node in nodes:
        match node:
            case Launch():
                yield node, dict(values)
            case HostLoop(index=index, extent=extent, body=body):
                count = int(index_value(extent, values))
                for turn in range(count) if count <= 3 else (0, 1, count - 1):
                    yield from launches_at(body, {**values, index: turn})
            case HostIf(condition=condition, then=then, orelse=orelse):
                yield from launches_at(then if condition_value(condition, values) else orelse, values)


def needed(program: MappedProgram, launch: Launch, values: Mapping[str, int]) -> dict[Needed, None]:
    """Every order that the first, the second and the last block of a launch need."""
    found: dict[Needed, None] = {}
    grid = [max(0, int(index_value(g, values))) for g in launch.grid]
    blocks = grid[0] * grid[1] * grid[2]
    for block in sorted({0, min(1, blocks - 1), blocks - 1}) if blocks else ():
        at = {
            Place.GRID_X: block % grid[0],
            Place.GRID_Y: block // grid[0] % grid[1],
            Place.GRID_Z: block // (grid[0] * grid[1]),
        }
        thread = np.arange(launch.threads)
        coordinates = {**at, Place.LANE: thread % 32, Place.WARP: thread // 32}
        known: dict[str, Any] = dict(values)
        for d in launch.digits:
            if d.place in coordinates:
                stride, radix = (max(1, index_value(e, values)) for e in (d.stride, d.radix))  # no iteration: no thread
                coordinate = coordinates[d.place] // stride % radix
                known[d.name] = coordinate
        walker = Walker(program, launch)
        walker.walk(launch.body, Around(), Rows(thread, known, np.zeros((launch.threads, 0), np.int64)))
        by_buffer: dict[str, list[Site]] = {}
        for site in walker.sites:
            by_buffer.setdefault(site.buffer, []).append(site)
        for sites in by_buffer.values():
            for source in sites:
                for sink in sites:
                    if source.writes or sink.writes:
                        found.update(dict.fromkeys(needed_between(source, sink, walker)))
    return found


def missing(program: MappedProgram, sizes: Mapping[str, int]) -> list[Needed]:
    """The orders that a program needs at these sizes and does not have."""
    found: dict[Needed, None] = {}
    for launch, values in launches_at(program.host, sizes):
        if launch.pipes:
            continue  # built with its syncs, which `orders/happens.py` and the simulator judge
        have: dict[tuple[str, str, str, str | None], bool] = {}
        for order in launch.orders:
            key = (order.source, order.sink, order.buffer, order.carried_by)
            have[key] = have.get(key, False) or order.scope is not Scope.WARP
        meet = blocks_meeting(launch)
        for source, sink, buffer, carrier, scope in needed(program, launch, values):
            if meet(source, sink, carrier):
                continue
            wide = have.get((source, sink, buffer, carrier))
            if wide is None or (scope is Scope.BLOCK and not wide):
                found[source, sink, buffer, carrier, scope] = None
    return list(found)
