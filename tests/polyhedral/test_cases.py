"""Products of an index of few values with sizes are affine case by case, and have their value at every point."""

import itertools
import random

import pytest
from stages import program, proved

from texpr.grammar.ast import IndexBinary, IndexConst, IndexExpr, IndexOp, IndexVar, SizeVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.value import index_value
from texpr.polyhedral import isl
from texpr.polyhedral.affine import MAX_CASES, NotAffineError, Scope

P, Q, K = IndexVar(name="p"), IndexVar(name="q"), IndexVar(name="k")
N, M = SizeVar(name="N"), SizeVar(name="M")


def binary(op: IndexOp, left: IndexExpr, right: IndexExpr) -> IndexExpr:
    return IndexBinary(op=op, left=left, right=right)


def random_product(rng: random.Random) -> IndexExpr:
    """A factor of p and q times an expression of sizes and k, and something affine."""
    factor = rng.choice((P, Q, binary(IndexOp.ADD, P, Q), binary(IndexOp.SUB, IndexConst(value=3), P)))
    size = rng.choice((N, binary(IndexOp.DIV, N, IndexConst(value=4)), binary(IndexOp.CEILDIV, M, IndexConst(value=3))))
    other = rng.choice((size, binary(IndexOp.ADD, size, K), binary(IndexOp.SUB, size, IndexConst(value=2))))
    product = binary(IndexOp.MUL, *rng.sample((factor, other), 2))
    return binary(rng.choice((IndexOp.ADD, IndexOp.SUB, IndexOp.MIN, IndexOp.MAX)), product, rng.choice((K, M, P)))


def test_a_product_by_cases_has_its_value_at_every_point() -> None:
    rng, work = random.Random(3), isl.Work()
    scope = Scope(("N", "M"), (), work).inner("p", IndexConst(value=4)).inner("q", IndexConst(value=3)).inner("k", N)
    for _ in range(30):
        expr = random_product(rng)
        value = scope.value(expr)
        for n, m, p, q, k in itertools.product((0, 5, 9), (1, 7), range(4), range(3), (0, 4)):
            point = isl.Set(f"[N, M] -> {{ [p, q, k] : N = {n} and M = {m} and p = {p} and q = {q} and k = {k} }}",
                            context=work.context)  # fmt: skip
            found = value.intersect_domain(point).max_val().to_python()
            assert found == index_value(expr, {"N": n, "M": m, "p": p, "q": q, "k": k}), expr


def test_an_index_of_many_or_unknown_values_is_not_split() -> None:
    scope = Scope(("N", "M"), (), isl.Work())
    for extent in (N, IndexConst(value=MAX_CASES + 1), IndexConst(value=0)):
        with pytest.raises(NotAffineError):
            scope.inner("p", extent).value(binary(IndexOp.MUL, P, N))
    inner = scope.inner("p", IndexConst(value=8)).inner("q", IndexConst(value=8))
    with pytest.raises(NotAffineError):
        inner.value(binary(IndexOp.MUL, binary(IndexOp.ADD, P, Q), N))
    assert inner.value(binary(IndexOp.MUL, P, N)) is not None


SPLIT = "kernel k(A: f32[K], B: f32[8]) {0} {{ par 8 p {{ B[p] = sum {1} k {{ A[{2}] }} }} }}"


@pytest.mark.parametrize(
    ("fact", "extent", "subscript", "witness"),
    [
        ("where K % 8 == 0", "K / 8", "p * (K / 8) + k", None),
        ("", "K / 8", "(p + 0) * (K / 8) + k", None),
        ("", "K / 8", "K - 1 - (p * (K / 8) + k)", None),
        ("", "ceildiv(K, 8)", "p * ceildiv(K, 8) + k", {"sizes": {"K": 1}, "element": [1]}),
        ("where K % 8 == 0", "K / 8", "(p + 1) * (K / 8) + k", {"sizes": {"K": 8}, "element": [8]}),
        ("where K % 8 == 0", "K / 8 + 1", "p * (K / 8) + k", {"sizes": {"K": 0}, "element": [0]}),
    ],
)
def test_the_bounds_of_a_split_sum_are_proved_while_its_length_is_free(
    fact: str, extent: str, subscript: str, witness: dict[str, object] | None
) -> None:
    text = SPLIT.format(fact, extent, subscript)
    if witness is None:
        proved(text)
        return
    with pytest.raises(TExprError) as refused:
        proved(text)
    (found,) = refused.value.diagnostics
    assert found.code == "E0302"
    assert {key: found.witness[key] for key in witness} == witness


def test_parts_that_overlap_are_a_race() -> None:
    text = "kernel k(A: f32[K + 1]) where K % 4 == 0 { par 4 p { par K / 4 + 1 k { A[p * (K / 4) + k] = 1.0 } } }"
    assert program(text)
    with pytest.raises(TExprError) as refused:
        proved(text)
    assert refused.value.diagnostics[0].code == "E0301"
