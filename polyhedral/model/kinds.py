"""The kind of a statement: contraction, reduction, map, copy or generic (`StatementKind` says what each is)."""

from collections.abc import Sequence

from texpr.grammar.ast import AccOp, Accumulate, Anchor, Atomic, Bind, Cast, Expr, Fn, Gather, Leaf, Op, Read
from texpr.grammar.index.expr import index_names
from texpr.polyhedral import isl
from texpr.polyhedral.program import Access, LoopDim, StatementKind


def statement_kind(
    leaf: Leaf, accesses: Sequence[Access], loops: Sequence[LoopDim], outer: Sequence[str]
) -> StatementKind:
    """The kind of a leaf with its accesses (the written one last) and loops; `outer` names the loops around the `new`
    of the written buffer, which tell its elements apart."""
    match leaf:
        case Anchor():
            return StatementKind.GENERIC
        case Accumulate() | Atomic():
            carried = _carried(accesses[-1], loops, outer)
            if not carried:
                return StatementKind.GENERIC
            if leaf.op is AccOp.ADD and _is_product(leaf.value) and any(not loop.parallel for loop in carried):
                return StatementKind.CONTRACTION
            return StatementKind.REDUCTION
        case Bind():
            written = accesses[-1]
            if any(isinstance(subscript, Gather) for subscript in written.subscripts):
                return StatementKind.GENERIC
            if not _injective(written, loops):
                return StatementKind.GENERIC
            return StatementKind.COPY if isinstance(_uncast(leaf.value), Read) else StatementKind.MAP


def _injective(access: Access, loops: Sequence[LoopDim]) -> bool:
    """Whether two instances at equal values of the `seq` loops never write one element."""
    relation = access.relation
    for position, loop in enumerate(loops):
        if not loop.parallel:
            last = relation.dim(isl.dim_type.out)
            relation = relation.add_dims(isl.dim_type.out, 1)
            relation = relation.equate(isl.dim_type.in_, position, isl.dim_type.out, last)
    return bool(relation.is_injective())


def _carried(access: Access, loops: Sequence[LoopDim], outer: Sequence[str]) -> list[LoopDim]:
    """The loops that the accumulated element does not depend on."""
    used = set(outer)
    for subscript in access.subscripts:
        if isinstance(subscript, Gather):
            return []
        used |= index_names(subscript)
    return [loop for loop in loops if loop.index not in used]


def _is_product(value: Expr) -> bool:
    value = _uncast(value)
    if not isinstance(value, Op) or value.fn is not Fn.MUL:
        return False
    return all(isinstance(_uncast(arg), Read) for arg in value.args)


def _uncast(value: Expr) -> Expr:
    while isinstance(value, Cast):
        value = value.operand
    return value
