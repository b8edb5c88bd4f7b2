"""Whether a choice keeps the author's tiles: those of bands, of warps and threads in them, and of serial loops."""

from collections.abc import Sequence
from math import prod

from texpr.grammar.ast import Attr, Par, Seq, Stmt
from texpr.grammar.attributes import WARP
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.permissions import tile_of
from texpr.polyhedral.map.author_tiles import Shares, at_once, serial_tile, shares_asked, tile_refused
from texpr.polyhedral.map.contracted_tiles import lanes
from texpr.polyhedral.mapped.candidate import Blocks, Choice, Contracted, Deal, Flat, Single, Tiled, widths_of


def check_tiles(stmts: tuple[Stmt, ...], band: Sequence[Par], choice: Choice) -> None:
    """Raises E0402 for a `#tile` in a launch that its choice does not obey, E0401 for threads without equal shares."""
    asked = [(s, attr) for s in statements(stmts) if isinstance(s, Par | Seq) and (attr := tile_of(s)) is not None]
    outer = {par.index for par in band}
    for loop, attr in asked:
        if isinstance(loop, Seq):
            _check_serial(stmts, loop, attr, choice)
        elif loop.index not in outer:
            raise TExprError((tile_refused(attr, "only an outermost band of `par`s has tiles, one for each block"),))
    bands = [attr for loop, attr in asked if isinstance(loop, Par)]
    if bands:
        _check_band(shares_asked(band), bands[0], choice)


def _check_serial(stmts: tuple[Stmt, ...], seq: Seq, attr: Attr, choice: Choice) -> None:
    """A tile of a `seq` is its iterations that a thread runs together, or how deep the tiles of a contraction are."""
    size = serial_tile(seq)
    match choice:
        case Contracted(depth=depth) if size != depth or sum(isinstance(s, Seq) for s in statements(stmts)) > 1:
            why = f"the tiles of the contraction are {depth} deep"
        case Contracted() | Single() | Flat() | Tiled():
            return
        case Blocks(shared_out=shared_out, rows=rows):
            if seq.index not in (*shared_out, *(index for row in rows for index in row.indices)):
                return
            why = "the threads of a block share its iterations out"
        case _:
            why = "threads share its iterations out, with the loads ahead that the memory needs"
    help = "write #unroll(n) or #vector(n) for the iterations that a thread takes at a time, or remove it"
    raise TExprError((tile_refused(attr, why, help),))


def _check_band(shares: Shares, attr: Attr, choice: Choice) -> None:
    tile, widths = shares.block, widths_of(choice)
    match choice:
        case Flat():
            widths = choice.taken
            for index, size in tile.items():
                covered = at_once(index, choice.deal, widths)
                if size % covered or choice.lines:
                    what = f"the threads take {covered} iterations of {index} at once, and a tile has {size}"
                    raise fail("E0401", what, attr.span, "this attribute", help=f"write a multiple of {covered}")
            if any(size != choice.turns.get(i, 1) * at_once(i, choice.deal, widths) for i, size in tile.items()):
                raise TExprError((tile_refused(attr, "the candidate has other turns"),))
            each = {index: widths.get(index, 1) for index in tile}
            found = each, {index: n * _lanes(index, choice.deal) for index, n in each.items()}
        case Tiled() if not shares.by_level:
            found = {}, {}
            if choice.lines or any(choice.tile.get(index, 1) != size for index, size in tile.items()):
                raise TExprError((tile_refused(attr, "the candidate has other tiles"),))
        case Contracted():
            if any(choice.tile.get(index, 1) != size for index, size in tile.items()):
                raise TExprError((tile_refused(attr, "the candidate has other tiles"),))
            each = {index: choice.each.get(index, 1) for index in tile}
            found = each, {i: n * prod(t for side, t in lanes(choice, WARP)[:2] if side == i) for i, n in each.items()}
        case Tiled():
            raise TExprError(
                (tile_refused(attr, "warps and threads of a block that stages its tile have other shares"),)
            )
        case _:
            why = "each iteration has a block, or threads share a reduction out"
            raise TExprError((tile_refused(attr, why),))
    for level, asked, own in zip(("thread", "warp"), (shares.thread, shares.warp), found, strict=True):
        wrong = next((index for index, size in asked.items() if own[index] != size), None)
        if wrong is not None:
            why = f"a {level} can have {own[wrong]} iterations of {wrong} here, and not {asked[wrong]}"
            raise TExprError((tile_refused(attr, why, "write other sizes, or leave them to the compiler"),))


def _lanes(index: str, deal: Deal) -> int:
    """The threads of a warp along an index."""
    done, found = 1, 1
    for other, n in deal:
        mine = min(n, max(WARP // done, 1))
        found *= mine if other == index else 1
        done *= n
    return found
