"""The layout that the author's attributes give a buffer.

new t: f32[4, 8] #pad                   (4, 8): address x0 * 9 + x1
A: f32[M, N] #strides(lda, 1)           (M, N): address x0 * lda + x1
new shared t: f16[32, 64] #swizzle      (32, 64): address x0 * 64 + x1, xor(bits 3, base 3, shift 3)
"""

from dataclasses import replace

from texpr.grammar.ast import Attr, Buffer
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import ONE, constant_value
from texpr.grammar.permissions import padding_of, swizzle_of
from texpr.polyhedral.layout.make import SWIZZLES, padded, row_major, strided, swizzled
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.layout.value import Layout, Xor


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


def shared_layout(buffer: Buffer) -> Layout:
    """In shared memory, where `#swizzle` is obeyed: with bits of the byte address, or as the hardware swizzles, by the
    widest row that it has for the buffer's. Raises E0402 where it has none."""
    attr = swizzle_of(buffer)
    if attr is None:
        return declared_layout(buffer)
    size = buffer.dtype.size_bytes
    numbers = _numbers(attr)
    if numbers:
        bits, base, shift = numbers
        return replace(declared_layout(buffer), xor=Xor(bits=bits, base=base - (size.bit_length() - 1), shift=shift))
    shape = [constant_value(extent) or 0 for extent in buffer.shape]
    row_bytes = shape[-1] * size
    width = next((w for w in sorted(SWIZZLES, reverse=True) if row_bytes % w == 0), None)
    if width is None:
        raise fail(
            "E0402",
            f"#swizzle has nothing for rows of {row_bytes} bytes: the hardware's are of 128, 64 or 32",
            attr.span,
            "this attribute",
            help=f"make the rows a multiple of {min(SWIZZLES) // size} elements, or write #swizzle(bits, base, shift)",
        )
    return canonical(swizzled(shape, size, width))


def _numbers(attr: Attr) -> list[int]:
    found = [constant_value(arg) for arg in attr.args if not isinstance(arg, str)]
    return [number for number in found if number is not None]
