"""Groups of products of a launch, as its text goes: whose sums are on their way, and which nobody was told of."""

from collections.abc import Sequence


class Groups:
    """The sums of products in groups, in the order of the text: which of them are on their way."""

    def __init__(self, made: Sequence[str]) -> None:
        self.made = made
        self.open, self.settled = list[str](), set[str]()
        self.closed = list[list[str]]()

    def start(self, sums: str) -> None:
        self.open.append(sums)
        self.settled.discard(sums)

    def close(self) -> None:
        self.closed.append(self.open)
        self.open = []

    def over(self, behind: int) -> list[str]:
        """What is over when all groups but so many are, and nobody has been told yet."""
        kept = self.closed[-behind:] if behind else []
        done = (name for group in self.closed[:-behind] for name in group) if behind else self.made
        self.closed = kept
        late = {name for group in kept for name in group}
        found = [name for name in dict.fromkeys(done) if name not in late | self.settled]
        self.settled.update(found)
        return found
