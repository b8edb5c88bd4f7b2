"""Random index expressions, and what they mean by the definition of each operator: the oracle of the index algebra."""

from collections.abc import Mapping

from hypothesis import strategies as st

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar

INDICES, SIZES = ("i", "j"), ("N", "M")
leaves = st.one_of(
    st.integers(-9, 9).map(lambda v: IndexConst(value=v)),
    st.sampled_from(INDICES).map(lambda name: IndexVar(name=name)),
    st.sampled_from(SIZES).map(lambda name: SizeVar(name=name)),
)
divisors = st.one_of(
    st.integers(1, 9).map(lambda v: IndexConst(value=v)), st.sampled_from(SIZES).map(lambda n: SizeVar(name=n))
)


def _wider(inner: st.SearchStrategy[IndexExpr]) -> st.SearchStrategy[IndexExpr]:
    plain = st.sampled_from((IndexOp.ADD, IndexOp.SUB, IndexOp.MUL, IndexOp.MIN, IndexOp.MAX))
    floors = st.sampled_from((IndexOp.DIV, IndexOp.MOD, IndexOp.CEILDIV))
    return st.one_of(
        st.builds(lambda op, left, right: IndexBinary(op=op, left=left, right=right), plain, inner, inner),
        st.builds(lambda op, left, right: IndexBinary(op=op, left=left, right=right), floors, inner, divisors),
    )


expressions: st.SearchStrategy[IndexExpr] = st.recursive(leaves, _wider, max_leaves=8)
# Indices of either sign; a size may be 0, and what is divided by it is 0.
points = st.fixed_dictionaries(
    {name: st.integers(-20, 20) for name in INDICES} | {name: st.integers(0, 20) for name in SIZES}
)


def meaning(e: IndexExpr, point: Mapping[str, int]) -> int:
    """The value, straight from what ast.py says."""
    if isinstance(e, IndexConst):
        return e.value
    if not isinstance(e, IndexBinary):
        return point[e.name]
    a, b = meaning(e.left, point), meaning(e.right, point)
    match e.op:
        case IndexOp.ADD:
            return a + b
        case IndexOp.SUB:
            return a - b
        case IndexOp.MUL:
            return a * b
        case IndexOp.MIN:
            return min(a, b)
        case IndexOp.MAX:
            return max(a, b)
        case IndexOp.DIV:
            return a // b if b else 0
        case IndexOp.CEILDIV:
            return -(-a // b) if b else 0
        case IndexOp.MOD:
            return a - b * (a // b) if b else 0
