"""All hand-built graphs with arrays to run on and what they hold afterwards; tests run them, or spoil them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from crossings import exchanged, look_back, named, overlapping, ticket, two_passes
from rings import groups, handed_on, multicast, ring, staged

from texpr.grammar.index.value import index_value
from texpr.polyhedral.mapped.program import MappedProgram


@dataclass(frozen=True)
class Graph:
    """A program with the sizes that its arrays give it, and the function that says what it computes."""

    program: MappedProgram
    sizes: dict[str, int]
    result: str
    expected: Callable[[Any], Any]

    def arrays(self) -> dict[str, Any]:
        found = {}
        for buffer in self.program.kernel.params:
            shape = tuple(int(index_value(e, self.sizes)) for e in buffer.shape)
            found[buffer.name] = np.zeros(shape, np.int32)
        found["A"] = np.random.default_rng(1).integers(-99, 99, found["A"].shape).astype(np.int32)
        return found


def _swapped(a: Any) -> Any:
    return a.sum(0)[None, :32] + a.sum(0)[None, :31:-1] + np.zeros((2, 1), np.int32)


GRAPHS = {
    **{f"ring {n}": Graph(ring(n), {"K": 5}, "B", lambda a: a.sum(0)[::-1]) for n in (1, 2, 3, 4)},
    **{f"multicast {n}": Graph(multicast(n), {"K": 5}, "B", _swapped) for n in (1, 2, 3, 4)},
    **{f"handed on {n}": Graph(handed_on(n), {"K": 5}, "B", lambda a: 2 * a[:, ::-1]) for n in (1, 2, 3)},
    **{f"staged {n}": Graph(staged(n), {"K": 5}, "B", lambda a: a.sum(0)[::-1]) for n in (1, 2, 3, 4)},
    "groups": Graph(groups(), {"K": 5}, "B", lambda a: a[:, ::-1]),
    "named": Graph(named(), {}, "B", lambda a: a + 1),
    "exchanged": Graph(exchanged(), {}, "B", lambda a: a[::-1, ::-1] + a),
    "look-back": Graph(look_back(), {"N": 6}, "P", lambda a: a.cumsum(0)),
    "ticket": Graph(ticket(), {"N": 6}, "B", lambda a: a.sum(0)[::-1]),
    "two passes": Graph(two_passes(), {"N": 6}, "B", lambda a: a[::-1]),
    "overlapping": Graph(overlapping(), {"N": 6}, "B", lambda a: a[::-1] + a),
}
