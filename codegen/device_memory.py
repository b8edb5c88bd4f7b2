"""Workspace addresses: byte offsets of the tensors that live between launches in one allocation.

Each tensor starts at a multiple of 256 bytes behind the one before it; offsets are expressions of the free sizes, so
one plan serves every call.

    t: f32[M, 3], u: f16[N]   ->   t at 0, u at 256 * ceildiv(12 * M, 256), total … + 256 * ceildiv(2 * N, 256)
"""

from itertools import pairwise

from texpr.codegen.graph import DTensor, KernelGraph, WorkspacePlan
from texpr.grammar.ast import IndexConst, IndexExpr, IndexOp, Role
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import combine
from texpr.grammar.index.value import index_value

ALIGNMENT_BYTES = 256


def place_workspace(graph: KernelGraph) -> WorkspacePlan:
    """Offsets in bytes of every workspace tensor, in order, and the size of the allocation."""
    offsets: dict[str, IndexExpr] = {}
    end: IndexExpr = IndexConst(value=0)
    for tensor in graph.tensors:
        if tensor.role is Role.LOCAL:
            offsets[tensor.name] = end
            end = combine(IndexOp.ADD, end, _rounded(span_bytes(tensor)))
    return WorkspacePlan(offsets=offsets, total_bytes=end)


def span_bytes(tensor: DTensor) -> IndexExpr:
    """Bytes from the first to the last element; the extents are taken as at least 1, so an empty tensor has room."""
    elements: IndexExpr = IndexConst(value=1)
    one = IndexConst(value=1)
    for extent, stride in zip(tensor.shape, tensor.strides, strict=True):
        steps = combine(IndexOp.ADD, combine(IndexOp.MAX, extent, one), IndexConst(value=-1))
        positive = combine(IndexOp.MAX, stride, one)
        elements = combine(IndexOp.ADD, elements, combine(IndexOp.MUL, steps, positive))
    return combine(IndexOp.MUL, elements, IndexConst(value=tensor.dtype.size_bytes))


def _rounded(size_bytes: IndexExpr) -> IndexExpr:
    unit = IndexConst(value=ALIGNMENT_BYTES)
    return combine(IndexOp.MUL, combine(IndexOp.CEILDIV, size_bytes, unit), unit)


_SAMPLES = (0, 1, 2, 3, 17, 64, 1000, 4097)


def check_workspace(graph: KernelGraph, plan: WorkspacePlan) -> None:
    """Verify a workspace plan at several values of the sizes: InternalError for an overlap, an offset that is not a
    multiple of 256, or a tensor beyond the total."""
    spaces = [t for t in graph.tensors if t.role is Role.LOCAL]
    if {t.name for t in spaces} != set(plan.offsets):
        raise InternalError(f"{graph.name}: the workspace plan and the workspace tensors differ")
    names = graph.sizes
    for number, sample in enumerate(_SAMPLES):
        values = {name: _SAMPLES[(number + 3 * k) % len(_SAMPLES)] if k else sample for k, name in enumerate(names)}
        total = index_value(plan.total_bytes, values)
        ranges = []
        for tensor in spaces:
            start = index_value(plan.offsets[tensor.name], values)
            extents = [index_value(e, values) for e in tensor.shape]
            steps = [index_value(s, values) for s in tensor.strides]
            last = sum((e - 1) * s for e, s in zip(extents, steps, strict=True))
            stop = start + (0 if any(e <= 0 for e in extents) else (last + 1) * tensor.dtype.bits // 8)
            if start < 0 or start % 256 or stop > total:
                raise InternalError(f"{graph.name}: workspace {tensor.name} is misplaced at byte {start}")
            ranges.append((start, stop, tensor.name))
        ranges.sort()
        for (_, stop, name), (start, _, other) in pairwise(ranges):
            if start < stop:
                raise InternalError(f"{graph.name}: workspaces {name} and {other} overlap")
