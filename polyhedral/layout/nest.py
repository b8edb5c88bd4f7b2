"""Layouts whose coordinates can be read back: the digits of every unit nest, and together they say the element.

    address 72 * x0 + x1, x1 < 64         72 >= 64: x1 = address % 72, x0 = address / 72
    lane x0 % 8 * 4 + x1 / 2 % 4, register x0 / 8 * 2 + x1 % 2
                                          x0 = lane / 4 + register / 2 * 8, x1 = lane % 4 * 2 + register % 2

The digits of one unit nest when each stride is beyond all that the smaller ones reach together; strides may be sizes,
as far as the sign of their difference is known. The digits of a dimension cover it when each begins where the one
before ends, up to the extent; they may be those of several units.
"""

from collections.abc import Callable, Sequence

from texpr.grammar.ast import IndexExpr, SizeVar
from texpr.grammar.index.expr import ZERO, add, ceildiv, const, constant_value
from texpr.grammar.index.linear import Linear, constant, linear, variable
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.layout.value import Layout, Term, Unit

MAX_ORDERED = 6  # digits with free strides that are tried in every order

Nonnegative = Callable[[Linear], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """How a layout is read back. `units` has the digits of every unit, from the least stride up; `dims` those that say
    each dimension, from the lowest digit up; `constants` what each unit's coordinate is when all digits are 0."""

    units: dict[Unit, tuple[Term, ...]]
    dims: tuple[tuple[Term, ...], ...]
    constants: dict[Unit, IndexExpr]


def nest(layout: Layout, nonnegative: Nonnegative = Linear.is_nonnegative) -> Nest | None:
    """The order in which the digits of a layout nest, None where none is found. `nonnegative` says of what forms in
    sizes it is known; extents are taken as at least 1, since of no elements there is nothing to read back."""
    form = canonical(layout)
    positive = _positive(form, nonnegative)
    units: dict[Unit, tuple[Term, ...]] = {}
    for unit in form.units:
        ordered = _ordered(form, [t for t in form.of(unit) if t.dim is not None], positive)
        if ordered is None:
            return None
        units[unit] = ordered
    free = [t for terms in units.values() for t in terms]
    dims: list[tuple[Term, ...]] = []
    for dim in range(form.rank):
        cover = _cover([t for t in free if t.dim == dim], form.shape[dim])
        if cover is None:
            return None
        dims.append(cover)
    constants = {unit: next((t.offset for t in form.of(unit) if t.dim is None), ZERO) for unit in form.units}
    return Nest(units=units, dims=tuple(dims), constants=constants)


def _positive(layout: Layout, nonnegative: Nonnegative) -> Nonnegative:
    """The same question of forms in which every size that is an extent is one more than a size."""
    names = [extent for extent in layout.shape if isinstance(extent, SizeVar)]

    def known(form: Linear) -> bool:
        least = form
        for name in names:
            least = least.replaced(name, variable(name) + 1)
        return least.is_nonnegative() or nonnegative(form)

    return known


def radix(layout: Layout, term: Term) -> IndexExpr:
    """What the values of a digit stay below; they begin at 0 or above, where the offset is a number."""
    assert term.dim is not None, "a constant is no digit"
    reach = add(layout.extents[term.dim], term.offset)
    count = ceildiv(reach, term.divisor)
    if term.modulus is None:
        return count
    number = constant_value(count)
    return const(term.modulus if number is None else min(number, term.modulus))


def _ordered(layout: Layout, terms: list[Term], nonnegative: Nonnegative) -> tuple[Term, ...] | None:
    """The digits from the least stride up, each stride beyond what those before it reach."""
    numbers = [constant_value(t.stride) for t in terms]
    free = any(number is None for number in numbers)
    known = sorted(terms, key=lambda t: constant_value(t.stride) or 0) if not free else terms[::-1]
    choose = free and len(terms) <= MAX_ORDERED

    def above(done: tuple[Term, ...], left: list[Term], reached: Linear, simple: Linear) -> tuple[Term, ...] | None:
        """The order with `left` over `done`, which reach below `reached`, and the last of which below `simple`."""
        if not left:
            return done
        for number, term in enumerate(left if choose else left[:1]):
            stride, others = linear(term.stride), left[:number] + left[number + 1 :]
            unknown = term.modulus is None and constant_value(term.offset) is None
            if unknown and others:  # it may begin anywhere: only the greatest stride is read without bounds
                continue
            if nonnegative(stride - reached) or nonnegative(stride - simple):
                count = linear(radix(layout, term))
                found = above((*done, term), others, reached + (count - 1) * stride, count * stride)
                if found is not None:
                    return found
        return None

    return above((), known, constant(1), constant(1))


def _cover(terms: Sequence[Term], extent: IndexExpr) -> tuple[Term, ...] | None:
    """Digits of one dimension and one offset that follow one another from the lowest up to the extent."""
    count = constant_value(extent)
    if count is not None and count <= 1:
        return ()
    for offset in dict.fromkeys(linear(t.offset) for t in terms):
        found: list[Term] = []
        reached: int | None = 1
        while reached is not None and (count is None or reached < count):
            here = [t for t in terms if t.divisor == reached and linear(t.offset) == offset]
            best = next((t for t in here if t.modulus is None), max(here, key=lambda t: t.modulus or 0, default=None))
            if best is None:
                break
            found.append(best)
            reached = None if best.modulus is None else reached * best.modulus
        else:
            return tuple(found)
    return None
