"""Words: in which word of its chunk every access at any address of a long row's loop begins, which a block knows.

    for j_1_serial < 13  (serial, unrolled, in the word of G[-1 * lead])
      copy G_run[e] = G[j_first + e] for e < 8  (now, funnel)

The loop is written out once for each word, and a block takes the one that is its row's: an access needs no selection
among the words of its two chunks, which takes as many instructions as all that a norm computes. On an H200 LayerNorm of
257 x 100003 in f32 runs at .76 of a copy so, at .71 without, RMSNorm in bf16 at .85 and .81. Where several vectors of
narrow elements stand beside a row compilers keep what they should compute again (LayerNorm of that in bf16 takes 416
bytes of a thread's memory). Of short rows a multiprocessor has several at a time, and no room for so much text beside
one another (LayerNorm of 32749 x 4093 in bf16: .82, and .85 without).
"""

from texpr.grammar.ast import Gather, IndexExpr
from texpr.grammar.index.expr import ZERO
from texpr.grammar.index.linear import linear
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.row_tiles import RowTile
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Wide, along, at
from texpr.polyhedral.mapped.views import View

WORD_BYTES = 4


def row_word(draft: Draft, nest: Nest, tile: RowTile, hardware: tuple[str, ...]) -> View | None:
    """The element whose word is that of a loop over a row in slots, whose runs are whole chunks from a line on; None
    where accesses at any address are none, or begin in several words."""
    if not tile.slots or tile.lead is None or tile.rounds == 1 or len(nest.pars) > 1:
        return None
    index = nest.indices[0]
    found = along(draft.problem, nest.body, index, hardware, tile.elements(index), tile.origin(index))
    shifted = [wide for wide in found.vectors(tile.width).wide if wide.funnel]
    if not shifted or not all(_is_alike(draft, wide, shifted[0], index) for wide in shifted):
        return None
    if len(shifted) > 1 and shifted[0].dtype.size_bytes < WORD_BYTES:
        return None
    name, subscripts = shifted[0].element
    return View(buffer=name, subscripts=at(subscripts, index, tile.begin), dtype=shifted[0].dtype)


def _is_alike(draft: Draft, wide: Wide, first: Wide, index: str) -> bool:
    """Whether an access is as far behind a chunk as the first one, in words that a thread selects."""

    def begin(one: Wide) -> tuple[IndexExpr, ...]:
        return tuple(s for s in at(one.element[1], index, ZERO) if not isinstance(s, Gather))

    problem, (name, subscripts) = draft.problem, wide.element
    layout = problem.layouts[name]
    if any(isinstance(s, Gather) for s in subscripts) or layout.xor is not None or wide.dtype != first.dtype:
        return False
    if problem.kernel.buffer(name).align % ACCESS_BYTES or wide.dtype.size_bytes > WORD_BYTES:
        return False
    there = linear(offset(problem.layouts[first.element[0]], begin(first)))
    return (linear(offset(layout, begin(wide))) - there).is_multiple(wide.whole, problem.divisors)
