"""One launch for several: `#cooperative` on a kernel makes of launches that follow one another the phases of one, whose
blocks are all there at once and meet at barriers of the grid.

    par M i { T[i] = … } ; par N j { C[j] = … T[…] }       blocks over i, a barrier of the grid, the same blocks over j
    seq T t { par N i { … } ; par N i { … } }              every block runs the loop, with barriers in its body

A phase has as many blocks as a GPU runs at once, each of which goes over several tiles (`persistent.py`); what it does
not need of the blocks of other phases does nothing in it. Where the barriers stand: `grid_barriers.py`. Launches whose
blocks are counted, numbered or in clusters stay launches of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from texpr.grammar.ast import Attr, Compare, CompareOp, IndexExpr, IndexOp, IndexVar, Par, Read
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import ONE, combine, const, constant_value, product
from texpr.grammar.permissions import cluster_shape_of, cooperative_of
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.extent import extent_bytes
from texpr.polyhedral.map.bands import asked_scope
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.grid_barriers import joined
from texpr.polyhedral.map.persistent import blocks_at_once, limited
from texpr.polyhedral.mapped.candidate import Blocks, Choice, Contracted, Flat, Tiled
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.places import GRID_PLACES, Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Last, Node
from texpr.polyhedral.mapped.walks import every_node, launches, map_launches, map_nodes, map_statements, tree_buffers
from texpr.polyhedral.target import RESERVED_BYTES

ALONE = (
    "stays a launch of its own: its blocks are counted, numbered or in clusters, may be more than run at once, or ask "
    "data whether they run"
)
Finish = Callable[[Launch], Launch]
"""A launch with its orders and barriers."""


def cooperative(
    draft: Draft, host: Sequence[HostNode], choices: Mapping[str, Choice], alone: Finish, phase: Finish
) -> tuple[HostNode, ...]:
    """The host program with one launch for each run of launches that can be phases, where the author asks for it. A
    `phase` is finished in another way than a launch that stays `alone`. Raises E0401 for phases whose blocks have
    several sizes, E0402 beside clusters."""
    attr = cooperative_of(draft.kernel)
    if attr is None or not draft.target.is_cuda:
        return map_launches(host, alone)
    pars = (stmt for stmt in statements(draft.kernel.body) if isinstance(stmt, Par))
    if cluster_shape_of(draft.kernel) is not None or any(asked_scope(par) is Scope.CLUSTER for par in pars):
        why = "#cooperative is not mapped here: the blocks of this kernel are in clusters"
        raise fail("E0402", why, attr.span, "this attribute", help="remove one of the two")
    return _Runs(draft=draft, attr=attr, choices=choices, alone=alone, phase=phase).of(host)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """What stands side by side on the host and can be phases, as one launch each."""

    draft: Draft
    attr: Attr
    choices: Mapping[str, Choice]
    alone: Finish
    phase: Finish

    def of(self, host: Sequence[HostNode]) -> tuple[HostNode, ...]:
        found, run = list[HostNode](), list[HostNode]()
        for node in host:
            if all(map(self._can_be_phase, launches((node,)))):
                run.append(node)
                continue
            found += self._joined(run)
            run = []
            match node:
                case HostLoop(body=body):
                    found.append(replace(node, body=self.of(body)))
                case HostIf(then=then, orelse=orelse):
                    found.append(replace(node, then=self.of(then), orelse=self.of(orelse)))
                case Launch():
                    self.draft.notes.append(f"{node.name} {ALONE} (`#cooperative`, line {self.attr.span.line})")
                    found.append(self.alone(node))
        return (*found, *self._joined(run))

    def _joined(self, run: Sequence[HostNode]) -> tuple[HostNode, ...]:
        """The nodes of a run as one launch, unless that is what they are."""
        every = tuple(launches(run))
        if not every or (len(run) == 1 and isinstance(run[0], Launch)):
            return map_launches(run, self.alone)
        threads = max(launch.threads for launch in every)
        for launch in every:
            if launch.threads not in (1, threads):
                raise fail(
                    "E0401",
                    f"the blocks of {launch.name} have {launch.threads} threads, and those of another phase {threads}",
                    self.attr.span,
                    "phases of one launch have the same blocks",
                    help=f"let both have {threads} by #threads or by the sides of a #tile, or remove #cooperative",
                )
        self.draft.obeyed.add(self.attr)
        each = self._each(every)
        room = self.draft.target.multiprocessors * each
        phases = {launch.name: self.phase(self._limited(launch, room)) for launch in every}
        grid = reduce(_greater, (phase.grid[0] for phase in phases.values()))
        block = self._place("block", grid, ONE, Place.GRID_X)
        phases = {name: self._on_blocks(self._in_threads(phase, threads), block) for name, phase in phases.items()}
        launch = Launch(
            name=every[0].name, grid=(grid, ONE, ONE), threads=threads, min_blocks=each, digits=(block,), body=()
        )
        return (joined(self.draft, launch, run, phases, Define(index=block.index, digits=(block,))),)

    def _can_be_phase(self, launch: Launch) -> bool:
        """Whether the blocks of a launch may be fewer, or are known to be few."""
        if launch.turns or launch.cluster != (1, 1, 1) or any(map(_is_alone, every_node(launch.body))):
            return False
        known = constant_value(launch.grid[0]) if launch.grid[1:] == (ONE, ONE) else None
        few = known is not None and known <= self.draft.target.multiprocessors * self._each((launch,))
        return few or isinstance(self.choices[launch.name], Flat | Blocks | Tiled | Contracted)

    def _each(self, run: Sequence[Launch]) -> int:
        """The blocks that a multiprocessor has at once: their threads, registers and shared memory have room."""
        target, buffers = self.draft.target, self.draft.buffers
        each = min(launch.min_blocks or blocks_at_once(launch.threads, target) for launch in run)
        used = (buffers[name] for name in set[str]().union(*(tree_buffers(launch.body) for launch in run)))
        shared = (extent_bytes(b.layout, b.dtype.size_bytes) for b in used if b.memory is Memory.SHARED)
        taken = sum(constant_value(size) or 0 for size in shared)
        return max(1, min(each, target.resident_bytes // (taken + RESERVED_BYTES)))

    def _limited(self, launch: Launch, room: int) -> Launch:
        """The launch with no more blocks than there is room for, all along x."""
        if not isinstance(self.choices[launch.name], Flat | Blocks | Tiled | Contracted):
            return launch
        return _on_x(limited(launch, room, self.draft.names))

    def _in_threads(self, phase: Launch, threads: int) -> Launch:
        """The phase in blocks of so many threads: what was one thread's is the first one's."""
        if phase.threads == threads:
            return phase
        warp = min(threads, self.draft.target.warp_size)
        lane = self._place("thread", const(warp), ONE, Place.LANE)
        warps = replace(lane, name=f"{lane.name}_warp", weight=warp, radix=const(threads // warp), place=Place.WARP)
        digits = (lane, warps) if threads > warp else (lane,)
        names = tuple(digit.name for digit in digits)
        body = map_statements(phase.body, lambda statement: replace(statement, digits=names))
        first = Compare(op=CompareOp.LT, left=IndexVar(name=lane.index), right=ONE)
        guard = Guard(condition=first, body=body, padding=True, span=phase.span)
        define = Define(index=lane.index, digits=digits)
        return replace(phase, threads=threads, digits=(*digits, *phase.digits), body=(define, guard))

    def _on_blocks(self, phase: Launch, block: Digit) -> Launch:
        """The phase for those of all blocks that it needs."""
        if phase.grid[0] == block.radix:
            return phase
        inside = Compare(op=CompareOp.LT, left=IndexVar(name=block.index), right=phase.grid[0])
        guard = Guard(condition=inside, body=phase.body, padding=True, uniform=Scope.BLOCK, span=phase.span)
        return replace(phase, body=(guard,))

    def _place(self, wanted: str, radix: IndexExpr, stride: IndexExpr, place: Place) -> Digit:
        index = self.draft.names.fresh(wanted)
        name = self.draft.names.fresh(f"{index}_{place.value.replace('.', '_')}")
        return Digit(name=name, index=index, weight=1, radix=radix, stride=stride, place=place)


def _is_alone(node: Node) -> bool:
    """Whether a node is for launches whose blocks are those that it counts, or whose data no other phase changes."""
    asks = isinstance(node, Guard) and isinstance(node.condition, Read) and node.uniform is Scope.GRID
    return asks or isinstance(node, Last | LookBack)


def _greater(left: IndexExpr, right: IndexExpr) -> IndexExpr:
    return left if left == right else combine(IndexOp.MAX, left, right)


def _on_x(launch: Launch) -> Launch:
    """The launch with all its blocks along x: those of y and z beyond those of x."""
    found = dict[str, Digit]()
    before: IndexExpr = ONE
    for axis, place in enumerate(GRID_PLACES):
        mine = (digit for digit in launch.digits if digit.place is place)
        found |= {d.name: replace(d, place=Place.GRID_X, stride=product((before, d.stride))) for d in mine}
        before = product((before, launch.grid[axis]))

    def moved(node: Node) -> Node:
        if not isinstance(node, Define):
            return node
        return replace(node, digits=tuple(found.get(digit.name, digit) for digit in node.digits))

    digits = tuple(found.get(digit.name, digit) for digit in launch.digits)
    return replace(launch, grid=(before, ONE, ONE), digits=digits, body=map_nodes(launch.body, moved))
