"""Tiles that the author chose: `#tile(8, 64)` on an outermost band says how many iterations of its indices a block has.

par M i, N j #tile(8, 64)     i = 8*i_block + …, j = 64*j_block + …

The threads of a block share its tile out, in turns where it has more iterations than they take at once. The sizes bind
every candidate of the launch, so that no candidate repeats them.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from texpr.grammar.ast import Attr, IndexConst, Par, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import Diagnostic, TExprError, error, fail
from texpr.grammar.index.expr import constant_value
from texpr.grammar.permissions import tile_of
from texpr.polyhedral.map.digits import power_of_two
from texpr.polyhedral.mapped.candidate import Choice, Deal, Flat, Tiled, widths_of

HELP = "write #tile with the sizes of a block on an outermost band, or remove it"


def tile_asked(pars: Sequence[Par]) -> dict[str, int]:
    """The iterations of each index that a block takes, where the author says so. Raises E0401 for a size that is not
    known, or larger than the extent."""
    found: dict[str, int] = {}
    seen: dict[tuple[str, int, int] | None, int] = {}
    for par in pars:
        attr = tile_of(par)
        if attr is None:
            continue
        number = seen[attr.span.place] = seen.get(attr.span.place, -1) + 1  # it stands on each loop of its band
        found[par.index] = _side(par, attr, number)
    return found


def _side(par: Par, attr: Attr, number: int) -> int:
    value, extent = attr.args[number], constant_value(par.extent)
    if not isinstance(value, IndexConst):
        help = "bind the size, or write a number"
        raise fail("E0401", "how many iterations a tile has is not known", attr.span, "a free size", help=help)
    if extent is not None and value.value > max(extent, 1):
        message = f"a tile has {value.value} iterations of {par.index}, and there are {extent}"
        raise fail("E0401", message, attr.span, "this attribute", help=f"write at most {max(extent, 1)}")
    return value.value


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
    return {i: size // n for i, size in tile.items() if size // (n := _at_once(i, deal, widths)) > 1}


def _at_once(index: str, deal: Deal, widths: Mapping[str, int]) -> int:
    return prod((n for i, n in deal if i == index), start=widths.get(index, 1))


def tile_faults(par: Par) -> Iterator[Diagnostic]:
    """Why the levels of a `#tile` cannot be."""
    attr = tile_of(par)
    if attr is not None and any(level not in (None, "block") for level in attr.levels):
        yield _refused(attr, "the threads of a block share its tile out as the compiler finds best")


def check_tiles(stmts: tuple[Stmt, ...], band: Sequence[Par], choice: Choice) -> None:
    """Raises E0402 for a `#tile` in a launch that its choice does not obey, E0401 for threads without equal shares."""
    asked = [(s, attr) for s in statements(stmts) if isinstance(s, Par | Seq) and (attr := tile_of(s)) is not None]
    if not asked:
        return
    outer = {par.index for par in band}
    for loop, attr in asked:
        if loop.index not in outer:
            raise TExprError((_refused(attr, "only an outermost band of `par`s has tiles, one for each block"),))
    tile, widths = tile_asked(band), widths_of(choice)
    match choice:
        case Flat():
            for index, size in tile.items():
                covered = _at_once(index, choice.deal, widths)
                if size % covered or choice.lines:
                    what = f"the threads take {covered} iterations of {index} at once, and a tile has {size}"
                    raise fail("E0401", what, asked[0][1].span, "this attribute", help=f"write a multiple of {covered}")
            if any(size != choice.turns.get(i, 1) * _at_once(i, choice.deal, widths) for i, size in tile.items()):
                raise TExprError((_refused(asked[0][1], "the candidate has other turns"),))
        case Tiled():
            if choice.lines or any(choice.tile.get(index, 1) != size for index, size in tile.items()):
                raise TExprError((_refused(asked[0][1], "the candidate has other tiles"),))
        case _:
            why = "each iteration has a block, or threads share a reduction out"
            raise TExprError((_refused(asked[0][1], why),))


def _refused(attr: Attr, why: str) -> Diagnostic:
    return error("E0402", f"#tile is not mapped here: {why}", attr.span, "this attribute", help=HELP)
