"""Random index expressions, and what they mean by the definition of each operator: the oracle of the index algebra."""

from collections.abc import Mapping
from random import Random

from hypothesis import strategies as st

from texpr.grammar.ast import (
    Always,
    And,
    Compare,
    CompareOp,
    Condition,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    Not,
    Or,
    SizeVar,
)

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


comparisons = st.builds(
    lambda op, left, right: Compare(op=op, left=left, right=right), st.sampled_from(CompareOp), expressions, expressions
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    st.one_of(comparisons, st.booleans().map(lambda value: Always(value=value))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: And(parts=tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: Or(parts=tuple(parts))),
        inner.map(lambda part: Not(part=part)),
    ),
    max_leaves=4,
)


def truth(c: Condition, point: Mapping[str, int]) -> bool:
    """Whether the condition holds, straight from what ast.py says."""
    match c:
        case Compare():
            a, b = meaning(c.left, point), meaning(c.right, point)
            return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[c.op.value]
        case And():
            return all(truth(part, point) for part in c.parts)
        case Or():
            return any(truth(part, point) for part in c.parts)
        case Not():
            return not truth(c.part, point)
        case Always():
            return c.value


NUMBERS = (0, 1, 2, 3, 8, 64, 1 << 20, -1, -5, (1 << 31) - 1, -(1 << 31), 1 << 31)


def random_expression(random: Random, depth: int) -> IndexExpr:
    """For tests that need many expressions at once."""
    if depth == 0 or random.random() < 0.1:
        kind = random.randrange(4)
        if kind == 0:
            return IndexConst(value=random.choice(NUMBERS))
        return IndexVar(name=random.choice(INDICES)) if kind < 3 else SizeVar(name=random.choice(SIZES))
    op = random.choice(tuple(IndexOp))
    right: IndexExpr = random_expression(random, depth - 1)
    if op in (IndexOp.DIV, IndexOp.MOD, IndexOp.CEILDIV):
        right = SizeVar(name="N") if random.random() < 0.2 else IndexConst(value=random.choice((1, 2, 3, 32, 1 << 20)))
    return IndexBinary(op=op, left=random_expression(random, depth - 1), right=right)
