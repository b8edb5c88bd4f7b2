"""New names for a kernel: indices, buffers and statements that a stage adds to those of the author."""

import re
from collections.abc import Sequence

from texpr.grammar.ast import Kernel, Par, Seq
from texpr.grammar.core import statements


class Names:
    """Names that are not taken yet in one kernel."""

    def __init__(self, taken: Sequence[str]) -> None:
        self._taken = set(taken)

    def fresh(self, wanted: str) -> str:
        """`wanted`, or `wanted_1`, `wanted_2`, … where it is taken; the name is then taken."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name


def stem(name: str) -> str:
    """A name without the number that keeps it apart from others that the author called alike: `i` of `i_1`."""
    return re.sub(r"(?<=.)_[0-9]+$", "", name)


def names_taken(kernel: Kernel) -> tuple[str, ...]:
    """The names of a kernel's loops, buffers and sizes."""
    loops = tuple(s.index for s in statements(kernel.body) if isinstance(s, Par | Seq))
    return loops + tuple(b.name for b in kernel.buffers) + tuple(s.name for s in kernel.sizes)
