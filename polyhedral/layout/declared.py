"""The layout that the author's attributes give a buffer.

new t: f32[4, 8] #pad            (4, 8): address x0 * 9 + x1
A: f32[M, N] #strides(lda, 1)    (M, N): address x0 * lda + x1
"""

from texpr.grammar.ast import Buffer
from texpr.grammar.index.expr import ONE
from texpr.grammar.permissions import padding_of
from texpr.polyhedral.layout.make import padded, row_major, strided
from texpr.polyhedral.layout.value import Layout


def declared_layout(buffer: Buffer) -> Layout:
    """By `#strides`, `#layout` or `#pad`, and dense without them."""
    if buffer.strides is not None:
        return strided(buffer.shape, buffer.strides)
    pad = padding_of(buffer)
    if pad is None:
        return row_major(buffer.shape)
    amount = pad.args[0] if pad.args else ONE
    assert not isinstance(amount, str), "the table has no words for it"
    return padded(buffer.shape, amount)
