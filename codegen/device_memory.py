"""Workspace addresses: byte offsets of the buffers that live between launches in one allocation.

Each buffer starts at a multiple of 256 bytes behind the one before it; offsets are expressions of the free sizes, so
one plan serves every call. Those of one case of a mapping lie where those of another do, behind what several share.

    t: f32[M, 3], u: f16[N]   ->   t at 0, u at 256 * ceildiv(12 * M, 256), total … + 256 * ceildiv(2 * N, 256)
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from texpr.codegen.manifest import ALIGNMENT_BYTES
from texpr.grammar.ast import IndexConst, IndexExpr, IndexOp
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import combine
from texpr.grammar.index.value import index_value
from texpr.polyhedral.layout.extent import extent_bytes
from texpr.polyhedral.layout.normal import bound
from texpr.polyhedral.mapped.program import MappedBuffer


def place_workspace(
    spaces: Sequence[MappedBuffer], cases: Mapping[str, int] | None = None
) -> tuple[dict[str, IndexExpr], IndexExpr]:
    """Offsets in bytes of every workspace buffer, in order, and the size of the allocation; `cases` has the case of
    each buffer that one alone touches."""
    of = cases or {}
    offsets: dict[str, IndexExpr] = {}
    shared = _behind(IndexConst(value=0), [b for b in spaces if b.name not in of], offsets)
    total = shared
    for case in sorted(set(of.values())):
        total = combine(IndexOp.MAX, total, _behind(shared, [b for b in spaces if of.get(b.name) == case], offsets))
    return offsets, total


def _behind(end: IndexExpr, spaces: Sequence[MappedBuffer], offsets: dict[str, IndexExpr]) -> IndexExpr:
    """Place buffers one behind another from `end` on; the new end."""
    for buffer in spaces:
        offsets[buffer.name] = end
        end = combine(IndexOp.ADD, end, _rounded(extent_bytes(buffer.layout, buffer.dtype.size_bytes)))
    return end


def _rounded(size_bytes: IndexExpr) -> IndexExpr:
    unit = IndexConst(value=ALIGNMENT_BYTES)
    return combine(IndexOp.MUL, combine(IndexOp.CEILDIV, size_bytes, unit), unit)


_SAMPLES = (0, 1, 2, 3, 17, 64, 1000, 4097)


def check_workspace(
    spaces: Sequence[MappedBuffer],
    offsets: Mapping[str, IndexExpr],
    total_bytes: IndexExpr,
    sizes: Sequence[str],
    cases: Mapping[str, int] | None = None,
) -> None:
    """Verify a workspace plan at several values of the sizes: InternalError for an overlap but of two cases, an offset
    that is not a multiple of 256, or a buffer beyond the total."""
    of = cases or {}
    if {b.name for b in spaces} != set(offsets):
        raise InternalError("the workspace plan and the workspaces differ")
    for number, sample in enumerate(_SAMPLES):
        values = {name: _SAMPLES[(number + 3 * k) % len(_SAMPLES)] if k else sample for k, name in enumerate(sizes)}
        total = index_value(total_bytes, values)
        ranges = []
        for buffer in spaces:
            start = index_value(offsets[buffer.name], values)
            taken = extent_bytes(bound(buffer.layout, values), buffer.dtype.size_bytes)
            stop = start + index_value(taken, values)
            if start < 0 or start % 256 or stop > total:
                raise InternalError(f"workspace {buffer.name} is misplaced at byte {start}")
            ranges.append((start, stop, buffer.name))
        for (low, high, name), (start, stop, other) in combinations(ranges, 2):
            apart = name in of and other in of and of[name] != of[other]
            if low < stop and start < high and not apart:
                raise InternalError(f"workspaces {name} and {other} overlap")
