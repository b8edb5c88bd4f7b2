"""The cases of products of matrices whose sizes a call decides: what tensor maps ask of rows, and how many tiles there
are.

    C[i, j] = sum K k { A[i, k] * B[k, j] }     M >= 1 and N >= 1 and K >= 1 and K <= 131072 and
        M <= 2097152 and N <= 2097152 and K % 8 == 0 and N % 8 == 0 and …
            M * N >= 4194304: the tiles of the highest rate;   else: tiles that are enough for all multiprocessors
        otherwise: rows are copied to where tensor maps have them
    otherwise: no tensor cores

The bounds of both sides keep the numbers of tiles in 32 bits. Of an array that may begin anywhere (`#align(2)`), the
first cases ask for address(A) % 16 == 0 too, also where all sizes are bound.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import partial

from texpr.grammar.ast import Compare, CompareOp, Condition, IndexExpr, IndexOp, SizeVar
from texpr.grammar.index.expr import ZERO, combine, conjunction, const, multiply, names
from texpr.grammar.index.linear import linear
from texpr.grammar.types import F64
from texpr.polyhedral.map.choose_cases import CallCase
from texpr.polyhedral.map.choose_piped import is_large
from texpr.polyhedral.map.laid import with_rows
from texpr.polyhedral.map.multiplied import LEAST_SUMMED
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.product_boxes import UNIT_BYTES, row_strides
from texpr.polyhedral.map.product_forms import product_as_it_is, product_of
from texpr.polyhedral.mapped.candidate import address_of

MOST_SIDE = 1 << 21
MANY = 1 << 22  # elements of a result, of which the largest tiles keep all multiprocessors busy
LARGE, SMALL = 4096, 1024  # what free sizes are taken to be in the two cases


def bounded_sizes(problem: Problem) -> tuple[Condition, ...]:
    """What products of matrices ask of free sizes at most; none where all are bound."""
    sizes = [SizeVar(name=size.name) for size in problem.kernel.sizes]
    return (*map(_at_least_one, sizes), *(_at_most(size, LEAST_SUMMED) for size in sizes))


def product_cases(problem: Problem, bounded: Problem, hinted: Collection[str]) -> Iterator[CallCase]:
    """The cases, the first that holds first; `bounded` is the problem with all that a product may ask of sizes. None
    where every product has its tensor cores, or one is not large."""
    found = [
        product
        for region in bounded.regions()
        if region.band is not None and (product := product_of(bounded, region)) is not None
        if product_as_it_is(problem, region) is None
    ]
    at = {size.name: LARGE for size in problem.kernel.sizes if size.name not in hinted}
    if not found or not all(is_large(bounded, product) for product in found):
        return
    sides = _sizes(extent for p in found for extent in (*p.extents[:2], *(par.extent for par in p.others)))
    depths = _sizes(p.extents[2] for p in found)
    base: list[Condition] = [
        Compare(op=CompareOp.GE, left=SizeVar(name=name), right=const(1)) for name in sorted({*sides, *depths})
    ]
    longest = min(product.most for product in found)
    base += [_at_most(SizeVar(name=name), longest) for name in sorted(depths)]
    arrays = sorted({name for product in found for name in product.arrays})
    units = [
        *(_at_most(SizeVar(name=name), MOST_SIDE) for name in sorted(sides - depths)),
        *(_is_multiple(size, by) for size, by in sorted({*_units(problem, arrays)})),
        *(_is_zero(_address(name)) for name in arrays if problem.kernel.buffer(name).align % UNIT_BYTES),
    ]
    if all(map(partial(_may_be_units, problem), arrays)) and not any(product.turned for product in found):
        area = multiply(*found[0].extents[:2])
        if len(found) == 1 and names(area) and at:
            many = Compare(op=CompareOp.GE, left=area, right=const(MANY))
            yield CallCase(when=conjunction((*base, *units, many)), sizes=at)
            at = dict.fromkeys(at, SMALL)
        yield CallCase(when=conjunction((*base, *units)), sizes=at)
    if base:
        single = {name for product in found if product.dtype == F64 for name in product.arrays}  # each is a copy
        laid = (frozenset(arrays) - single) & with_rows(problem.kernel)
        yield CallCase(when=conjunction(base), sizes=dict.fromkeys(at, LARGE), laid=laid)


def _may_be_units(problem: Problem, array: str) -> bool:
    """Whether sizes or addresses say if rows lie as tensor maps have them."""
    row = row_strides(problem, array)[-1]
    unit = UNIT_BYTES // problem.kernel.buffer(array).dtype.size_bytes
    return bool(names(row)) or linear(row).is_multiple(unit)


def _address(array: str) -> IndexExpr:
    return combine(IndexOp.MOD, address_of(array), const(UNIT_BYTES))


def _sizes(extents: Iterable[IndexExpr]) -> set[str]:
    return {name for extent in extents for name in names(extent)}


def _units(problem: Problem, arrays: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Of which sizes rows of whole units are multiples, and of what."""
    for name in arrays:
        unit = UNIT_BYTES // problem.kernel.buffer(name).dtype.size_bytes
        row = row_strides(problem, name)[-1]
        yield from ((size, unit) for size in names(row) if problem.divisors.get(size, 1) % unit)


def _at_least_one(size: SizeVar) -> Condition:
    return Compare(op=CompareOp.GE, left=size, right=const(1))


def _at_most(size: SizeVar, value: int) -> Condition:
    return Compare(op=CompareOp.LE, left=size, right=const(value))


def _is_multiple(size: str, by: int) -> Condition:
    return _is_zero(combine(IndexOp.MOD, SizeVar(name=size), const(by)))


def _is_zero(value: IndexExpr) -> Condition:
    return Compare(op=CompareOp.EQ, left=value, right=ZERO)
