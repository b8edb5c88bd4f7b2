"""A graph of happens-before: points, what is directly before what, and which of them are before which others."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import field

from texpr.grammar.records import dataclass


@dataclass(slots=True)
class Graph:
    """Points, numbered as they come, each with the numbers of those directly before it; some have a name."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    before: list[list[int]] = field(default_factory=list)
    awaited: list[list[int]] = field(default_factory=list)  # what a point waits for besides, and learns nothing of

    def point(self, name: Hashable) -> int:
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.before)
            self.before.append([])
            self.awaited.append([])
        return number

    def fresh(self, count: int) -> int:
        """So many points without a name; the number of the first."""
        first = len(self.before)
        self.before += [[] for _ in range(count)]
        self.awaited += [[] for _ in range(count)]
        return first

    def wait(self, first: int, then: int) -> None:
        """The second point comes after the first one, and what happened before that may not be seen."""
        self.awaited[then].append(first)

    def edge(self, first: int, then: int) -> None:
        self.before[then].append(first)

    def sorted(self) -> tuple[list[int], list[int]]:
        """All points, each behind those before it; and those that wait for one another in a circle, or behind one."""
        after: list[list[int]] = [[] for _ in self.before]
        left = [len(known) + len(others) for known, others in zip(self.before, self.awaited, strict=True)]
        for every in (self.before, self.awaited):
            for number, earlier in enumerate(every):
                for first in earlier:
                    after[first].append(number)
        found = [number for number, count in enumerate(left) if not count]
        for number in found:
            for then in after[number]:
                left[then] -= 1
                if not left[then]:
                    found.append(then)
        return found, [number for number, count in enumerate(left) if count]

    def unordered(self, pairs: Sequence[tuple[int, int]], order: Iterable[int]) -> list[int]:
        """The numbers of the pairs whose first point is not before their second; `order` is that of `sorted`."""
        bits: dict[int, int] = {}
        for first, _ in pairs:
            bits.setdefault(first, 1 << len(bits))
        reached = [0] * len(self.before)
        for number in order:
            known = bits.get(number, 0)
            for earlier in self.before[number]:
                known |= reached[earlier]
            reached[number] = known
        return [n for n, (first, then) in enumerate(pairs) if first == then or not reached[then] & bits[first]]
