"""What the epilogue of a product reads of arrays two neighbours at once, as a thread holds two of each of its rows.

    C[i, j] = R[i, j] + b[j] + s      R_pair[e] = R[i, pair + e], b_pair[e] = b[pair + e]  for e < 2, wide

What has columns alone is alike for all rows of a thread: it comes before the products where registers have room for all
columns of the tile, else with each eight of them.
"""

from collections.abc import Iterator

from texpr.grammar.ast import IndexExpr, IndexVar, Read
from texpr.grammar.index.expr import ZERO, add, const
from texpr.grammar.index.linear import linear
from texpr.grammar.walk import walk
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.lane_pairs import EIGHT, PAIR
from texpr.polyhedral.map.matrix_product import MatrixProduct, in_terms
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.vectors import Element, element_width
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Fresh, Node
from texpr.polyhedral.mapped.views import View


def paired(problem: Problem, product: MatrixProduct) -> tuple[Element, ...]:
    """The elements that leaves read in pairs: of arrays that no leaf writes, at indices of the band that go over all of
    their dimensions, so that each is there whatever asks for it."""
    whole = linear(product.columns.factor.side.extent).is_multiple(PAIR, problem.divisors)
    if product.domain is not None or not whole:  # of a pair there may be one alone
        return ()
    return tuple(dict.fromkeys(_paired(problem, product)))


def _paired(problem: Problem, product: MatrixProduct) -> Iterator[Element]:
    written = {output.element[0] for output in product.epilogue.outputs}
    extents = {par.index: par.extent for par in product.one.nest.pars}
    params, column = {buffer.name: buffer for buffer in problem.kernel.params}, product.columns.index
    for leaf in product.epilogue.leaves:
        for read in walk(leaf):
            if not isinstance(read, Read) or read.buffer not in params or read.buffer in written:
                continue
            indices = [s.name if isinstance(s, IndexVar) else "" for s in read.subscripts]
            if [extents.get(index) for index in indices] != [*params[read.buffer].shape] or not indices:
                continue
            if indices[-1] == column and indices.count(column) == 1:
                element = (read.buffer, read.subscripts)
                if element_width(problem, element, column) % PAIR == 0:
                    yield element


class Pairs:
    """The registers of what is read in pairs by a thread, which has so many of them besides its sums."""

    def __init__(self, draft: Draft, product: MatrixProduct, columns: int, registers: int) -> None:
        self.draft, self.product, self.eighths = draft, product, columns // EIGHT
        self.elements = paired(draft.problem, product)
        self.ahead: dict[Element, str] = {}
        self.held: dict[Element, str] = {}
        for element in self.elements:
            room = PAIR * self.eighths * (1 + len(self.ahead)) <= registers
            ahead = self._of_columns(element) and room
            shape = (self.eighths, PAIR) if ahead else (PAIR,)
            buffer, span = draft.kernel.buffer(element[0]), product.one.update.span
            reason = "neighbours that are read at once"
            name = draft.local(f"{element[0]}_pair", buffer.dtype, Memory.REG, row_major(shape), reason, span=span)
            (self.ahead if ahead else self.held)[element] = name

    def _of_columns(self, element: Element) -> bool:
        rows = self.product.rows.factor.side.indices
        return not any(isinstance(s, IndexVar) and s.name in rows for s in element[1])

    def view(self, element: Element, eighth: IndexExpr, one: IndexExpr) -> View:
        """Where an element is, by the number of its eight columns."""
        place = (eighth, one) if element in self.ahead else (one,)
        name = self.ahead.get(element) or self.held[element]
        return View(buffer=name, subscripts=place, dtype=self.draft.kernel.buffer(element[0]).dtype)

    def before(self, eighth: str, first: IndexExpr) -> tuple[Node, ...]:
        """The copies of the eight columns of a number, of which the thread's pair is `first`, before the products."""
        return tuple(self._copy(element, IndexVar(name=eighth), first) for element in self.ahead)

    def of_columns(self, first: IndexExpr) -> tuple[Node, ...]:
        """The copies of a pair of columns, for all rows of the thread."""
        return self._copies([e for e in self.held if self._of_columns(e)], first)

    def of_row(self, first: IndexExpr) -> tuple[Node, ...]:
        """Those of one of its rows."""
        return self._copies([e for e in self.held if not self._of_columns(e)], first)

    def _copies(self, elements: list[Element], first: IndexExpr) -> tuple[Node, ...]:
        fresh = (Fresh(buffer=self.held[element]) for element in elements)
        return (*fresh, *(self._copy(element, ZERO, first) for element in elements))

    def _copy(self, element: Element, eighth: IndexExpr, first: IndexExpr) -> Copy:
        each = self.draft.names.fresh("each")
        of = {self.product.columns.index: add(first, IndexVar(name=each))}
        name, subscripts = element
        dtype = self.draft.kernel.buffer(name).dtype
        return Copy(
            id=self.draft.names.fresh(f"{self.product.one.update.id}_{name}_pair"),
            source=View(buffer=name, subscripts=tuple(in_terms(s, of) for s in subscripts), dtype=dtype),
            target=self.view(element, eighth, IndexVar(name=each)),
            over=((each, const(PAIR)),),
            access=Access.ALIGNED,
            span=self.product.one.update.span,
        )
