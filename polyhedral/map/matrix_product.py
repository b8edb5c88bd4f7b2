"""Products of matrices as tensor cores and the copy engine take them: what of a contraction is one, and how it lies.

    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }      A and B of 16 bits, C too or of f32, sums in f32
                                                                  of f32 under `#tf32`; of i8 or u8, sums in i32

    rows      i, the side that is no run of C; of A, whose k is contiguous
    columns   j, along which C is contiguous; of B, whose k is not
    others    all other indices of the band: each value of them is a product of its own

Every subscript of a factor is the index of its side, what is summed, or something of neither; so a tile is a box of a
tensor map, whose rows are 16 bytes apart or a multiple of that; factors of other than 16 bits lie along k. A box ends
where its array does: so what is summed is all of an array's dimension or whole steps of it, and rows and columns are
all of the result's.

Rows and columns may be exchanged: rows the side along which C is contiguous, as where few others are all of a tile's
columns, or where j is best the rows of a tile, because B lies along it.

Of several loops that are summed one goes in steps of 128 bytes, the others are places of a *window*, each with steps of
its own. Then rows may be several indices, which the window moves over an array: boxes of all of them (`row_boxes.py`).
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Condition, Gather, IndexExpr, IndexVar, Leaf, Par, Seq, SizeVar, Stmt, Subscript
from texpr.grammar.index.expr import ceildiv, const, constant_value, multiply, substitute
from texpr.grammar.index.interval import Ranges, least, most
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, F16, F32, F64, I32, DType
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.beside import sums_beside
from texpr.polyhedral.map.contraction import Contraction, Factor, contracted_nest
from texpr.polyhedral.map.epilogue import Epilogue, Output, epilogue
from texpr.polyhedral.map.multiplied import are_multiplied, most_summed
from texpr.polyhedral.map.problem import Problem, Region
from texpr.polyhedral.map.product_boxes import MAX_RANK, are_units, ends_with, is_boxed, may_cross
from texpr.polyhedral.map.row_boxes import RowBoxes, best_sizes, is_windowed
from texpr.polyhedral.map.side import Side
from texpr.polyhedral.map.triangle import Boxed, is_whole, meets
from texpr.polyhedral.map.vectors import Element
from texpr.polyhedral.mapped.atoms import F8, SM_80, SM_90A, lies_along_k, may_multiply
from texpr.polyhedral.mapped.piped import GROUP_ROWS
from texpr.polyhedral.walk import subscript_names

STEP_BYTES = 128  # of each row of a factor in a step
RESULTS = {
    F64: (F64,),
    F32: (F32, F16, BF16),
    I32: (I32, F32, F16, BF16),
}  # of what boxes write, by the type of the sums


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFactor:
    """A factor of a sum with its side; `summed` is the index that goes in steps, `k_contiguous`: neighbours along it
    lie side by side, else along the side."""

    one: Contraction
    factor: Factor
    summed: str
    k_contiguous: bool

    @property
    def id(self) -> str:
        """The update's, whose operator has the factor."""
        return self.one.update.id

    @property
    def index(self) -> str:
        return self.factor.side.index

    @property
    def buffer(self) -> str:
        return self.factor.element[0]

    @property
    def subscripts(self) -> tuple[Subscript, ...]:
        return self.factor.element[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProduct:
    """A product of matrices. `main` is the output of the `epilogue` by which its sides are told, C its array: tiles of
    it are boxes where it is `boxed`, else threads store its elements; of an exchanged one, whose tiles `may_cross` to
    boxes, which of both is for who asks. Sums `beside` it have factors of the columns of their own, and that of the
    rows in common."""

    one: Contraction
    rows: MatrixFactor
    columns: MatrixFactor
    beside: tuple[MatrixFactor, ...]
    epilogue: Epilogue
    main: Output
    boxed: bool
    may_cross: bool

    @property
    def is_exchanged(self) -> bool:
        """Whether rows, and not columns, are nearer to one another in the result."""
        return self.rows.index in subscript_names(self.result[1][-1:])

    @property
    def result(self) -> Element:
        """The element of C."""
        return self.main.element

    @property
    def result_dtype(self) -> DType:
        """The type of C."""
        return self.main.dtype

    @property
    def stored(self) -> Leaf:
        """What binds it."""
        return self.main.leaf

    @property
    def dtype(self) -> DType:
        """Of the rows' factor, and of the columns' one but for another kind of f8."""
        return self.rows.factor.dtype

    @property
    def in_portions(self) -> bool:
        """Whether sums are made of portions, of a step each, which are added in f32."""
        return self.dtype in F8

    @property
    def depth(self) -> int:
        """Products of a step."""
        return STEP_BYTES // self.dtype.size_bytes

    @property
    def most(self) -> int:
        """How many products a sum may have."""
        return most_summed(self.dtype)

    @property
    def turned(self) -> tuple[str, ...]:
        """The factors that lie along their side, where tensor cores take them along what is summed. That of rows of f32
        warps load into registers, element by element."""
        loaded = self.dtype == F32 and len(self.row_loops) == 1 and self.domain is None and not self.window.loops
        all_ = self.factors[1:] if loaded else self.factors
        return tuple(f.buffer for f in all_ if lies_along_k(self.dtype) and not f.k_contiguous)

    @property
    def summed(self) -> str:
        """The index of the sum that goes in steps."""
        return self.rows.summed

    @property
    def window(self) -> Side:
        """The loops of the sum beside it."""
        return Side(loops=tuple(loop for loop in self.one.reduction.loops if loop.index != self.summed))

    @property
    def row_loops(self) -> tuple[Par | Seq, ...]:
        """The loops whose iterations are rows."""
        return self.rows.factor.side.loops

    @property
    def domain(self) -> Condition | None:
        """Which elements of the result there are; None: all."""
        return self.one.nest.domain

    @property
    def sums(self) -> int:
        """How many there are of each iteration."""
        return 1 + len(self.beside)

    @property
    def factors(self) -> tuple[MatrixFactor, ...]:
        """That of the rows, and those of the columns of each sum."""
        return (self.rows, self.columns, *self.beside)

    @property
    def arrays(self) -> tuple[str, ...]:
        """Those of which tiles are boxes: both factors, and the result where it is `boxed`."""
        return (*dict.fromkeys(factor.buffer for factor in self.factors), *((self.result[0],) if self.boxed else ()))

    @property
    def extents(self) -> tuple[IndexExpr, IndexExpr, IndexExpr]:
        """Rows, columns, and products of a sum at each place of the window."""
        (deep,) = (loop.extent for loop in self.one.reduction.loops if loop.index == self.summed)
        return self.rows.factor.side.extent, self.columns.factor.side.extent, deep

    @property
    def places(self) -> int:
        """Those of the window."""
        return constant_value(self.window.extent) or 0 if self.window.loops else 1

    @property
    def steps(self) -> IndexExpr:
        """Those of a sum."""
        return multiply(const(self.places), ceildiv(self.extents[2], self.depth))

    def sizes(self, problem: Problem) -> tuple[int, int, int]:
        """Rows, columns and products of a sum at the representative sizes."""
        rows, columns, depth = (problem.representative(extent, {}) for extent in self.extents)
        return rows, columns, depth * self.places

    def row_boxes(self, problem: Problem) -> RowBoxes | None:
        """The boxes that rows of several indices are best in; None where they are neighbours of one."""
        if len(self.row_loops) == 1:
            return None
        extents = [problem.representative(loop.extent, {}) for loop in self.row_loops]
        return RowBoxes(loops=self.row_loops, sizes=best_sizes(extents))

    @property
    def others(self) -> tuple[Par, ...]:
        """The indices of which each value is a product of its own."""
        sides = {*self.rows.factor.side.indices, self.columns.index}
        return tuple(par for par in self.one.nest.pars if par.index not in sides)


def matrix_product(
    problem: Problem, region: Region, across: str | None = None, *, crossed: bool = False
) -> MatrixProduct | None:
    """The product of matrices that a region is, for tensor cores of its target; None where it is none. Its rows are the
    side of the index `across`, or where there is none the one for which tiles of the result are boxes. `crossed`: where
    it is exchanged, its tiles are boxes all the same if they may be."""
    found = product_of_any_rows(problem, region, across=across)
    if found is not None and crossed and found.may_cross:
        found = replace(found, boxed=True)
    if found is None or found.turned or not all(are_units(problem, name) for name in found.arrays):
        return None
    return found


def product_of_any_rows(
    problem: Problem, region: Region, *, boxes: bool = True, across: str | None = None
) -> MatrixProduct | None:
    """The same where rows begin anywhere in memory, and factors lie along either of their dimensions. Its tiles are
    `boxes` of tensor maps, or threads bring them, on any target with tensor cores, and know where it ends."""
    if not (SM_90A if boxes else SM_80).has(problem.target) or region.saved or region.host:
        return None
    direct: MatrixProduct | None = None
    nest = contracted_nest(region)
    windowed: list[MatrixProduct] = []
    for ones in sums_beside(problem, nest):
        found = _product(problem, ones, nest.body, boxes=boxes, across=across)
        if found is not None and found.window.loops:
            windowed.insert(0, found)
            continue
        if found is not None and found.boxed:
            return found
        direct = direct or found
    return min(windowed, key=lambda own: _made(problem, own), default=direct)


def _made(problem: Problem, product: MatrixProduct) -> int:
    """How many iterations tiles have, those beyond the rows, too."""
    rows, columns, _ = product.sizes(problem)
    boxes = product.row_boxes(problem)
    high = problem.representative(boxes.total, {}) if boxes is not None else -(-rows // GROUP_ROWS)
    return high * columns * prod(problem.representative(par.extent, {}) for par in product.others)


def _product(
    problem: Problem, ones: tuple[Contraction, ...], body: tuple[Stmt, ...], *, boxes: bool, across: str | None
) -> MatrixProduct | None:
    one = ones[0]
    if any(own.dtype != one.dtype or own.extent != one.extent for own in ones):
        return None
    triangular = one.nest.domain is not None
    if triangular and (not boxes or len(ones) > 1 or len(one.reduction.loops) > 1 or not _is_told(one.nest)):
        return None  # single warps write whole tiles
    windowed = len(one.reduction.loops) > 1
    joins = sum(side.joins for own in ones for side in own.sides)
    if joins > windowed or any((len(own.reduction.loops) > 1) > (boxes and len(ones) == 1) for own in ones):
        return None
    extents = (*(par.extent for par in one.nest.pars), *(loop.extent for loop in one.reduction.loops))
    longest = most(one.extent, size_ranges(problem.kernel))
    if not all(is_some(problem, extent) for extent in extents) or longest is None:
        return None
    around = epilogue(problem, ones, body)
    (first, second), *others = [_factors(problem, own, boxes=boxes) for own in ones]
    if around is None or first is None or second is None or longest > most_summed(one.first.dtype):
        return None
    if around.over and (not boxes or triangular or windowed):
        return None  # those launches have no parts of rows
    every: list[MatrixProduct] = []
    for output in around.outputs or around.rows:
        for rows, columns in ((first, second), (second, first)):
            if columns.factor.side.joins or across not in (None, rows.index):
                continue
            if any(subscript_names(own.subscripts) != {*one.nest.indices} - {columns.index} for own in around.over):
                continue
            beside = [own for pair in others if (own := _beside(rows, *pair)) is not None]
            if len(beside) < len(others):
                continue
            plain = not triangular or around.plain  # or threads know what there is
            lies = _lies_in_boxes(problem, output, rows, columns, boxes=boxes)
            found = MatrixProduct(
                one=one, rows=rows, columns=columns, beside=tuple(beside), epilogue=around, main=output,
                boxed=plain and lies and output.element[1][-1] == IndexVar(name=columns.index),
                may_cross=lies and boxes and not triangular and may_cross(problem, output, rows.factor.side),
            )  # fmt: skip
            every.append(found)
    return min(
        every, key=lambda own: (len(own.turned), not own.boxed, not own.boxed and own.is_exchanged), default=None
    )


def _is_told(nest: Boxed) -> bool:
    """Whether the ends of a tile's indices tell if it meets the domain of a nest, and if it is inside."""
    domain, indices = nest.domain, nest.indices
    ranges: Ranges = {index: (IndexVar(name=f"{index}#0"), IndexVar(name=f"{index}#1")) for index in indices}
    return domain is None or None not in (meets(domain, ranges), is_whole(domain, ranges))


def _beside(rows: MatrixFactor, first: MatrixFactor | None, second: MatrixFactor | None) -> MatrixFactor | None:
    """The factor of the columns of another sum; None where its other one is not that of the rows."""
    if first is None or second is None:
        return None
    columns, other = (second, first) if first.index == rows.index else (first, second)
    at = {other.summed: IndexVar(name=rows.summed)}
    same = (other.buffer, tuple(in_terms(subscript, at) for subscript in other.subscripts)) == rows.factor.element
    return columns if same and may_multiply(columns.factor.dtype, rows.factor.dtype) else None


def _lies_in_boxes(problem: Problem, output: Output, rows: MatrixFactor, columns: MatrixFactor, *, boxes: bool) -> bool:
    """Whether tiles of an output lie in boxes, whose dimensions are the sides of these factors."""
    loops = (*rows.factor.side.loops, *columns.factor.side.loops)
    sides = tuple(loop.index for loop in loops)
    if output.dtype not in RESULTS[rows.one.dtype] or not is_boxed(problem, output.element, sides, boxes=boxes):
        return False
    return not boxes or all(ends_with(problem, output.element, loop.index, loop.extent) for loop in loops)


def _factors(problem: Problem, one: Contraction, *, boxes: bool) -> tuple[MatrixFactor | None, MatrixFactor | None]:
    """The factors, the innermost loop in steps with which both are such; all other loops have known extents."""
    for deep in reversed(one.reduction.loops):
        window = (loop.extent for loop in one.reduction.loops if loop is not deep)
        if all(constant_value(extent) for extent in window):
            first, second = (_factor(problem, one, factor, deep, boxes=boxes) for factor in (one.first, one.second))
            if first is not None and second is not None:
                return first, second
    return None, None


def _factor(problem: Problem, one: Contraction, factor: Factor, deep: Seq, *, boxes: bool) -> MatrixFactor | None:
    """A factor of which tiles of its side and of what is summed are boxes."""
    summed, extent = deep.index, deep.extent
    if not are_multiplied(problem, one, by_warps=not boxes):
        return None
    if factor.side.joins:
        if len(factor.element[1]) > MAX_RANK or not is_windowed(problem, factor, summed):
            return None
    elif factor.where is not None or not is_boxed(problem, factor.element, (factor.side.index, summed), boxes=boxes):
        return None
    whole = not boxes or linear(extent).is_multiple(STEP_BYTES // factor.dtype.size_bytes, problem.divisors)
    if not whole and not ends_with(problem, factor.element, summed, extent):
        return None
    deepest = factor.element[1][-1] == IndexVar(name=summed)
    return MatrixFactor(one=one, factor=factor, summed=summed, k_contiguous=deepest)


def in_terms(subscript: Subscript, of: Mapping[str, IndexExpr]) -> Subscript:
    """A subscript of a box with what stands for some indices."""
    assert not isinstance(subscript, Gather), "a box"
    return substitute(subscript, lambda leaf: of.get(leaf.name))


def is_some(problem: Problem, extent: IndexExpr) -> bool:
    """Whether an extent is at least 1 at all sizes, which a tensor map asks of an array."""
    return least(extent, {name: (const(low), SizeVar(name=name)) for name, low in problem.least.items()}) > 0
