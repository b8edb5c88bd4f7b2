"""Certificates: that the addresses of neighbouring lanes lie no further apart, by Farkas' lemma and an exact LP.

    lane % 8 of weight 1, lane / 8 of weight 1024      24 + 3 steps: 27 * 1 … + 3 * |1024 - 7|

Each step's bound and multipliers solve one linear program over fractions: least bound, so that both identities of
`value.py` hold. Nothing of this is trusted: `verify` checks the result by arithmetic on integers.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from texpr.polyhedral.figures.value import Certificate, LaneDigit, Row, Step
from texpr.polyhedral.rational import least


def certificate(digits: Sequence[LaneDigit], lanes: int) -> Certificate:
    """The certificate of an address whose lanes' part is the weighted sum of these digits, fastest first, the radices
    of which multiply to the lanes."""
    radices = tuple(digit.radix for digit in digits)
    weights = tuple(digit.weight for digit in digits)
    block, steps = 1, list[Step]()
    for m, radix in enumerate(radices):
        last = lanes - 1
        count = last // block - last // (block * radix)
        block *= radix
        if count:
            bound, above, below = _solved(radices, weights, m)
            steps.append(Step(
                carries_to=m, count=count, bound=bound, rows=rows(radices, m), above=above, below=below
            ))  # fmt: skip
    return Certificate(digits=tuple(digits), steps=tuple(steps), lanes=lanes)


def rows(radices: Sequence[int], carried: int) -> tuple[Row, ...]:
    """The pairs of neighbouring lanes whose step carries to a digit, as equations and inequalities."""
    n, found = len(radices), list[Row]()
    for q, radix in enumerate(radices):
        one, none = tuple(int(k == q) for k in range(n)), (0,) * n
        if q < carried:
            found.append(Row(before=one, after=none, constant=1 - radix, exact=True))
            found.append(Row(before=none, after=one, constant=0, exact=True))
        else:
            back = tuple(-x for x in one)
            found.append(Row(before=back, after=one, constant=-(q == carried), exact=True))
            found.append(Row(before=one, after=none, constant=0, exact=False))
            found.append(Row(before=none, after=back, constant=radix - 1, exact=False))
    return tuple(found)


@lru_cache(maxsize=256)
def _solved(
    radices: tuple[int, ...], weights: tuple[int, ...], carried: int
) -> tuple[Fraction, tuple[Fraction, ...], tuple[Fraction, ...]]:
    """The least bound of a step, and the multipliers of both sides.

    -sign * (w · v - w · u) + bound = sum of l * row, the coefficients of each unknown on their own."""
    own = rows(radices, carried)
    equations: list[tuple[dict[str, int], int]] = []
    for side, sign in (("a", 1), ("b", -1)):
        for q, weight in enumerate(weights):
            equations.append(({f"{side}{k}": row.before[q] for k, row in enumerate(own)}, sign * weight))
            equations.append(({f"{side}{k}": row.after[q] for k, row in enumerate(own)}, -sign * weight))
        constants = {f"{side}{k}": row.constant for k, row in enumerate(own)}
        equations.append(({**constants, f"{side}slack": 1, "bound": -1}, 0))
    free = {"aslack": 0, "bslack": 0, "bound": 0}
    signs = {f"{side}{k}": 0 for side in "ab" for k, row in enumerate(own) if not row.exact}
    found = least({"bound": 1}, equations, {**free, **signs})
    above, below = (tuple(found.get(f"{side}{k}", Fraction(0)) for k in range(len(own))) for side in "ab")
    return found["bound"], above, below
