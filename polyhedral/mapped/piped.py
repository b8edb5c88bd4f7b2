"""The form of products of matrices that a warpgroup brings tiles of; the other forms are in `candidate.py`."""

from collections.abc import Mapping
from dataclasses import field

from texpr.grammar.attributes import WARP
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.target import WARPGROUP

GROUP_ROWS = 64  # of a warpgroup's products
WHOLE = GROUP_ROWS // 2  # columns of a tile that are no multiple go back together
MOST_DOUBLED = 512  # columns of all warpgroups of a tile that goes back by two slots of each warp


@dataclass(frozen=True, slots=True, kw_only=True)
class Piped:
    """A band of products of matrices on the tensor cores of a target with wgmma: one warpgroup of a block brings tiles
    of both factors through a pipe of `stages`, the others multiply 64 rows each, or `high` times as many, or
    `alternate`: of two each makes every second tile.

    `tile`: the rows (`across`) and columns (`along`) of a block's tile. `cluster` blocks, one below the other, share
    the tiles of the columns' factor, of which each brings its part to all; or `abreast` of them, side by side, those of
    the rows' factor. Where neighbours of the result lie along the rows, tiles go back in boxes across if they are high,
    else by threads. The launch has so many `persistent` blocks, which stay for several tiles; these come in bands of
    `band` clusters, column after column. `box`: of rows that are several indices, `across` the last of them, how many
    values of each 64 rows have, powers of two.

    Where `split` is more than 1, so many blocks of a cluster have one tile: each a part of the products of its sums,
    and in the end a part of its columns, whose sums the others send to it.

    Where they are `streamed`, blocks share the steps of all tiles evenly: those that have steps of one tile leave their
    sums in memory, and the last one of them adds these in the order of the steps.

    Where there is a `rest`, the launch ends with the row before its `begin`, and the rest has a launch of its own
    behind it, in tiles of its own: rows of tiles that would be less than a wave of these.
    """

    along: str
    across: str
    tile: Mapping[str, int]
    stages: int
    persistent: int
    cluster: int = 1
    abreast: int = 1
    split: int = 1
    band: int = 8
    high: int = 1
    alternate: bool = False
    box: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[str, Memory] = field(default_factory=dict)
    streamed: bool = False
    begin: int = 0
    rest: "Piped | None" = None

    @property
    def groups(self) -> int:
        """The warpgroups that multiply."""
        return 2 if self.alternate else self.tile[self.across] // (GROUP_ROWS * self.high)

    @property
    def blocks(self) -> int:
        """How many times 64 rows of sums each of them holds."""
        return self.tile[self.across] // GROUP_ROWS if self.alternate else self.high

    @property
    def ranks(self) -> int:
        """The blocks that share tiles of a factor."""
        return self.cluster * self.abreast

    @property
    def slots(self) -> int:
        """Of what each of their warps sends back: one where that is whole rows, or the other group multiplies
        meanwhile, and where the tile is so large that a stage more is worth more: 192 x 192 of 3000³ in four stages
        takes 78.6 us on an H200, in three 83.0."""
        columns = self.tile[self.along]
        return 1 if self.alternate or columns % WHOLE or self.groups * columns > MOST_DOUBLED else 2

    @property
    def threads(self) -> int:
        return WARPGROUP * WARP * (1 + self.groups)
