"""Tiles that the author chose: `#tile(8, 64)` on an outermost band says how many iterations of its indices a block has.

par M i, N j #tile(8, 64)                                       i = 8*i_block + …, j = 64*j_block + …
par M i, N j #tile(block: 8, 128, warp: 1, 128, thread: 1, 4)   a warp has 128 of j, each lane four of these
seq K k #tile(8)                                                8 iterations together, or products of a contraction

The threads of a block share its tile out, in turns where it has more iterations than they take at once, or as the
author says. The sizes bind every candidate of the launch, so that no candidate repeats them.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from texpr.grammar.ast import Attr, IndexConst, IndexExpr, Par, Seq
from texpr.grammar.diagnostics import Diagnostic, error, fail
from texpr.grammar.index.expr import constant_value
from texpr.grammar.permissions import tile_of
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.digits import power_of_two
from texpr.polyhedral.mapped.candidate import Deal
from texpr.polyhedral.target import Target

HELP = "write #tile with the sizes of a block on an outermost band, or remove it"
SHARES = ("block", "warp", "thread")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What the author gives a `block` of each index of its band, a `warp` of that, and a `thread` of that; a level that
    is not said is empty."""

    block: Mapping[str, int]
    warp: Mapping[str, int]
    thread: Mapping[str, int]

    @property
    def by_level(self) -> bool:
        """Whether more than the tile of a block is said."""
        return bool(self.warp or self.thread)


def tile_asked(pars: Sequence[Par]) -> Mapping[str, int]:
    """The iterations of each index that a block takes, where the author says so. Raises E0401 for a size that is not
    known, or larger than the extent."""
    return shares_asked(pars).block


def shares_asked(pars: Sequence[Par]) -> Shares:
    """The sizes of each level. Raises E0401 for one that is not known, or does not divide the one above it."""
    found = {level: dict[str, int]() for level in SHARES}
    seen: dict[tuple[str, int, int] | None, int] = {}
    for par in pars:
        attr = tile_of(par)
        if attr is None:
            continue
        number = seen[attr.span.place] = seen.get(attr.span.place, -1) + 1  # it stands on each loop of its band
        above = None
        for level, sizes in levels_of(attr).items():
            size = found[level][par.index] = _size(par, attr, sizes[number])
            if above is not None and above[1] % size:
                has, of = f"a {level} has {size} iterations of {par.index}", f"the {above[1]} of a {above[0]}"
                message = f"{has}, which do not divide {of}"
                raise fail("E0401", message, attr.span, "this attribute", help="let each size divide the one before")
            above = level, size
    return Shares(**found)


def levels_of(attr: Attr) -> dict[str, tuple[IndexExpr | str, ...]]:
    """The sizes of each level of a `#tile`; those without a word are a block's."""
    found: dict[str, tuple[IndexExpr | str, ...]] = {}
    level = "block"
    for word, size in zip(attr.levels, attr.args, strict=True):
        level = word or level
        found[level] = (*found.get(level, ()), size)
    return found


def serial_tile(seq: Par | Seq) -> int | None:
    """How many iterations of a `seq` the author puts together; those of a `par` are no thread's. Raises
    E0401 for a number that is not known or larger than the extent."""
    attr = tile_of(seq) if isinstance(seq, Seq) else None
    return None if attr is None else _size(seq, attr, attr.args[0])


def _size(loop: Par | Seq, attr: Attr, value: IndexExpr | str) -> int:
    extent = constant_value(loop.extent)
    if not isinstance(value, IndexConst):
        help = "bind the size, or write a number"
        raise fail("E0401", "how many iterations a tile has is not known", attr.span, "a free size", help=help)
    if extent is not None and value.value > max(extent, 1):
        message = f"a tile has {value.value} iterations of {loop.index}, and there are {extent}"
        raise fail("E0401", message, attr.span, "this attribute", help=f"write at most {max(extent, 1)}")
    return value.value


def warp_deal(shares: Shares, widths: Mapping[str, int], order: Sequence[str], attr: Attr, target: Target) -> Deal:
    """Threads dealt to indices as warps and threads have shares of them. Raises E0401 for shares that are not those of
    whole warps."""
    lanes = {i: shares.warp[i] // widths.get(i, 1) for i in order if i in shares.warp}
    count = prod(lanes.values())
    if count != target.warp_size or any(shares.warp[i] % widths.get(i, 1) for i in lanes):
        message = f"a warp's tile has shares for {count} threads, and a warp has {target.warp_size}"
        help = "write sizes of warps and threads whose quotients are so many together"
        raise fail("E0401", message, attr.span, "this attribute", help=help)
    warps = {i: shares.block[i] // shares.warp[i] for i in lanes}
    threads = count * prod(warps.values())
    if threads > target.max_threads:
        message = f"a tile has shares for {threads} threads, and a block has at most {target.max_threads}"
        raise fail("E0401", message, attr.span, "this attribute", help="write larger shares, or a smaller tile")
    pieces = [(index, n) for level in (lanes, warps) for index, n in level.items() if n > 1]
    merged = list[tuple[str, int]]()
    for index, n in pieces:
        if merged and merged[-1][0] == index:
            n *= merged.pop()[1]
        merged.append((index, n))
    return tuple(merged)


def tile_deal(
    tile: Mapping[str, int], runs: Mapping[str, int], order: Sequence[str], threads: int
) -> tuple[tuple[str, int], ...]:
    """Threads dealt to indices, fastest first: as many as have equal shares of the tile, whose runs there are so many
    of; what is no power of two of them is left to turns."""
    left, pieces = threads, list[tuple[str, int]]()
    for index in order:
        own = runs[index]
        mine = min(left & -left, own & -own if index in tile else power_of_two(own))
        if mine > 1:
            pieces.append((index, mine))
            left //= mine
    return tuple(pieces)


def tile_turns(tile: Mapping[str, int], deal: Deal, widths: Mapping[str, int]) -> dict[str, int]:
    """How often threads so dealt come to the indices of a tile, where more than once."""
    return {i: size // n for i, size in tile.items() if size // (n := at_once(i, deal, widths)) > 1}


def at_once(index: str, deal: Deal, widths: Mapping[str, int]) -> int:
    """The iterations of an index that the threads of a block take at once."""
    return prod((n for i, n in deal if i == index), start=widths.get(index, 1))


def tile_faults(par: Par) -> Iterator[Diagnostic]:
    """Why the levels of a `#tile` cannot be."""
    attr = tile_of(par)
    if attr is None:
        return
    levels = tuple(levels_of(attr))
    if any(level not in SHARES for level in levels):
        others = " and ".join(level for level in levels if level not in SHARES)
        yield tile_refused(attr, f"a {others} has no tiles", "write sizes of a block, its warps and its threads")
    elif levels[0] != "block":
        why = "what a warp or a thread has is a share of a block's"
        yield tile_refused(attr, why, "write the sizes of a block first")


def tile_refused(attr: Attr, why: str, help: str = HELP) -> Diagnostic:
    """E0402 for a tile that cannot be."""
    return error("E0402", f"#tile is not mapped here: {why}", attr.span, "this attribute", help=help)
