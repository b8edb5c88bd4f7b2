"""Workspace addresses: byte offsets of the buffers that live between launches in one allocation.

Each buffer starts at a multiple of 256 bytes behind the one before it; offsets are expressions of the free sizes, so
one plan serves every call.

    t: f32[M, 3], u: f16[N]   ->   t at 0, u at 256 * ceildiv(12 * M, 256), total … + 256 * ceildiv(2 * N, 256)
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from texpr.codegen.layout import Strides
from texpr.grammar.ast import IndexConst, IndexExpr, IndexOp
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import combine
from texpr.grammar.index.value import index_value
from texpr.polyhedral.mapped.program import MappedBuffer

ALIGNMENT_BYTES = 256


def place_workspace(spaces: Sequence[MappedBuffer], strides: Strides) -> tuple[dict[str, IndexExpr], IndexExpr]:
    """Offsets in bytes of every workspace buffer, in order, and the size of the allocation."""
    offsets: dict[str, IndexExpr] = {}
    end: IndexExpr = IndexConst(value=0)
    for buffer in spaces:
        offsets[buffer.name] = end
        end = combine(IndexOp.ADD, end, _rounded(span_bytes(buffer, strides[buffer.name])))
    return offsets, end


def span_bytes(buffer: MappedBuffer, strides: Sequence[IndexExpr]) -> IndexExpr:
    """Bytes from the first to the last element; the extents are taken as at least 1, so an empty buffer has room."""
    elements: IndexExpr = IndexConst(value=1)
    one = IndexConst(value=1)
    for extent, stride in zip(buffer.shape, strides, strict=True):
        steps = combine(IndexOp.ADD, combine(IndexOp.MAX, extent, one), IndexConst(value=-1))
        positive = combine(IndexOp.MAX, stride, one)
        elements = combine(IndexOp.ADD, elements, combine(IndexOp.MUL, steps, positive))
    return combine(IndexOp.MUL, elements, IndexConst(value=buffer.dtype.size_bytes))


def _rounded(size_bytes: IndexExpr) -> IndexExpr:
    unit = IndexConst(value=ALIGNMENT_BYTES)
    return combine(IndexOp.MUL, combine(IndexOp.CEILDIV, size_bytes, unit), unit)


_SAMPLES = (0, 1, 2, 3, 17, 64, 1000, 4097)


def check_workspace(
    spaces: Sequence[MappedBuffer],
    strides: Strides,
    offsets: Mapping[str, IndexExpr],
    total_bytes: IndexExpr,
    sizes: Sequence[str],
) -> None:
    """Verify a workspace plan at several values of the sizes: InternalError for an overlap, an offset that is not a
    multiple of 256, or a buffer beyond the total."""
    if {b.name for b in spaces} != set(offsets):
        raise InternalError("the workspace plan and the workspaces differ")
    for number, sample in enumerate(_SAMPLES):
        values = {name: _SAMPLES[(number + 3 * k) % len(_SAMPLES)] if k else sample for k, name in enumerate(sizes)}
        total = index_value(total_bytes, values)
        ranges = []
        for buffer in spaces:
            start = index_value(offsets[buffer.name], values)
            extents = [index_value(e, values) for e in buffer.shape]
            steps = [index_value(s, values) for s in strides[buffer.name]]
            last = sum((e - 1) * s for e, s in zip(extents, steps, strict=True))
            stop = start + (0 if any(e <= 0 for e in extents) else (last + 1) * buffer.dtype.bits // 8)
            if start < 0 or start % 256 or stop > total:
                raise InternalError(f"workspace {buffer.name} is misplaced at byte {start}")
            ranges.append((start, stop, buffer.name))
        ranges.sort()
        for (_, stop, name), (start, _, other) in pairwise(ranges):
            if start < stop:
                raise InternalError(f"workspaces {name} and {other} overlap")
