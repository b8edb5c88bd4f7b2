"""The lanes with the least distance as an integer program in the digit basis, to cross-check the enumeration.

z[m, n, b] is 1 where digit m of the lane number, m = 0 the fastest, is bit b of dimension n. Each digit is one bit,
each bit at most one digit, and a bit other than 0 follows the one below it: lanes take a dimension in one piece. The
digit moves access a by w[m] = sum of z[m, n, b] * 2^b * c[a, n], which is linear in z, and a step that carries to it by
w[m] - w[0] - … - w[m - 1], whose absolute value t[a, m] is bounded from both sides:

    least   sum of weight[a] * 2^(L - 1 - m) * t[a, m]      where t[a, m] >= ±(w[m] - w[0] - … - w[m - 1])
"""

from collections.abc import Mapping, Sequence

from texpr.grammar.ast import Gather
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import const
from texpr.grammar.index.interval import Ranges
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import power_of_two
from texpr.polyhedral.map.distance import coefficients, known
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.rational import least

Coefficients = Sequence[tuple[int, Sequence[int]]]
"""Of each access how often it is made, and by how much each dimension moves it."""


def lanes_by_program(
    problem: Problem, nest: Nest, sizes: Sequence[int], threads: int, ranges: Ranges, without: frozenset[str]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order and the most threads of each dimension. Raises E0401 for an address that is not affine."""
    found: list[tuple[int, list[int]]] = []
    values = {name: const(value) for name, value in problem.sizes.items()}
    for access in problem.accesses(nest.body, ranges, without=without):
        points = [s for s in access.subscripts if not isinstance(s, Gather)]
        if len(points) < len(access.subscripts):
            continue  # has no distance, whatever the lanes
        own = coefficients(known(offset(access.layout, points), values))
        if own is None:
            why = f"an integer program has no lanes for {access.buffer}, whose address is not affine in the indices"
            raise fail("E0401", why, nest.pars[0].span, help='say objective="distance", which enumerates them')
        found.append((access.weight, [own.get(index, 0) for index in nest.indices]))
    bits = [power_of_two(size).bit_length() - 1 for size in sizes]
    digits = min((min(problem.target.warp_size, threads)).bit_length() - 1, sum(bits))
    runs = least_runs(found, bits, digits)
    order = (*(dim for dim, _ in runs), *(d for d in reversed(range(len(sizes))) if d not in dict(runs)))
    caps = dict(runs[:-1])
    return order, tuple(caps.get(dim, threads) for dim in range(len(sizes)))


def least_runs(accesses: Coefficients, bits: Sequence[int], digits: int) -> tuple[tuple[int, int], ...]:
    """The dimensions on the lanes, fastest first, each with its lanes, of which there are 2^digits."""
    z = [(m, n, b) for m in range(digits) for n, most in enumerate(bits) for b in range(min(most, m + 1))]
    names = {place: f"z{place}" for place in z}
    equations: list[tuple[Mapping[str, int], int]] = [
        ({names[place]: 1 for place in z if place[0] == m}, 1) for m in range(digits)
    ]
    at_most: list[tuple[Mapping[str, int], int]] = [
        ({names[place]: 1 for place in z if place[1:] == bit}, 1) for bit in {place[1:] for place in z}
    ]
    for m, n, b in z:
        if b:
            at_most.append(({names[m, n, b]: 1, **({names[m - 1, n, b - 1]: -1} if m else {})}, 0))
    costs: dict[str, int] = {}
    for number, (weight, moved) in enumerate(accesses):
        for m in range(digits):
            step = f"t{number},{m}"
            costs[step] = weight << (digits - 1 - m)
            for sign in (1, -1):
                terms = {names[p]: sign * (moved[p[1]] << p[2]) * (1 if p[0] == m else -1) for p in z if p[0] <= m}
                at_most.append(({**terms, step: -1}, 0))
    found = least(costs, equations, dict.fromkeys((*names.values(), *costs), 0), integer=True, at_most=at_most)
    order = [next(n for k, n, b in z if k == m and found[names[k, n, b]] == 1) for m in range(digits)]
    runs: dict[int, int] = {}
    for dim in order:
        runs[dim] = 2 * runs.get(dim, 1)
    return tuple(runs.items())
