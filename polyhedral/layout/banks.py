"""What an access in shared memory costs a warp: its wavefronts, by the banks of the words that it touches.

    column j of f32[32, 32], one lane a row:      32 wavefronts, all words in one bank
    of f32[32, 33], or under #pad(1):             1

A warp's request moves at most one word of each bank in a wavefront; lanes that want one word share it. Lanes with more
than a word each are served in groups: of 8 bytes half a warp, of 16 bytes a quarter.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from texpr.grammar.index.points import Points
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.place import NO_SIZES, coordinates
from texpr.polyhedral.layout.value import Layout, Unit
from texpr.polyhedral.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class BankUse:
    """`wavefronts` of one request and the `ideal` number for as many different words; `degree` is their quotient."""

    wavefronts: int
    ideal: int

    @property
    def degree(self) -> float:
        return self.wavefronts / self.ideal if self.ideal else 1.0


def bank_use(
    layout: Layout,
    element_bytes: int,
    points: Sequence[Any],
    target: Target,
    *,
    width: int = 1,
    sizes: Mapping[str, int] = NO_SIZES,
) -> BankUse:
    """The cost of one request: `points` are the subscripts of each active lane's first element, lane by lane, one array
    or `Points` for each dimension; each lane takes `width` elements from there on."""
    import numpy as np

    place = coordinates(layout, points, sizes)[Unit.ADDRESS]
    first = np.asarray(place.at if isinstance(place, Points) else place, dtype=np.int64).reshape(-1)
    return bank_use_of(first * element_bytes, width * element_bytes, target)


def bank_use_of(byte_addresses: Any, lane_bytes: int, target: Target) -> BankUse:
    """The cost of a request by the byte address of each active lane, in the order of lanes."""
    import numpy as np

    word = target.bank_bytes
    group = max(1, target.banks * word // max(lane_bytes, word))
    wavefronts = ideal = 0
    for start in range(0, len(byte_addresses), group):
        lanes = np.asarray(byte_addresses[start : start + group])
        reach = np.arange(0, lane_bytes, min(word, lane_bytes))
        words = np.unique((lanes[:, None] + reach) // word)
        wavefronts += int(np.bincount(words % target.banks).max())
        ideal += -(-len(words) // target.banks)
    return BankUse(wavefronts=wavefronts, ideal=ideal)
