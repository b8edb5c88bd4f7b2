"""Products of elements of flat arrays that tensor cores could multiply: what a schedule sees with dimensions."""

from texpr.grammar.ast import Accumulate, Fn, Kernel, Op, Read, Role
from texpr.grammar.core import statements
from texpr.grammar.permissions import may_use_tf32
from texpr.grammar.types import F32
from texpr.grammar.walk import walk

NARROW_BYTES = 2  # of a type that tensor cores multiply unasked


def has_flat_factors(kernel: Kernel) -> bool:
    """Whether the kernel adds up products of them."""
    flat = {b.name: b.dtype for b in kernel.params if b.role is Role.PARAM and len(b.shape) == 1}
    if not flat:
        return False
    for update in statements(kernel.body):
        if isinstance(update, Accumulate):
            rounded = may_use_tf32((*update.attrs, *kernel.attrs))
            own = {
                name for name, dtype in flat.items() if dtype.size_bytes <= NARROW_BYTES or (rounded and dtype == F32)
            }
            products = (node for node in walk(update.value) if isinstance(node, Op) and node.fn is Fn.MUL)
            if own and any(isinstance(node, Read) and node.buffer in own for one in products for node in walk(one)):
                return True
    return False
