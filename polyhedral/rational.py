"""The only door to z3: linear programs over exact fractions, and small integer programs."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import z3

from texpr.grammar.diagnostics import InternalError


def least(
    costs: Mapping[str, int],
    equations: Sequence[tuple[Mapping[str, int], int]],
    bounds: Mapping[str, int],
    *,
    integer: bool = False,
    at_most: Sequence[tuple[Mapping[str, int], int]] = (),
) -> dict[str, Fraction]:
    """Values that make the sum of `costs` least where each of `equations`, (terms, value), holds, the terms of each of
    `at_most` come to no more than its value, and each name of `bounds` is at least what it says there. Deterministic.
    The program must have a solution, and no cheaper one without end."""
    named = dict.fromkeys(name for terms in (costs, *(t for t, _ in (*equations, *at_most))) for name in terms)
    context = z3.Context()
    made = {name: (z3.Int if integer else z3.Real)(f"x{n}", context) for n, name in enumerate(named)}
    solver = z3.Optimize(ctx=context)
    for terms, value in equations:
        solver.add(_total(terms, made, context) == value)
    for terms, value in at_most:
        solver.add(_total(terms, made, context) <= value)
    for name, lower in bounds.items():
        if name in made:
            solver.add(made[name] >= lower)
    solver.minimize(_total(costs, made, context))
    if solver.check() != z3.sat:
        raise InternalError("a linear program that always has a solution has none")
    model = solver.model()
    return {name: _fraction(model.eval(variable, model_completion=True)) for name, variable in made.items()}


def _total(terms: Mapping[str, int], made: Mapping[str, "z3.ArithRef"], context: "z3.Context") -> "z3.ArithRef":
    parts = [factor * made[name] for name, factor in terms.items() if factor]
    return z3.Sum(parts) if parts else z3.IntVal(0, context)


def _fraction(value: "z3.ExprRef") -> Fraction:
    if z3.is_int_value(value):
        return Fraction(value.as_long())
    return Fraction(value.numerator_as_long(), value.denominator_as_long())
