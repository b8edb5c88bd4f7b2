"""What was submitted, as a text for each submission and a hash over all of them, to find out where ranks differ.

Every rank submits the same tasks in the same order. `Stream` keeps a running hash; every `EVERY` submissions, and
whenever somebody waits for all tasks, a rank tells the others how far it is and what its hash is there (a mark). Who
hears a mark compares it with its own hash at that place, or keeps it until it gets there. Texts are kept until all
ranks have agreed on them. Where hashes differ, ranks exchange their texts, and name the first that differ:

    rank 0    gemm(read A[0, 1], accumulate C[0, 0]) at rank 0    mark (64, "9f3c…")
    rank 1    gemm(read A[1, 0], accumulate C[0, 0]) at rank 0    mark (64, "41d8…")
"""

from collections import deque
from hashlib import blake2b
from typing import NamedTuple

EVERY = 64
BYTES = 8  # of a hash


class Mark(NamedTuple):
    """So many submissions, and the hash over all of them."""

    reached: int
    digest: str


class Stream:
    def __init__(self, others: list[int]) -> None:
        self.count = 0
        self._first = 0  # the number of the first text that is kept
        self._texts: deque[tuple[str, str]] = deque()  # and the hash behind each
        self._digest = b""
        self._agreed = dict.fromkeys(others, 0)
        self._early: dict[int, deque[Mark]] = {other: deque() for other in others}

    def add(self, text: str) -> Mark | None:
        """One more submission; a mark where one is due."""
        self._digest = blake2b(self._digest + text.encode(), digest_size=BYTES).digest()
        self._texts.append((text, self._digest.hex()))
        self.count += 1
        return self.mark() if self.count % EVERY == 0 else None

    def mark(self) -> Mark:
        return Mark(self.count, self._digest.hex())

    def hear(self, rank: int, mark: Mark) -> None:
        """Another rank's mark, to be compared by `differing`."""
        self._early[rank].append(mark)

    def differing(self) -> int | None:
        """A rank whose hash is another one at a place that both have reached; marks that agree are done with."""
        for rank, marks in self._early.items():
            while marks and marks[0].reached <= self.count:
                mark = marks.popleft()
                if mark.reached > self._first and self._texts[mark.reached - self._first - 1][1] != mark.digest:
                    return rank
                self._agreed[rank] = max(self._agreed[rank], mark.reached)
        while self._first < min(self._agreed.values()):
            self._texts.popleft()
            self._first += 1
        return None

    def ahead(self) -> int | None:
        """A rank that is further than this one."""
        return next((rank for rank, marks in self._early.items() if marks), None)

    def kept(self) -> tuple[int, list[str]]:
        """The number of the first text that is kept, and all of them."""
        return self._first, [text for text, _ in self._texts]

    def first_difference(self, first: int, texts: list[str]) -> tuple[int, str, str] | None:
        """The first submission that differs from another rank's, as its number, the own text and the other one."""
        for number in range(max(first, self._first), max(first + len(texts), self.count)):
            own = self._texts[number - self._first][0] if number < self.count else "nothing"
            other = texts[number - first] if number < first + len(texts) else "nothing"
            if own != other:
                return number, own, other
        return None
