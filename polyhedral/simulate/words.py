"""Counters and flags between blocks, and what their changes tell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.between import Init, Words
from texpr.polyhedral.simulate.clocks import NOTHING, Snapshot
from texpr.polyhedral.simulate.failure import failure

Word = tuple[str, tuple[int, ...]]


@dataclass(slots=True)
class WordMemory:
    """The words of a call: values of counters, and what is known by who finds a flag set or a counter counted."""

    declared: Mapping[str, Words]
    values: Mapping[str, int]
    counts: dict[Word, int] = field(default_factory=dict)
    published: dict[Word, Snapshot] = field(default_factory=dict)
    counted: dict[Word, Snapshot] = field(default_factory=dict)

    def word(self, name: str, at: Sequence[int], span: Span) -> Word:
        """The word; one outside its workspace or without a first value is an error."""
        words = self.declared[name]
        extents = tuple(int(index_value(e, self.values)) for e in words.shape)
        if len(at) != len(extents) or any(not 0 <= n < extent for n, extent in zip(at, extents, strict=True)):
            raise failure(f"{name} has {math.prod(extents)} words, and {name}{list(at)} is none of them", span)
        if words.init is Init.NONE:
            raise failure(f"{name}{list(at)} is used and nothing ever wrote to it", span)
        return name, tuple(at)

    def draw(self, word: Word) -> int:
        """The next number of a counter of turns."""
        self.counts[word] = self.counts.get(word, 0) + 1
        return self.counts[word] - 1

    def publish(self, word: Word, snapshot: Snapshot, span: Span) -> None:
        if word in self.published:
            raise failure(f"{word[0]}{list(word[1])} is published a second time", span)
        self.published[word] = snapshot

    def count(self, word: Word, n: int, snapshot: Snapshot) -> Snapshot | None:
        """One more of `n`: what the last one learns."""
        self.counted[word] = self.counted.get(word, NOTHING).union(snapshot)
        self.counts[word] = self.counts.get(word, 0) + 1
        if self.counts[word] != n:
            return None
        self.counts[word] = 0
        return self.counted[word]

    def settle(self) -> None:
        """All that ran so far is over, and known to what follows."""
        self.published = dict.fromkeys(self.published, NOTHING)
        self.counted.clear()

    def left(self) -> str | None:
        """A word that the next call would find changed."""
        for (name, at), count in self.counts.items():
            if count and self.declared[name].init is Init.ZERO_ONCE:
                return f"{name}{list(at)} is {count} when the call ends, and the next call expects 0"
        for name, at in self.published:
            if self.declared[name].init is Init.ZERO_ONCE:
                return f"{name}{list(at)} is published when the call ends, and the next call expects that it is not"
        return None
