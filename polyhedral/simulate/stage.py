"""A mapped program run in NumPy, thread by thread as its digits say: the oracle between mapping and emission.

    simulate(map_program(proved, target), {"A": a, "B": b, "C": c})["C"]

A launch whose only syncs are barriers of whole blocks and warps, and counts of blocks, and whose blocks share nothing
but global memory, runs in lockstep: all threads of many blocks take each step of the tree together, blocks in random
order. Every other runs interleaved (`schedule.py`): warps, parts, blocks, asynchronous copies and launches that overlap
go on by turns, as the seed says. Neither order hides anything, because a shadow memory refuses every two accesses of
one element that no sync orders: so any other order would have given the same result. Reading what nothing wrote,
leaving a buffer, a barrier that not all threads of its scope reach, a pipe whose counts do not come out, and waiting
for what never comes are errors too (E0604). Values are those of `texpr.grammar.numerics`, as the interpreter's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from texpr.grammar.index.value import condition_value, index_value
from texpr.grammar.interpret.stage import check_arguments, shaped, solve_sizes, stored
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.candidate import address_of
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedProgram
from texpr.polyhedral.mapped.walks import after_waiting, meets_at_whole_barriers, overlaps
from texpr.polyhedral.simulate.cells import Array, Cells, Watch
from texpr.polyhedral.simulate.clocks import MAX_AGENTS, Clocks, Team
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.evaluate import Evaluator, Lines
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.lockstep import Lockstep, LockstepSyncs
from texpr.polyhedral.simulate.run import Runner
from texpr.polyhedral.simulate.schedule import World
from texpr.polyhedral.simulate.storage import launch_memory
from texpr.polyhedral.simulate.words import WordMemory

CHUNK_THREADS = 1 << 16  # threads that run together
LINE_BYTES = 128  # of memory


def simulate(
    program: MappedProgram | PlannedProgram,
    arrays: Mapping[str, Any],
    *,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    interleaved: bool = False,
    addresses: Mapping[str, int] | None = None,
    most: int = MAX_AGENTS,
) -> dict[str, Array]:
    """The contents of the array parameters after a run on copies of `arrays` (by name, in storage types).

    Of a planned program, shared memory is bytes, in which buffers lie at their addresses. `sizes` gives those that no
    shape tells, `addresses` where arrays begin in a line of memory, in bytes; `seed` orders what has no order, and
    draws the other addresses; `interleaved` asks for that also where lockstep would do, of so many threads and
    asynchronous copies at `most`, whose times take 8 bytes for each two. Raises E0403 for more of them, E0601, E0602
    for arguments that do not fit, E0604 for what the module's docstring lists.
    """
    mapped = program.program if isinstance(program, PlannedProgram) else program
    kernel = replace(mapped.kernel, buffers=tuple(buffer.as_given for buffer in mapped.kernel.buffers))
    known = solve_sizes(kernel, arrays, sizes or {})
    given = check_arguments(kernel, arrays, known)
    words = WordMemory({w.name: w for w in mapped.words}, known)
    machine = Machine(program, mapped, np.random.default_rng(seed), words, interleaved, most)
    settled = Lockstep.of(0, 1, 1)
    for buffer in kernel.params:
        cells = Cells.alone(mapped.buffers[buffer.name], known, 1, settled)
        cells.data[cells.inside().reshape(-1)] = stored(given[buffer.name])
        base_bytes = (addresses or {}).get(buffer.name, machine.address(max(buffer.align, buffer.dtype.size_bytes)))
        machine.memory[buffer.name] = replace(cells, defined=None, base_bytes=base_bytes)
    addressed = {address_of(name).name: cells.base_bytes for name, cells in machine.memory.items()}
    machine.run(list(in_order(mapped.host, {**known, **addressed})))
    left = words.left()
    if left is not None:
        raise failure(left)
    found = (machine.memory[b.name] for b in kernel.params)
    return shaped(kernel, given, {c.buffer.name: c.data[c.inside().reshape(-1)] for c in found})


def in_order(nodes: Sequence[HostNode], values: dict[str, int]) -> Iterator[tuple[Launch, Mapping[str, int]]]:
    """The launches of a host program as they come, with the values of sizes, addresses and host indices."""
    for node in nodes:
        match node:
            case Launch():
                yield node, values
            case HostLoop(index=index, extent=extent, body=body):
                for turn in range(int(index_value(extent, values))):
                    yield from in_order(body, {**values, index: turn})
            case HostIf(condition=condition, then=then, orelse=orelse):
                yield from in_order(then if condition_value(condition, values) else orelse, values)


@dataclass(slots=True)
class Machine:
    """The state of a run between launches: memory of parameters and workspaces, and words."""

    program: MappedProgram | PlannedProgram
    mapped: MappedProgram
    random: np.random.Generator
    words: WordMemory
    interleaved: bool
    most: int
    memory: dict[str, Cells] = field(default_factory=dict)

    def address(self, align: int) -> int:
        """Where an array begins in a line of memory: anywhere that its alignment allows."""
        return int(self.random.integers(max(1, LINE_BYTES // align))) * align

    def run(self, launches: Sequence[tuple[Launch, Mapping[str, int]]]) -> None:
        """The launches, each with those that may begin before it is over."""
        at = 0
        while at < len(launches):
            end = at + 1
            while end < len(launches) and self._overlaps(launches[end][0]):
                end += 1
            launch, values = after_waiting(launches[at][0]) if end == at + 1 else launches[at][0], launches[at][1]
            if end == at + 1 and meets_at_whole_barriers(launch, self.mapped.buffers) and not self.interleaved:
                self._lockstep(launch, values)
            else:
                clocks = Clocks(self.most)
                self._settle(Team(clocks, 0))
                World(self.program, self.random, self.memory, self.words, clocks).run(launches[at:end])
            self.words.settle()
            at = end

    def _overlaps(self, launch: Launch) -> bool:
        """Whether it matters that the launch may begin early: one that waits at its start does nothing before."""
        return overlaps(launch if self.interleaved else after_waiting(launch))

    def _settle(self, watch: Watch) -> None:
        """What earlier launches did is before all that follows."""
        for cells in self.memory.values():
            cells.shadow = watch.shadow(len(cells.data))

    def _lockstep(self, launch: Launch, values: Mapping[str, int]) -> None:
        geometry = Geometry.of(launch, values, self.mapped.target.warp_size)
        if not geometry.blocks:
            return
        clock = Lockstep.of(geometry.blocks, launch.threads, geometry.warp)
        self._settle(clock)
        memory = launch_memory(self.program, launch, values, geometry, clock, self.memory)
        syncs = LockstepSyncs(launch, clock, self.words)
        runner = Runner(self.mapped, launch, values, geometry, Evaluator(memory, clock, syncs, Lines()), syncs)
        order = np.arange(geometry.blocks) if launch.turns else self.random.permutation(geometry.blocks)
        step = max(1, CHUNK_THREADS // launch.threads)
        for start in range(0, geometry.blocks, step):
            chosen = np.sort(order[start : start + step])
            runner.finish(runner.crew((chosen[:, None] * launch.threads + np.arange(launch.threads)).reshape(-1)))
