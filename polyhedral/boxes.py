"""The box that a kernel touches of each array parameter, as index expressions of sizes: what task permissions need.

Per dimension [low, high) is the hull of all accesses. Where the exact bound has several pieces (a minimum of sizes,
say) the whole extent stands instead: a box may be larger than the footprint, never smaller.
"""

import islpy as isl

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, SizeVar
from texpr.polyhedral.program import Program

Box = tuple[tuple[IndexExpr, IndexExpr], ...]


def boxes(program: Program) -> dict[str, Box]:
    """The box of every array parameter that has one dimension per subscript; untouched parameters have empty boxes."""
    found: dict[str, Box] = {}
    for name, described in program.buffers.items():
        if described.outer or described.buffer.flat:
            continue
        touched: isl.Set | None = None
        for statement in program.statements:
            for access in statement.accesses:
                if access.buffer == name:
                    part = access.relation.range()
                    touched = part if touched is None else touched.union(part)
        shape = described.buffer.shape
        if touched is None or touched.is_empty():
            found[name] = tuple((IndexConst(value=0), IndexConst(value=0)) for _ in shape)
        elif touched.dim(isl.dim_type.set) == len(shape):
            hull = touched.intersect_params(program.context).coalesce()
            found[name] = tuple(_side(hull, k, extent) for k, extent in enumerate(shape))
        else:
            found[name] = tuple((IndexConst(value=0), extent) for extent in shape)
    return found


def _side(hull: isl.Set, dim: int, extent: IndexExpr) -> tuple[IndexExpr, IndexExpr]:
    whole = (IndexConst(value=0), extent)
    try:
        low, high = _affine(hull.dim_min(dim)), _affine(hull.dim_max(dim))
    except isl.Error:
        return whole
    if low is None or high is None:
        return whole
    return low, _plus(high, IndexConst(value=1))


def _plus(left: IndexExpr, right: IndexExpr) -> IndexExpr:
    if isinstance(left, IndexConst) and isinstance(right, IndexConst):
        return IndexConst(value=left.value + right.value)
    if isinstance(left, IndexConst) and left.value == 0:
        return right
    if isinstance(left, IndexBinary) and isinstance(left.right, IndexConst) and isinstance(right, IndexConst):
        shift = right.value + (left.right.value if left.op is IndexOp.ADD else -left.right.value)
        if left.op in (IndexOp.ADD, IndexOp.SUB):
            return left.left if shift == 0 else _plus(left.left, IndexConst(value=shift))
    if isinstance(right, IndexConst) and right.value < 0:
        return IndexBinary(op=IndexOp.SUB, left=left, right=IndexConst(value=-right.value))
    return IndexBinary(op=IndexOp.ADD, left=left, right=right)


def _affine(bound: isl.PwAff) -> IndexExpr | None:
    """A bound of one affine piece without divisions as an index expression; None for any other."""
    pieces = bound.coalesce().get_pieces()
    if len(pieces) != 1:
        return None
    affine = pieces[0][1]
    if affine.dim(isl.dim_type.div) or not affine.get_denominator_val().is_one():
        return None
    total: IndexExpr = IndexConst(value=0)
    for position in range(affine.dim(isl.dim_type.param)):
        factor = affine.get_coefficient_val(isl.dim_type.param, position).to_python()
        if factor:
            name = SizeVar(name=str(affine.get_dim_name(isl.dim_type.param, position)))
            scaled = IndexBinary(op=IndexOp.MUL, left=IndexConst(value=factor), right=name)
            total = _plus(total, name if factor == 1 else scaled)
    return _plus(total, IndexConst(value=affine.get_constant_val().to_python()))
