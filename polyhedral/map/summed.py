"""What is summed, in steps: the products of a step have one place in a window where a loop has whole steps.

    64 c, 3 r, 3 s in steps of 16     c = 16*(step / 9) + number, r = step / 3 % 3, s = step % 3
    5 c, 3 r, 3 s                     c = n / 9, r = n / 3 % 3, s = n % 3     of n = 16*step + number

Where a window lies in an image, and whether it does, is then asked once for a step, not for each of its products; and
what the places of a window share of an image is used while it is near.
"""

from texpr.grammar.ast import IndexExpr, IndexOp
from texpr.grammar.index.expr import add, combine, const, constant_value, multiply, product
from texpr.polyhedral.map.contraction import Contraction
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.side import Side
from texpr.polyhedral.map.vectors import Element, address


def along_steps(one: Contraction, depth: int) -> Side:
    """The loop that has whole steps of so many products beside other loops, or all loops as one where there is none."""
    loops = one.reduction.loops
    if len(loops) > 1:
        for loop in loops:
            extent = constant_value(loop.extent)
            if (
                extent
                and extent % depth == 0
                and all((constant_value(o.extent) or 0) > 0 for o in loops if o is not loop)
            ):
                return Side(loops=(loop,))
    return one.summed


def places(one: Contraction, depth: int, step: IndexExpr, number: IndexExpr) -> dict[str, IndexExpr]:
    """The value of each summed index at a product of a step, by its number there."""
    own, loops = along_steps(one, depth), one.reduction.loops
    if own.loops == loops:
        return own.places(add(multiply(const(depth), step), number))
    window = Side(loops=tuple(loop for loop in loops if loop.index != own.index))
    taps = product(loop.extent for loop in window.loops)
    found = window.places(combine(IndexOp.MOD, step, taps))
    found[own.index] = add(multiply(const(depth), combine(IndexOp.DIV, step, taps)), number)
    return found


def stride(problem: Problem, element: Element, index: str) -> int | None:
    """How far apart elements are at neighbouring values of an index; None where that is no number."""
    layout = problem.layouts[element[0]]
    return None if layout.xor is not None else address(problem, element).coefficient(index)
