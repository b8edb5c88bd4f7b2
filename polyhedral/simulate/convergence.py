"""Warps that have parted and come to one instruction: the lanes wait for one another, and the last to come runs it."""

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from texpr.grammar.records import dataclass
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.evaluate import Lanes, Values


@dataclass(slots=True)
class Meeting:
    """The lanes of a warp that have come to a node, until all have."""

    came: list[Lanes] = field(default_factory=list)
    over: bool = False


@dataclass(slots=True)
class Convergence:
    """By node (its identity) and warp, who waits for the rest of the warp."""

    geometry: Geometry
    meetings: dict[tuple[int, int], Meeting] = field(default_factory=dict)

    def come(self, node: int, lanes: Lanes) -> tuple[Lanes | None, Callable[[], bool] | None]:
        """The lanes whose warps are whole now, others that waited among them; and until when the rest waits."""
        whole: list[Lanes] = []
        waiting: list[Meeting] = []
        number = lanes.thread // self.geometry.warp
        for warp in np.unique(number).tolist():
            meeting = self.meetings.setdefault((node, warp), Meeting())
            meeting.came.append(lanes.only(number == warp))
            if sum(len(own.thread) for own in meeting.came) == self._width(warp):
                del self.meetings[node, warp]
                meeting.over = True
                whole += meeting.came
            else:
                waiting.append(meeting)
        until = (lambda: all(meeting.over for meeting in waiting)) if waiting else None
        return (united(whole) if whole else None), until

    def _width(self, warp: int) -> int:
        """The threads of a warp: the last one of a block may have fewer."""
        per_block = -(-self.geometry.threads // self.geometry.warp)
        first = warp % per_block * self.geometry.warp
        return min(self.geometry.warp, self.geometry.threads - first)


def united(apart: Sequence[Lanes]) -> Lanes:
    """All of these threads, in their order, with the values that all of them have."""
    if len(apart) == 1:
        return apart[0]
    thread = np.concatenate([lanes.thread for lanes in apart])
    order = np.argsort(thread)
    common = set(apart[0].values).intersection(*(lanes.values for lanes in apart[1:]))
    values = Values()
    for name in common:
        every = [np.broadcast_to(np.asarray(lanes.values[name]), lanes.thread.shape) for lanes in apart]
        values[name] = np.concatenate(every)[order]
    return Lanes(thread[order], values)
