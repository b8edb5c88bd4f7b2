"""The one form of the layouts that mean the same, and equality by it.

    x0 / 4 * 32 + x0 % 4 * 8 + x1       8 * x0 + x1               digits whose strides continue are one
    8 * x0 + x0 / 4                     x0 / 4 * 33 + x0 % 4 * 8  terms that overlap are digits
    x0 % 16, x0 < 16                    x0                        a modulus that cuts nothing off goes
    (x0 + 6) / 4 * 8                    (x0 + 2) / 4 * 8 + 8      offsets are less than a divisor

Where the divisors and moduli of a dimension divide one another this is canonical; what does not (x % 2 and x % 3)
stays, and `same` compares such layouts element by element where they are small.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations

from texpr.grammar.ast import IndexExpr, SizeVar
from texpr.grammar.index.expr import ONE, ZERO, const, constant_value, size_names, substitute
from texpr.grammar.index.linear import Linear, constant, linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.place import every_place, term_value
from texpr.polyhedral.layout.value import Layout, Term, Unit

MAX_ENUMERATED = 1 << 20  # places that are compared, or proved distinct, one by one
MAX_RENAMED = 5  # sizes whose names are tried in every order


@dataclass(frozen=True, slots=True)
class Piece:
    """(x[dim] + offset) / divisor % modulus * stride, in normal forms."""

    dim: int
    offset: Linear
    divisor: int
    modulus: int | None
    stride: Linear


def canonical(layout: Layout) -> Layout:
    """The same layout with its terms in the one form and order."""
    if _is_canonical(layout):
        return layout
    terms: list[Term] = []
    for unit in layout.units:
        pieces, rest = _unit(layout, unit)
        for piece in pieces:
            terms.append(
                Term(
                    dim=piece.dim,
                    stride=piece.stride.expression(),
                    divisor=piece.divisor,
                    modulus=piece.modulus,
                    offset=piece.offset.expression(),
                    unit=unit,
                )
            )
        if rest.terms:
            terms.append(Term(dim=None, stride=ONE, offset=rest.expression(), unit=unit))
    used = [c for c in range(len(layout.copies)) if any(t.dim == layout.rank + c for t in terms)]
    numbers = {layout.rank + c: layout.rank + number for number, c in enumerate(used)}
    terms = [replace(t, dim=numbers.get(t.dim, t.dim) if t.dim is not None else None) for t in terms]
    return replace(layout, terms=tuple(terms), copies=tuple(layout.copies[c] for c in used))


def _is_canonical(layout: Layout) -> bool:
    """Whether it plainly is in that form: addresses by one constant stride for each dimension in turn."""
    dims = [term.dim for term in layout.terms if term.dim is not None]
    return (
        not layout.copies
        and len(dims) == len(layout.terms)
        and all(before < after for before, after in pairwise(dims))
        and all(constant_value(term.stride) for term in layout.terms)
        and all(term.is_step for term in layout.terms)
        and all(constant_value(layout.shape[dim]) != 1 for dim in dims)
    )


def _unit(layout: Layout, unit: Unit) -> tuple[list[Piece], Linear]:
    """The terms of a unit, and its constant."""
    rest = Linear()
    groups: dict[tuple[int, Linear], list[Piece]] = defaultdict(list)
    for term in layout.of(unit):
        if term.dim is None:
            rest += linear(term_value(term, ZERO))
            continue
        whole = Piece(term.dim, linear(term.offset), term.divisor, term.modulus, linear(term.stride))
        piece, left = _settled(whole, constant_value(layout.extents[term.dim]))
        rest += left
        if piece is not None:
            groups[piece.dim, piece.offset].append(piece)
    found: list[Piece] = []
    for (dim, shift), pieces in groups.items():
        found += _merged(dim, shift, pieces)
    found.sort(key=lambda p: (p.dim, -p.divisor, p.modulus or 0, str(p.offset.expression())))
    return found, rest


def _settled(piece: Piece, count: int | None) -> tuple[Piece | None, Linear]:
    """The piece with the least offset and no idle modulus, and the constant that it leaves behind."""
    divisor, modulus, stride = piece.divisor, piece.modulus, piece.stride
    if not stride.terms or modulus == 1:
        return None, Linear()
    left = piece.offset
    if divisor == 1 and modulus is None:
        return (None if count == 1 else replace(piece, offset=Linear())), stride * left
    shift = left.value
    if shift is None:
        return piece, Linear()
    if modulus is None:
        whole, shift = divmod(shift, divisor)
    else:
        whole, shift = 0, shift % (divisor * modulus)
    rest = stride * whole
    if count is not None:
        least, most = shift // divisor, (shift + max(count, 1) - 1) // divisor
        if modulus is not None and least // modulus == most // modulus:
            cut = least // modulus * modulus
            return _settled(Piece(piece.dim, constant(shift - cut * divisor), divisor, None, stride), count)
        if least == most:
            return None, rest + stride * least
    return replace(piece, offset=constant(shift)), rest


def _merged(dim: int, shift: Linear, pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces of one x + offset as digits, neighbours whose strides continue as one."""
    points = sorted({p.divisor for p in pieces} | {p.divisor * p.modulus for p in pieces if p.modulus is not None})
    if any(after % before for before, after in pairwise(points)):
        return list(pieces)
    open_end = any(p.modulus is None for p in pieces)
    found: list[Piece] = []
    for number, low in enumerate(points):
        high = points[number + 1] if number + 1 < len(points) else None
        if high is None and not open_end:
            break
        stride = Linear()
        for p in pieces:
            end = None if p.modulus is None else p.divisor * p.modulus
            if p.divisor <= low and (end is None or (high is not None and high <= end)):
                stride += p.stride * (low // p.divisor)
        radix = None if high is None else high // low
        before = found[-1] if found else None
        if before is not None and before.modulus is not None and stride == before.stride * before.modulus:
            modulus = None if radix is None else before.modulus * radix
            found[-1] = replace(before, modulus=modulus)
        else:
            found.append(Piece(dim, shift, low, radix, stride))
    return [piece for piece in found if piece.stride.terms]


Key = tuple[object, ...]


def _key(layout: Layout) -> Key:
    """What equal canonical layouts have in common; expressions by their normal forms."""
    terms = frozenset((t.unit, t.dim, t.divisor, t.modulus, linear(t.offset), linear(t.stride)) for t in layout.terms)
    return tuple(map(linear, layout.shape)), terms, layout.xor, layout.copies


def same(left: Layout, right: Layout) -> bool:
    """Whether two layouts put every element in the same places: by their canonical forms, and where these differ
    element by element if the shapes are small numbers. False where neither shows it."""
    if _key(canonical(left)) == _key(canonical(right)):
        return True
    if tuple(map(linear, left.shape)) != tuple(map(linear, right.shape)):
        return False
    return all(map(is_enumerable, (left, right))) and _places(left) == _places(right)


def is_enumerable(layout: Layout) -> bool:
    """Whether all is numbers and there are so few places that they may be looked at one by one."""
    count = 1
    for extent in layout.extents:
        number = constant_value(extent)
        if number is None:
            return False
        count *= max(number, 0)
    parts = (e for t in layout.terms for e in (t.stride, t.offset))
    return count <= MAX_ENUMERATED and all(linear(e).value is not None for e in parts)


def _places(layout: Layout) -> dict[tuple[int, ...], set[tuple[tuple[Unit, int], ...]]]:
    """The places of each element; a coordinate 0 is none, so that units without a term say nothing."""
    found: dict[tuple[int, ...], set[tuple[tuple[Unit, int], ...]]] = defaultdict(set)
    arrays = every_place(layout)
    flat = [(unit, array.reshape(-1).tolist()) for unit, array in arrays.items()]
    import numpy as np

    for number, element in enumerate(np.ndindex(*arrays[Unit.ADDRESS].shape)):
        found[element[: layout.rank]].add(tuple((u, values[number]) for u, values in flat if values[number]))
    return dict(found)


def renamed(layout: Layout, names: Mapping[str, IndexExpr]) -> Layout:
    """The layout with other expressions for some sizes."""

    def put(expression: IndexExpr) -> IndexExpr:
        return substitute(expression, lambda leaf: names.get(leaf.name) if isinstance(leaf, SizeVar) else None)

    terms = tuple(replace(t, stride=put(t.stride), offset=put(t.offset)) for t in layout.terms)
    return replace(layout, shape=tuple(map(put, layout.shape)), terms=terms)


def bound(layout: Layout, sizes: Mapping[str, int]) -> Layout:
    """The layout at values of some sizes."""
    return renamed(layout, {name: const(value) for name, value in sizes.items()})


def renaming(left: Layout, right: Layout) -> dict[str, str] | None:
    """For each size of the left layout the one of the right layout in whose stead it stands; None where no such names
    make the two the same. `(M, N) row-major` and `(K, P) row-major` are the same with M for K and N for P."""
    own, other = _sizes(left), _sizes(right)
    if len(own) != len(other) or len(own) > MAX_RENAMED:
        return None
    for order in permutations(other):
        names = dict(zip(own, order, strict=True))
        if same(renamed(left, {name: SizeVar(name=new) for name, new in names.items()}), right):
            return names
    return None


def _sizes(layout: Layout) -> tuple[str, ...]:
    parts = (*layout.shape, *(e for t in layout.terms for e in (t.stride, t.offset)))
    return tuple(dict.fromkeys(name for part in parts for name in size_names(part)))


def strides(layout: Layout) -> tuple[IndexExpr, ...] | None:
    """One stride for each dimension where that says all about the addresses, else None; as they were given to
    `strided`, where that made the layout."""
    plain = all(t.is_step and t.dim == dim for dim, t in enumerate(layout.terms))
    form = layout if plain and len(layout.terms) == layout.rank else canonical(layout)
    found: dict[int, IndexExpr] = {}
    for term in form.terms:
        if term.dim is None or term.unit is not Unit.ADDRESS or term.divisor != 1 or term.modulus is not None:
            return None
        found[term.dim] = term.stride
    return None if layout.xor is not None or form.copies else tuple(found.get(d, ZERO) for d in range(layout.rank))
