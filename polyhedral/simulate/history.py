"""What happened to every element of a buffer, by the clocks of those who touched it.

Elements to which the same has happened share one past, so that a tile that one agent moves costs little more than one
of its elements. An access is checked against the past, and makes the next one:

    write by 3 at 7    ->  read by 5 at 2    ->  read by 5 at 2, by 6 at 4    ->  write by 3 at 9
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from texpr.grammar.records import dataclass
from texpr.polyhedral.simulate.cells import Array, Violation

if TYPE_CHECKING:
    from texpr.polyhedral.simulate.clocks import Clocks

LEAST_PASTS = 1 << 12  # up to which nobody looks which of them are over


class Stamp(NamedTuple):
    """An access: by whom, when by the agent's own time, and of which statement."""

    agent: int
    time: int
    statement: int


@dataclass(frozen=True, slots=True)
class Past:
    """The last write of an element, and by agent the updates and reads since that nothing orders before another."""

    write: Stamp | None = None
    updates: Mapping[int, Stamp] = field(default_factory=dict)
    reads: Mapping[int, Stamp] = field(default_factory=dict)

    @property
    def written(self) -> Iterable[Stamp]:
        return chain(() if self.write is None else (self.write,), self.updates.values())


NO_PAST = Past()


class History:
    """The shadow of one buffer. `proxies`: asynchronous agents see only writes that their writers fenced, which holds
    for memory and not for registers."""

    def __init__(self, clocks: "Clocks", elements: int, *, proxies: bool = True) -> None:
        self.clocks = clocks
        self.proxies = proxies
        self.past = np.zeros(elements, np.int64)
        self.pasts = [NO_PAST]
        self.room = LEAST_PASTS
        self.marks = np.empty(elements, np.int64)  # of an access, which of its elements is one

    def read(self, place: Array, agent: Array, statement: int) -> Violation | None:
        return self._access(self._read, place, agent, statement)

    def write(self, place: Array, agent: Array, statement: int) -> Violation | None:
        return self._access(self._written, place, agent, statement)

    def atomic(self, place: Array, agent: Array, statement: int) -> Violation | None:
        return self._access(self._updated, place, agent, statement)

    def touched_since(self, place: Array, agent: Array, times: Mapping[int, int]) -> Violation | None:
        """The first of these elements that its agent, whose access it is, touched after the agent's time."""
        for at in self._alike(place, agent)[0]:
            past, who = self.pasts[self.past[place[at]]], int(agent[at])
            for stamp in (*past.written, *past.reads.values()):
                if stamp.agent == who and stamp.time > times[who]:
                    missing = "no fence of registers lies between"
                    return Violation(
                        place=int(place[at]), agent=who, earlier=stamp.statement, earlier_agent=who, missing=missing
                    )
        return None

    # ---- an access of many elements -----------------------------------------------------------------------------

    def _access(self, after: "After", place: Array, agent: Array, statement: int) -> Violation | None:
        """Elements with one past and one agent at once; one by one where some are the same."""
        order = np.arange(len(place))
        self.marks[place] = order
        if (self.marks[place] == order).all():
            firsts, which = self._alike(place, agent)
        else:
            firsts, which = list(range(len(place))), None
        numbers: list[int] = []
        for at, who in zip(place[firsts].tolist(), agent[firsts].tolist(), strict=True):
            found = after(self.pasts[self.past[at]], who, statement)
            if not isinstance(found, Past):
                earlier, missing = found
                return Violation(
                    place=at, agent=who, earlier=earlier.statement, earlier_agent=earlier.agent, missing=missing
                )
            numbers.append(len(self.pasts))
            self.pasts.append(found)
            if which is None:
                self.past[at] = numbers[-1]
        if which is not None:
            self.past[place] = np.array(numbers, np.int64)[which]
        if len(self.pasts) > self.room:
            self._forget()
        return None

    def _alike(self, place: Array, agent: Array) -> tuple[list[int], Array]:
        """The first of each kind of elements, in their order, and of which kind each is: by past and agent."""
        kinds = self.past[place] * self.clocks.count + agent
        if (kinds == kinds[:1]).all():
            return [0] * min(1, len(kinds)), np.zeros(len(kinds), np.int64)
        _, firsts, which = np.unique(kinds, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        return firsts[order].tolist(), np.argsort(order)[which]

    def _forget(self) -> None:
        """Only the pasts of elements are kept."""
        used, self.past = np.unique(self.past, return_inverse=True)
        self.pasts = [self.pasts[number] for number in used.tolist()]
        self.room = max(LEAST_PASTS, 2 * len(self.pasts))

    # ---- an access of one ---------------------------------------------------------------------------------------

    def _read(self, past: Past, who: int, statement: int) -> "Past | Wrong":
        wrong = self._unordered(who, past.written, ())
        if wrong is not None:
            return wrong
        known = self.clocks.known[who]
        kept = {a: s for a, s in past.reads.items() if a != who and known[a] < s.time}
        return Past(past.write, past.updates, {**kept, who: self._stamp(who, statement)})

    def _written(self, past: Past, who: int, statement: int) -> "Past | Wrong":
        stamp = self._stamp(who, statement)
        if past.write == stamp:
            return stamp, "nothing orders"
        return self._unordered(who, past.written, past.reads.values()) or Past(stamp)

    def _updated(self, past: Past, who: int, statement: int) -> "Past | Wrong":
        written = () if past.write is None else (past.write,)
        wrong = self._unordered(who, written, past.reads.values())
        return wrong or Past(past.write, {**past.updates, who: self._stamp(who, statement)}, past.reads)

    def _stamp(self, agent: int, statement: int) -> Stamp:
        return Stamp(agent, int(self.clocks.known[agent, agent]), statement)

    def _unordered(self, who: int, wrote: Iterable[Stamp], read: Iterable[Stamp]) -> "Wrong | None":
        """The first earlier access that the agent does not know of, or a write that it misses for want of a fence."""
        wrote, known = tuple(wrote), self.clocks.known[who]
        for stamp in (*wrote, *read):
            if stamp.agent != who and known[stamp.agent] < stamp.time:
                return stamp, "nothing orders"
        if self.proxies and who in self.clocks.asynchronous:
            fenced = self.clocks.fenced[who]
            for stamp in wrote:
                if stamp.agent not in self.clocks.asynchronous and fenced[stamp.agent] < stamp.time:
                    return stamp, "no fence of the writer lies between"
        return None


Wrong = tuple[Stamp, str]
"""The earlier access of a conflict, and what is missing between the two."""

After = Callable[[Past, int, int], Past | Wrong]
"""The past of an element after an access by an agent, of a statement."""
