"""Tiled index spaces: what a tensor's dimensions are made of.

A space of `extent` indices is cut in tiles; tile t holds the indices `bounds[t]` to `bounds[t + 1] - 1`. Named
subranges are runs of whole tiles:

    tiled(10, 4)                                  bounds (0, 4, 8, 10)
    tiled(10, 4, {"occ": (0, 6)})                 bounds (0, 4, 6, 10), occ = tiles 0 and 1
    tiled(10, (3, 3, 4))                          bounds (0, 3, 6, 10)
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

from texpr.grammar.diagnostics import did_you_mean, fail
from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True)
class TiledSpace:
    """The bounds of the tiles, the extent last, and the named runs of tiles as (name, first tile, tile behind)."""

    bounds: tuple[int, ...]
    subranges: tuple[tuple[str, int, int], ...] = ()

    @property
    def extent(self) -> int:
        return self.bounds[-1]

    @property
    def n_tiles(self) -> int:
        return len(self.bounds) - 1

    def tile_extent(self, tile: int) -> int:
        return self.bounds[tile + 1] - self.bounds[tile]

    def tiles_of(self, name: str) -> range:
        """The tiles of a named subrange. Raises E0702."""
        for known, first, behind in self.subranges:
            if known == name:
                return range(first, behind)
        names = [known for known, _, _ in self.subranges]
        raise fail("E0702", f"the space has no subrange `{name}`", help=did_you_mean(name, names, _told(names)))

    def __getitem__(self, name: str) -> "TiledSpace":
        """A named subrange as a space of its own, whose indices begin at 0, with the subranges that lie in it."""
        tiles = self.tiles_of(name)
        start = self.bounds[tiles.start]
        inside = tuple(
            (known, first - tiles.start, behind - tiles.start)
            for known, first, behind in self.subranges
            if tiles.start <= first and behind <= tiles.stop
        )
        return TiledSpace(tuple(b - start for b in self.bounds[tiles.start : tiles.stop + 1]), inside)


def _told(names: Sequence[str]) -> str | None:
    return f"its subranges are {', '.join(names)}" if names else None


def tiled(extent: int, tile: int | Sequence[int], subranges: Mapping[str, tuple[int, int]] | None = None) -> TiledSpace:
    """A space of `extent` indices in tiles of one extent (the last one may be smaller), or of the extents given.

    `subranges` names half-open ranges of indices. Regular tiles start anew at their bounds; tiles that are given one by
    one must have a bound there. Raises E0701.
    """
    if not is_count(extent):
        raise fail("E0701", f"a space has a number of indices, not {extent!r}")
    named = dict(subranges or {})
    for name, pair in named.items():
        whole = isinstance(pair, tuple | list) and len(pair) == 2 and all(map(is_count, pair))
        if not isinstance(name, str) or not whole or not pair[0] <= pair[1] <= extent:
            raise fail("E0701", f"subrange {name!r} is a pair of indices 0 <= start <= stop <= {extent}, not {pair!r}")
    if isinstance(tile, int):
        if not is_count(tile) or tile == 0:
            raise fail("E0701", f"a tile holds at least one index, not {tile!r}")
        stops = sorted({0, extent, *(bound for pair in named.values() for bound in pair)})
        bounds = [b for low, high in pairwise(stops) for b in range(low, high, tile)] + [extent]
    else:
        extents = list(tile)
        if not all(is_count(e) and e > 0 for e in extents):
            raise fail("E0701", f"tiles hold at least one index each, not {extents!r}")
        if sum(extents) != extent:
            raise fail("E0701", f"the tiles hold {sum(extents)} indices, and the space has {extent}")
        bounds = [sum(extents[:k]) for k in range(len(extents) + 1)]
    runs = []
    for name, (start, stop) in named.items():
        for bound in (start, stop):
            if bound not in bounds:
                raise fail(
                    "E0701",
                    f"subrange `{name}` has a bound at {bound}, inside a tile",
                    help=f"give tiles with bounds at {start} and {stop}, or one extent for all tiles",
                )
        runs.append((name, bisect_left(bounds, start), bisect_left(bounds, stop)))
    return TiledSpace(tuple(bounds), tuple(runs))


def is_count(value: object) -> bool:
    """Whether it is an integer that is not negative, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
