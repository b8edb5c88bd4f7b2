"""The seed's distance of an access: how far the addresses of a warp's neighbouring lanes lie apart, all together.

    d = the least number with  |f(1) - f(0)| + |f(2) - f(1)| + … + |f(31) - f(30)| <= d  wherever the warp stands

    A[i, j]      j on 32 lanes                    31
    A[j, i]      the same, rows of N elements     31 * N
    A[i, j]      j on 8 lanes, i on 4             4 * 7 + 3 * |N - 7|: every eighth step carries

Where an address is affine in the lanes' digits, the steps that carry to each digit are alike, and counting them gives d
(`closed form`). Where it is only piecewise so, isl gives the greatest sum over all places exactly (`isl`); where that
takes too many steps, or has no bound, it is the greatest of some places (`numbers`), which may be less than d.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import reduce
from itertools import pairwise

from texpr.grammar.ast import Compare, CompareOp, Gather, IndexConst, IndexExpr, IndexVar
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import ZERO, add, conjunction, const, constant_value, index_names, multiply, substitute
from texpr.grammar.index.linear import linear
from texpr.grammar.index.text import in_words
from texpr.grammar.index.value import index_value
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN
from texpr.polyhedral import isl
from texpr.polyhedral.affine import NotAffineError, Scope
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.block_sizes import band_sizes
from texpr.polyhedral.map.digits import ThreadDigits, thread_digits
from texpr.polyhedral.map.objective import WeightedAccess
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.mapped.candidate import Candidate, Flat
from texpr.polyhedral.mapped.places import Digit, Place
from texpr.polyhedral.names import Names

PLACES = (0, 1, 2, 3, 5, 7, 11, 31)  # at which numbers are tried: multiples of what a warp has, and of one
STEPS = 60_000  # of isl, for one access


class By(StrEnum):
    """How a distance is known."""

    CLOSED_FORM = "closed form"
    ISL = "isl"
    NUMBERS = "numbers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """`elements` is d."""

    elements: int
    by: By


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """The digits of a band that are on the lanes of a warp, fastest first."""

    digits: tuple[Digit, ...]

    @staticmethod
    def of(bands: ThreadDigits) -> "Lanes":
        own = (digit for digit in bands.all if digit.place is Place.LANE)
        return Lanes(digits=tuple(sorted(own, key=lambda digit: _number(digit.stride))))

    @property
    def radices(self) -> list[int]:
        return [_number(digit.radix) for digit in self.digits]

    def at(self, lane: int) -> dict[str, int]:
        """What a lane adds to each index that is on lanes."""
        found: dict[str, int] = {}
        for digit, radix in zip(self.digits, self.radices, strict=True):
            found[digit.index] = found.get(digit.index, 0) + digit.weight * (lane % radix)
            lane //= radix
        return found

    @property
    def count(self) -> int:
        return reduce(lambda total, radix: total * radix, self.radices, 1)

    def covered(self, index: str) -> int:
        """The iterations of an index from the first lane's to the last one's, and one."""
        return self.at(self.count - 1)[index] + 1


def distance(
    access: WeightedAccess, lanes: Lanes, sizes: Mapping[str, int], extents: Mapping[str, int], work: isl.Work
) -> Distance | None:
    """The distance of an access at the representative sizes, indices below their `extents` where these are known; None
    for a gathered one."""
    points = [subscript for subscript in access.subscripts if not isinstance(subscript, Gather)]
    if len(points) < len(access.subscripts):
        return None
    address = known(offset(access.layout, points), {name: const(value) for name, value in sizes.items()})
    affine = coefficients(address)
    if affine is not None:
        return Distance(elements=closed_form(affine, lanes), by=By.CLOSED_FORM)
    exact = _exact(address, lanes, extents, work)
    if exact is not None:
        return Distance(elements=exact, by=By.ISL)
    return Distance(elements=_greatest(address, lanes, extents), by=By.NUMBERS)


def closed_form(coefficients: Mapping[str, int], lanes: Lanes) -> int:
    """The sum of an affine address: a step that carries to a digit takes all faster ones back to 0."""
    total, taken_back, block = 0, 0, 1
    for digit, radix in zip(lanes.digits, lanes.radices, strict=True):
        own = coefficients.get(digit.index, 0) * digit.weight
        last = lanes.count - 1
        steps = last // block - last // (block * radix)
        total += steps * abs(own - taken_back)
        taken_back += own * (radix - 1)
        block *= radix
    return total


def coefficients(address: IndexExpr) -> dict[str, int] | None:
    """What an affine address has of each index, None for another one."""
    found: dict[str, int] = {}
    for monomial, coefficient in linear(address).terms.items():
        match monomial:
            case ():
                pass
            case (IndexVar(name=name),):
                found[name] = coefficient
            case _:
                return None
    return found


def _exact(address: IndexExpr, lanes: Lanes, extents: Mapping[str, int], work: isl.Work) -> int | None:
    """The greatest sum over all places of a warp, None where isl does not say it."""
    others = sorted(index_names(address))
    places = {index: multiply(const(lanes.covered(index)), IndexVar(name=index)) for index in lanes.at(0)}
    scope = Scope((), tuple(others), work)
    try:
        with work.share(4), work.limited(NO_SPAN, "the distance of an access", len(others), STEPS):
            at = [scope.value(_from(address, places, lanes.at(lane))) for lane in range(lanes.count)]
            steps = [b.sub(a) for a, b in pairwise(at)]
            total = reduce(lambda one, other: one.add(other).coalesce(), [step.max(step.neg()) for step in steps])
            limits = [Compare(op=CompareOp.LE, left=ZERO, right=IndexVar(name=name)) for name in others]
            for name in others:
                if name in extents:
                    first = places.get(name, IndexVar(name=name))
                    limits.append(Compare(op=CompareOp.LT, left=first, right=const(extents[name])))
            inside = conjunction(limits)
            greatest = total.intersect_domain(scope.holds(inside)).max_val()
            return int(greatest.to_python()) if greatest.is_int() else None
    except (NotAffineError, TExprError):
        return None


def _from(address: IndexExpr, places: Mapping[str, IndexExpr], more: Mapping[str, int]) -> IndexExpr:
    return known(address, {index: add(first, const(more[index])) for index, first in places.items()})


def known(address: IndexExpr, values: Mapping[str, IndexExpr]) -> IndexExpr:
    return substitute(address, lambda leaf: values.get(leaf.name))


def _greatest(address: IndexExpr, lanes: Lanes, extents: Mapping[str, int]) -> int:
    """The greatest sum at some places."""
    own, greatest = lanes.at(0), 0
    for place in PLACES:
        start = {name: place * (lanes.covered(name) if name in own else 1) for name in index_names(address)}
        start = {name: first if first < extents.get(name, first + 1) else 0 for name, first in start.items()}
        at = [
            int(index_value(address, {name: first + lanes.at(lane).get(name, 0) for name, first in start.items()}))
            for lane in range(lanes.count)
        ]
        greatest = max(greatest, sum(abs(b - a) for a, b in pairwise(at)))
    return greatest


def weighted(
    accesses: Sequence[WeightedAccess],
    lanes: Lanes,
    sizes: Mapping[str, int],
    extents: Mapping[str, int],
    work: isl.Work,
) -> int:
    """The distances of all accesses, each as often as it is made; a gathered one has none."""
    found = ((access.weight, distance(access, lanes, sizes, extents, work)) for access in accesses)
    return sum(weight * each.elements for weight, each in found if each is not None)


def _number(expr: IndexExpr) -> int:
    value = constant_value(expr)
    assert value is not None and isinstance(expr, IndexConst), "digits of threads have numbers"
    return value


def distance_notes(problem: Problem, candidate: Candidate) -> Iterator[str]:
    """What the report of a mapping by distance says of each access of a band: d, and how it is known."""
    for region in problem.regions():
        choice = candidate.launches[region.name]
        if not isinstance(choice, Flat):
            continue
        nest, ranges = region.nest
        extents = dict(zip(nest.indices, band_sizes(problem, nest, ranges), strict=True))
        pieces = tuple((nest.indices.index(index), threads) for index, threads in choice.deal)
        band = thread_digits(nest.indices, pieces, Names(()), problem.target.warp_size, choice.widths)
        for access in problem.accesses(nest.body, ranges, without=declared(nest.body)):
            found = distance(access, Lanes.of(band), problem.sizes, extents, problem.proved.program.work)
            if found is not None:
                shown = ", ".join(in_words(s) for s in access.subscripts if not isinstance(s, Gather))
                yield f"{access.buffer}[{shown}]: d = {found.elements} ({found.by}), {access.weight} times"
