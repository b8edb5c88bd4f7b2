"""The form of products of matrices by single warps; the other forms are in `candidate.py`."""

from collections.abc import Mapping
from dataclasses import field
from math import prod

from texpr.grammar.attributes import WARP
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.places import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Ringed:
    """A band of products of matrices on the tensor cores of any target that has them: the threads of a block bring
    tiles of both factors, `depth` products deep, into a ring of `stages`, while its warps multiply those before.

        C[i, j] = sum K k { A[i, k] * B[k, j] }      along j, across i, tiles of 128 by 128, 64 by 64 a warp

    `tile`: the rows (`across`) and columns (`along`) of a block's tile, `each`: those of a warp. Tiles come in bands of
    `band` rows of them, column after column. `resident` blocks fit on a multiprocessor together, which bounds
    registers.
    """

    along: str
    across: str
    tile: Mapping[str, int]
    each: Mapping[str, int]
    depth: int
    stages: int
    band: int = 8
    resident: int = 1
    memory: Mapping[str, Memory] = field(default_factory=dict)

    @property
    def warps(self) -> int:
        return prod(self.tile[side] // self.each[side] for side in (self.across, self.along))

    @property
    def threads(self) -> int:
        return WARP * self.warps
