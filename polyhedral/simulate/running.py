"""One launch on its way: which of its blocks are resident, what their crews and copies do next, and how it ends."""

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import field

import numpy as np

from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.simulate.barriers import Barriers
from texpr.polyhedral.simulate.cells import Cells
from texpr.polyhedral.simulate.clocks import NOTHING, Clocks, Snapshot, Team
from texpr.polyhedral.simulate.convergence import Convergence
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.departures import Departures
from texpr.polyhedral.simulate.evaluate import Evaluator, Lines
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.flights import WRITTEN, Flight, Groups
from texpr.polyhedral.simulate.meetings import Interleaved
from texpr.polyhedral.simulate.pipes import Pipes
from texpr.polyhedral.simulate.run import Crew, Runner
from texpr.polyhedral.simulate.storage import launch_memory
from texpr.polyhedral.simulate.words import WordMemory


@dataclass(slots=True, kw_only=True)
class Running:
    """`resident` clusters run at a time; a crew at the start is a warp, or a `whole` block."""

    launch: Launch
    geometry: Geometry
    clocks: Clocks
    team: Team
    syncs: Interleaved
    runner: Runner
    resident: int
    whole: bool
    pending: list[int]  # first blocks of the clusters that did not begin
    crews: list[Crew] = field(default_factory=list)
    left: dict[int, int] = field(default_factory=dict)  # by block that began: threads that did not end
    exits: dict[int, Snapshot] = field(default_factory=dict)

    @staticmethod
    def of(
        program: MappedProgram | PlannedProgram,
        launch: Launch,
        values: Mapping[str, int],
        *,
        clocks: Clocks,
        kept: MutableMapping[str, Cells],
        words: WordMemory,
        lines: Lines,
        before: "Running | None",
        resident: int,
        whole: bool,
    ) -> "Running":
        mapped = program.program if isinstance(program, PlannedProgram) else program
        geometry = Geometry.of(launch, values, mapped.target.warp_size)
        threads = geometry.blocks * launch.threads
        team = Team(clocks, int(clocks.add(f"thread {n}" for n in range(threads)).min(initial=clocks.count)))
        groups = Groups(clocks)
        departures = Departures(geometry=geometry, clocks=clocks, team=team, groups=groups)
        syncs = Interleaved(
            geometry=geometry,
            clocks=clocks,
            team=team,
            barriers=Barriers(launch, geometry, clocks, team),
            groups=groups,
            departures=departures,
            convergence=Convergence(geometry),
            words=words,
            before=((lambda: True), (lambda: NOTHING)) if before is None else (before.over, before.known_at_end),
        )
        syncs.pipes = departures.pipes = Pipes(launch, geometry, clocks, team, syncs.acts_in)
        memory = launch_memory(program, launch, values, geometry, team, kept)
        departures.evaluator = Evaluator(memory, team, syncs, lines)
        runner = Runner(mapped, launch, values, geometry, departures.evaluator, syncs)
        departures.products = runner.products
        firsts = sorted({geometry.cluster_of(block)[0] for block in range(geometry.blocks)})
        return Running(
            launch=launch,
            geometry=geometry,
            clocks=clocks,
            team=team,
            syncs=syncs,
            runner=runner,
            resident=resident,
            whole=whole,
            pending=firsts,
        )

    def start_blocks(self, random: np.random.Generator) -> None:
        """Clusters begin, in any order, while there is room."""
        while self.pending and len(self.left) < self.resident * self.geometry.ranks:
            numbered = self.launch.turns  # blocks have their numbers as they begin
            first = self.pending.pop(0 if numbered else int(random.integers(len(self.pending))))
            for block in self.geometry.cluster_of(first):
                self.left[block] = self.geometry.threads
                numbers = np.arange(block * self.geometry.threads, (block + 1) * self.geometry.threads)
                self.syncs.begun[block] = self.clocks.mark(f"the begin of block {block}", self.team.agents(numbers))
                step = self.geometry.threads if self.whole else self.geometry.warp
                self.crews += [self.runner.crew(numbers[n : n + step]) for n in range(0, len(numbers), step)]

    def able(self) -> Iterator[Crew | Flight]:
        """Who can go on."""
        yield from (c for c in self.crews if c.pause is None or c.pause.ready())
        yield from (f for f in self.syncs.departures.flights if f.able())

    def go(self, actor: Crew | Flight, steps: int) -> None:
        """Some steps of one of them."""
        if isinstance(actor, Flight):
            actor.step(self.runner.evaluator, self.clocks)
            if actor.state == WRITTEN:
                self.syncs.departures.flights.remove(actor)
            return
        for _ in range(steps):
            if actor.pause is not None:
                if not actor.pause.ready():
                    return
                pause, actor.pause = actor.pause, None
                pause.resume()
            if not actor.frames:
                self._end(actor)
                return
            self.syncs.part = actor.frames[-1].team.part
            actor.ended = actor.lanes.thread
            self.crews += self.runner.step(actor)

    def _end(self, crew: Crew) -> None:
        """The crew's threads have ended; a block ends with its last one, and makes room for another."""
        self.crews.remove(crew)
        block = int(crew.ended[0]) // self.geometry.threads
        self.left[block] -= len(crew.ended)
        if not self.left[block]:
            first = block * self.geometry.threads
            agents = self.team.agents(np.arange(first, first + self.geometry.threads))
            self.exits[block] = self.clocks.snapshot(agents)
            cluster = self.geometry.cluster_of(block)
            if all(self.left.get(b) == 0 for b in cluster):
                for b in cluster:
                    del self.left[b]

    def over(self) -> bool:
        return not self.pending and not self.crews and not self.syncs.departures.flights

    def lets_next_begin(self) -> bool:
        """Whether every block came to its `TriggerNext` or ended."""
        began = set(self.exits) | self.syncs.triggered
        return not self.pending and all(b in began for b in range(self.geometry.blocks))

    def known_at_end(self) -> Snapshot:
        """What is known when the launch is over: all that its threads and copies did. What they wrote is in memory by
        then, where asynchronous copies see it too, without a fence of the writer."""
        agents = np.arange(self.team.first, self.team.first + self.geometry.blocks * self.geometry.threads)
        flights = np.array(self.syncs.departures.agents, dtype=np.int64)
        known = self.clocks.snapshot(np.concatenate([agents, flights])).known
        return Snapshot(known, known)

    def stuck(self) -> Iterator[str]:
        """Who waits for what, when nobody can go on."""
        for crew in self.crews:
            if crew.pause is not None:
                thread, part = crew.lanes.thread, crew.frames[-1].team.part
                block = int(thread[0]) // self.geometry.threads
                where = f"block {block}{f', part {part}' if part else ''}"
                who = (
                    f"threads {thread.min()} to {thread.max()} wait" if len(thread) > 1 else f"thread {thread[0]} waits"
                )
                line = "" if crew.pause.span is NO_SPAN else f" (line {crew.pause.span.line})"
                yield f"{where}, {who} at `{crew.pause.text}`{line}"
        if self.pending:
            yield f"{len(self.pending)} clusters of {self.launch.name} have not begun"

    def spans(self) -> Iterator[Span]:
        yield from (c.pause.span for c in self.crews if c.pause is not None)

    def check_end(self) -> None:
        """What is left half done, or was still going on in the memory of a block when it ended, is an error."""
        left = self.syncs.barriers.left() or self.syncs.pipes.left() or self.syncs.departures.left()
        if left is not None:
            raise failure(f"{self.launch.name}: {left}", self.launch.span)
        for touch in self.syncs.departures.touches:
            known = self.exits[touch.block].known
            if touch.agent >= len(known) or known[touch.agent] < touch.time:
                what = f"{touch.text} by " * bool(touch.text) + self.clocks.labels[touch.agent]
                message = f"{self.launch.name}: block {touch.block} ends while {what} may not be over"
                raise failure(message, self.launch.span)
