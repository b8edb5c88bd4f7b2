"""Sums of sizes as strides: a change of names that can be undone, and splits that are right at every point."""

import itertools
import random

import pytest
from stages import program, proved

from texpr.grammar.ast import IndexVar, SizeVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.linear import Linear, constant, variable
from texpr.grammar.index.value import index_value
from texpr.polyhedral import isl
from texpr.polyhedral.model.stride_sums import PLAIN, basis_of

SIZES = ("P", "Q", "R")


def value(form: Linear, names: dict[str, int]) -> int:
    return int(index_value(form.expression(), names))


def random_sum(rng: random.Random) -> Linear:
    result = variable(SizeVar(name=rng.choice(SIZES))) * rng.choice((1, 1, 1, 2, -1))
    for _ in range(rng.choice((1, 1, 2))):
        term = constant(1) if rng.random() < 0.7 else variable(SizeVar(name=rng.choice(SIZES)))
        result += term * rng.randint(1, 4)
    return result


@pytest.mark.parametrize("seed", range(40))
def test_forms_keep_their_value_in_the_names_of_sums(seed: int) -> None:
    rng = random.Random(seed)
    subscript = constant(0)
    for index in ("i", "j", "k"):
        term = variable(IndexVar(name=index))
        for _ in range(rng.randint(0, 2)):
            term *= random_sum(rng)
        subscript += term
    basis = basis_of([subscript])
    assert basis.back(basis.into(subscript)) == subscript
    names = {name: rng.randint(0, 9) for name in (*SIZES, "i", "j", "k")}
    for name, total in basis.sums.items():
        names[name] = value(total, names)
        assert index_value(basis.expression(name), names) == names[name]
    assert value(basis.into(subscript), names) == value(subscript, names)


def test_products_of_sums_have_a_name_for_each() -> None:
    (kernel,) = [program("kernel k(A: f32[(P + 2) * (Q + 2)]) { par P y { A[y * (Q + 2)] = 1.0 } }")]
    assert kernel.buffers["A"].flat_strides
    y, z = variable(IndexVar(name="y")), variable(IndexVar(name="z"))
    rows, row = variable(SizeVar(name="P")) + 2, variable(SizeVar(name="Q")) + 2
    subscript = z * rows * row + y * row
    basis = basis_of([subscript])
    by_rows, by_row = variable(SizeVar(name="(P + 2)")), variable(SizeVar(name="(Q + 2)"))
    assert basis.into(subscript) == z * by_rows * by_row + y * by_row
    assert basis_of([y]) is PLAIN


ROWS = [
    ("(y + 1) * (Q + 2) + x + 1", "(P + 2) * (Q + 2)", True),
    ("y * (Q + R) + R + x", "P * (Q + R)", True),
    ("y * (Q + R + 1) + x", "P * (Q + R + 1)", True),
    ("y * (2 + Q) + 2 * x / 2", "(P + 1) * (Q + 2)", True),
    ("y * (Q + 2) + x + 3", "(P + 2) * (Q + 2)", False),
    ("y * (Q + 2) + x * 2", "(P + 2) * (2 * Q + 2)", False),
    ("y * (Q - 1) + x", "(P + 2) * (Q + 2)", False),
]


@pytest.mark.parametrize(("subscript", "length", "legal"), ROWS)
def test_a_split_by_sums_is_right_at_every_point(subscript: str, length: str, legal: bool) -> None:
    text = f"kernel k(A: f32[{length}], Z: f32[R]) {{ par P y {{ par Q x {{ A[{subscript}] = 1.0 }} }} }}"
    if not legal:
        with pytest.raises(TExprError) as refused:
            proved(text)
        assert {d.code for d in refused.value.diagnostics} == {"E0306"}
        return
    found = proved(text).program
    (statement,) = found.statements
    assert statement.write is not None
    strides, relation = found.buffers["A"].flat_strides, statement.write.relation
    for p, q, r in itertools.product((1, 3), (2, 5), (1, 4)):
        sizes = {"P": p, "Q": q, "R": r}
        weights = [int(index_value(stride, sizes)) for stride in strides]
        for y, x in itertools.product(range(p), range(q)):
            numbers = [sizes[size.name] for size in found.kernel.sizes]
            at = relation.wrap().flatten()
            for place, number in enumerate(numbers):
                at = at.fix_val(isl.dim_type.param, place, isl.Val.int_from_si(found.work.context, number))
            for place, number in enumerate((y, x)):
                at = at.fix_val(isl.dim_type.set, place, isl.Val.int_from_si(found.work.context, number))
            element = isl.least_point(at)[len(numbers) + 2 :]
            flat = int(index_value(statement.write.subscripts[0], {**sizes, "y": y, "x": x}))
            assert flat == sum(weight * part for weight, part in zip(weights, element, strict=True))
            inner = zip(element[1:], weights, weights[1:], strict=False)
            assert all(0 <= part < outer // weight for part, outer, weight in inner)
