"""A mapped program run in NumPy, thread by thread as its digits say: the oracle between mapping and emission.

    simulate(map_program(proved, target), {"A": a, "B": b, "C": c})["C"]

All threads of many blocks take each step of the tree together; blocks come in random order. That order alone hides
nothing, because the shadow memory refuses every pair of accesses by two threads that no barrier orders: so any
interleaving would have given the same result. Reading what nothing wrote, leaving a buffer, and a barrier that not all
threads of its scope reach are errors too (E0604). Values are those of `texpr.grammar.numerics`, as the interpreter's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from texpr.grammar import numerics
from texpr.grammar.ast import Accumulate, Anchor, Atomic, Bind, Condition, Read, Role
from texpr.grammar.diagnostics import InternalError, TExprError, error
from texpr.grammar.index.value import condition_value, index_value
from texpr.grammar.interpret.stage import check_arguments, shaped, solve_sizes, stored
from texpr.polyhedral.mapped.operators import Generic, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import (
    HostIf,
    HostLoop,
    HostNode,
    Launch,
    MappedBuffer,
    MappedProgram,
)
from texpr.polyhedral.mapped.sync import Action, Barrier
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import statements, tree_buffers
from texpr.polyhedral.simulate.evaluate import Evaluator, Lanes
from texpr.polyhedral.simulate.shadow import Array, Cells, Clock
from texpr.polyhedral.walk import written

CHUNK_THREADS = 1 << 16  # threads that run together


def simulate(
    mapped: MappedProgram,
    arrays: Mapping[str, Any],
    *,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """The contents of the array parameters after a run on copies of `arrays` (by name, in storage types).

    `sizes` gives those that no shape tells, `seed` orders the blocks. Raises E0601, E0602 for arguments that do not
    fit, E0604 for what the module's docstring lists.
    """
    kernel = mapped.kernel
    known = solve_sizes(kernel, arrays, sizes or {})
    given = check_arguments(kernel, arrays, known)
    machine = Machine(mapped, known, np.random.default_rng(seed))
    for buffer in kernel.params:
        data = stored(given[buffer.name])
        extents = () if buffer.role is Role.SCALAR else tuple(int(index_value(e, known)) for e in buffer.shape)
        machine.memory[buffer.name] = Cells(mapped.buffers[buffer.name], extents, data, None)
    machine.host(mapped.host, dict(known))
    return shaped(kernel, given, {b.name: machine.memory[b.name].data for b in kernel.params})


@dataclass(slots=True)
class Machine:
    """The state of a run: memory of parameters and workspaces, and of the launch at work."""

    mapped: MappedProgram
    sizes: Mapping[str, int]
    random: np.random.Generator
    memory: dict[str, Cells] = field(default_factory=dict)

    def host(self, nodes: Sequence[HostNode], values: dict[str, int]) -> None:
        for node in nodes:
            match node:
                case Launch():
                    self._launch(node, values)
                case HostLoop(index=index, extent=extent, body=body):
                    for turn in range(int(index_value(extent, values))):
                        self.host(body, {**values, index: turn})
                case HostIf(condition=condition, then=then, orelse=orelse):
                    self.host(then if condition_value(condition, values) else orelse, values)

    def _launch(self, launch: Launch, values: dict[str, int]) -> None:
        grid = [max(0, int(index_value(g, values))) for g in launch.grid]
        blocks = grid[0] * grid[1] * grid[2]
        if blocks == 0:
            return
        threads = blocks * launch.threads
        clock = Clock(
            launch.threads,
            self.mapped.target.warp_size,
            np.zeros(threads, dtype=np.int64),
            np.zeros(threads, dtype=np.int64),
        )
        used = tree_buffers(launch.body)
        for name in used:
            self._allocate(self.mapped.buffers[name], values, blocks, threads)
        for cells in self.memory.values():
            cells.begin_launch()
        runner = _Runner(self, launch, clock)
        order = self.random.permutation(blocks)
        step = max(1, CHUNK_THREADS // launch.threads)
        for start in range(0, blocks, step):
            chosen = np.sort(order[start : start + step])
            thread = (chosen[:, None] * launch.threads + np.arange(launch.threads)).reshape(-1)
            index = {
                d.name: v for d in launch.digits if (v := _digit(d, thread, launch, grid, values, clock)) is not None
            }
            runner.nodes(launch.body, Lanes(thread, {**values, **index}))

    def _allocate(self, buffer: MappedBuffer, values: Mapping[str, int], blocks: int, threads: int) -> None:
        """Memory for a local: fresh for each launch, except that a workspace keeps its content."""
        if buffer.role is not Role.LOCAL:
            return
        if buffer.memory is Memory.GLOBAL and buffer.scope is Scope.GRID and buffer.name in self.memory:
            return
        copies = {Memory.REG: threads, Memory.SHARED: blocks, Memory.CLUSTER: blocks, Memory.GLOBAL: 1}[buffer.memory]
        extents = tuple(max(0, int(index_value(e, values))) for e in buffer.shape)
        elements = copies * int(np.prod(extents, dtype=np.int64)) if extents else copies
        data = np.zeros(elements, dtype=numerics.storage(buffer.dtype))
        self.memory[buffer.name] = Cells(buffer, extents, data, np.zeros(elements, dtype=np.bool_))


def _digit(
    digit: Digit, thread: Array, launch: Launch, grid: Sequence[int], values: Mapping[str, int], clock: Clock
) -> Array | None:
    """The digit's value in every thread, None for one that a loop runs over."""
    block, inside = thread // launch.threads, thread % launch.threads
    match digit.place:
        case Place.GRID_X:
            coordinate = block % grid[0]
        case Place.GRID_Y:
            coordinate = block // grid[0] % grid[1]
        case Place.GRID_Z:
            coordinate = block // (grid[0] * grid[1])
        case Place.CORE:
            coordinate = block
        case Place.LANE:
            coordinate = inside % clock.warp
        case Place.WARP:
            coordinate = inside // clock.warp
        case _:
            return None
    return np.asarray(coordinate // index_value(digit.stride, values) % index_value(digit.radix, values))


class _Runner:
    """Runs the tree of one launch for a set of threads."""

    def __init__(self, machine: Machine, launch: Launch, clock: Clock) -> None:
        self.machine = machine
        self.launch = launch
        self.clock = clock
        self.evaluator = Evaluator(machine.memory, clock)

    def nodes(self, body: Sequence[Node], lanes: Lanes) -> None:
        for node in body:
            match node:
                case Define(index=index, digits=digits):
                    total: Any = 0
                    for digit in digits:
                        total = total + digit.weight * lanes.values[digit.name]
                    lanes = lanes.having(index, total)
                case Loop():
                    self._loop(node, lanes)
                case Guard():
                    self._guard(node, self._first(lanes) if node.once else lanes)
                case Generic():
                    self._statement(node, lanes)
                case Fresh(buffer=buffer):
                    self.evaluator.poison(buffer, lanes)
                case Barrier(parts=(), action=Action.BOTH, name=""):
                    self._barrier(node, lanes)
                case _:
                    raise InternalError(f"{self.launch.name}: a {type(node).__name__} is not simulated")

    def _loop(self, loop: Loop, lanes: Lanes) -> None:
        extent = lanes.index(loop.extent)
        if loop.vector and not self.keeps_locals(loop):
            self.nodes(loop.body, lanes.spread(loop.index, extent))
            return
        for turn in range(int(extent.max(initial=0))):
            inside = extent > turn
            self.nodes(loop.body, lanes.only(inside).having(loop.index, turn))

    def keeps_locals(self, loop: Loop) -> bool:
        """Whether the loop writes a thread's own buffers: then its iterations run one after the other here."""
        kept = {n for n, b in self.machine.mapped.buffers.items() if b.scope is Scope.THREAD}
        return any(w is not None and w[0] in kept for w in (written(s.leaf) for s in statements(loop.body)))

    def _guard(self, guard: Guard, lanes: Lanes) -> None:
        if not len(lanes.thread):
            return
        chosen = self._holds(guard.condition, lanes, guard)
        for inside, mask in ((guard.body, chosen), (guard.orelse, ~chosen)):
            if inside and mask.any():
                self.nodes(inside, lanes.only(mask))

    def _first(self, lanes: Lanes) -> Lanes:
        """Thread 0 of every block."""
        return lanes.only(lanes.thread % self.launch.threads == 0)

    def _holds(self, condition: Condition | Read, lanes: Lanes, node: Guard) -> Array:
        if isinstance(condition, Read):
            self.evaluator.at("the condition", node.span)
            return np.asarray(self.evaluator.value(condition, lanes)).astype(np.bool_)
        return np.broadcast_to(np.asarray(condition_value(condition, lanes.values)), lanes.thread.shape)

    def _barrier(self, barrier: Barrier, lanes: Lanes) -> None:
        scope = barrier.scope
        if not len(lanes.thread):
            return
        together = self.clock.warps if scope is Scope.WARP else self.clock.blocks
        width = min(self.launch.threads, self.clock.warp) if scope is Scope.WARP else self.launch.threads
        _, counts = np.unique(together(lanes.thread), return_counts=True)
        if (counts != width).any():
            between = "".join(f" between {o.source} and {o.sink}" for o in barrier.orders[:1])
            message = f"{self.launch.name}: not all threads of a {scope.value} reach the barrier{between}"
            raise TExprError([error("E0604", message, self.launch.span)])
        counter = self.clock.warp_barriers if scope is Scope.WARP else self.clock.block_barriers
        counter[lanes.thread] += 1

    def _statement(self, statement: Generic, lanes: Lanes) -> None:
        if statement.unused is Unused.ONCE:
            lanes = self._first(lanes)
        if not len(lanes.thread):
            return
        leaf = statement.leaf
        self.evaluator.at(statement.id, statement.span)
        value = np.broadcast_to(self.evaluator.value(leaf.value, lanes), lanes.thread.shape)
        match leaf:
            case Bind():
                self.evaluator.store(leaf.buffer, leaf.subscripts, value, lanes)
            case Accumulate() | Atomic():
                self.evaluator.update(leaf, value, lanes, atomic=statement.atomic)
            case Anchor():
                pass
