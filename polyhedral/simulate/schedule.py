"""Launches whose blocks, parts and asynchronous copies run interleaved, as a seed says.

A few clusters are resident at a time and others begin when these have ended; crews and copies on their way take turns,
each for a while of random length. Nothing is hidden by one order of events: the clocks refuse two accesses that only
this schedule has put in order. When nobody can go on, the report says who waits for what.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.between import GridBarrier
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.simulate.cells import Cells
from texpr.polyhedral.simulate.clocks import Clocks
from texpr.polyhedral.simulate.evaluate import Lines
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.simulate.running import Running
from texpr.polyhedral.simulate.words import WordMemory


@dataclass(slots=True)
class World:
    """Launches that may overlap, in their order."""

    program: MappedProgram | PlannedProgram
    random: np.random.Generator
    memory: dict[str, Cells]
    words: WordMemory
    clocks: Clocks
    lines: Lines = field(default_factory=Lines)

    def run(self, launches: Sequence[tuple[Launch, Mapping[str, int]]]) -> None:
        """Runs them all to their ends. E0604 for accesses that nothing orders, and for a deadlock."""
        waiting = list(launches)
        runs: list[Running] = []
        while True:
            while waiting and (not runs or runs[-1].lets_next_begin()):
                launch, values = waiting.pop(0)
                runs.append(self._begin(launch, values, runs[-1] if runs else None))
            for run in runs:
                run.start_blocks(self.random)
            able = [(run, actor) for run in runs for actor in run.able()]
            if not able:
                break
            run, actor = able[int(self.random.integers(len(able)))]
            run.go(actor, int(self.random.choice((1, 1, 2, 4, 16, 1 << 20))))
        stuck = [text for run in runs for text in run.stuck()]
        if stuck or waiting:
            raise failure("nobody can go on: " + "; ".join(stuck), next((s for r in runs for s in r.spans()), None))
        for run in runs:
            run.check_end()

    def _begin(self, launch: Launch, values: Mapping[str, int], before: Running | None) -> Running:
        cooperative = any(of_kind(launch.body, GridBarrier))
        most = 1 << 30 if cooperative else int(self.random.choice((1, 2, 1 << 30)))
        whole = bool(self.random.integers(2))
        return Running.of(
            self.program,
            launch,
            values,
            clocks=self.clocks,
            kept=self.memory,
            words=self.words,
            lines=self.lines,
            before=before,
            resident=most,
            whole=whole,
        )
