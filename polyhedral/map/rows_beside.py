"""Rows beside one another: neighbouring iterations of a band whose sums one thread adds, along which it has runs.

    par M i { Y[i] = sum N j { A[i, j] * X[j] } }      runs of 8 along j, of 4 rows i

    copy A_run[8*r + e] = A[min(i_first + r, M - 1), j_first + e] for r < 4, e < 8
    copy X_run[e] = X[j_first + e] for e < 8
    for i_row < 4, j_vector < 8: Y_part[i_row] += A_run[8*i_row + j_vector] * X_run[j_vector]

What no row has of its own is loaded once for all of them. Rows may be of two indices, of which each is that of another
array: then a thread has all sums of some rows of both.

    par 8 m, N n { Y[m, n] = sum K k { X[m, k] * W[n, k] } }      Y_part[4*m_row + n_row], of 8 rows m and 4 rows n
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Accumulate, Compare, CompareOp, IndexExpr, IndexOp, IndexVar, Subscript
from texpr.grammar.index.expr import ONE, ZERO, add, combine, const, constant_value, minimum, multiply, subtract
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.crew import Crew
from texpr.polyhedral.map.objective import WeightedAccess
from texpr.polyhedral.map.vectors import Element, at
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.places import Digit, Memory, Scope
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.mapped.views import Box
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.names import stem
from texpr.polyhedral.walk import read_accesses, subscript_names


def takes_rows(crew: Crew, choice: Parted) -> bool:
    """Whether a thread has neighbours that are rows, and none along its runs."""
    return any(par.index in choice.patch for par in crew.taken)


def of_all_rows(choice: Parted, accesses: Iterable[WeightedAccess]) -> list[WeightedAccess]:
    """Accesses of a thread, as often as its rows have elements of their own there."""
    return [
        replace(access, weight=access.weight * prod(n for index, n in choice.patch.items() if index in has))
        for access in accesses
        for has in (subscript_names(access.subscripts),)
    ]


@dataclass(frozen=True, slots=True)
class RowsBeside:
    """The rows of a thread, by the digits of the one at hand: one for each index that rows are of."""

    crew: Crew
    digits: tuple[Digit, ...]

    def of(self, element: Element) -> tuple[Digit, ...]:
        """The digits of those indices of which each row has another element."""
        return tuple(d for d in self.digits if d.index in subscript_names(element[1]))

    def count(self, element: Element) -> int:
        """How many elements all rows have."""
        return prod(constant_value(digit.radix) or 1 for digit in self.of(element))

    def loops(self, element: Element, without: str = "") -> tuple[Box, Mapping[str, IndexExpr]]:
        """Loops over the rows that have another element each, and the numbers of the row at hand in them, but for those
        of one index."""
        moving = (digit for digit in self.of(element) if digit.index != without)
        names = [(digit, self.crew.draft.names.fresh(f"{stem(digit.index)}_beside")) for digit in moving]
        numbers = {digit.index: IndexVar(name=name) for digit, name in names}
        return tuple((name, digit.radix) for digit, name in names), numbers

    def there(self, subscripts: tuple[Subscript, ...], numbers: Mapping[str, IndexExpr]) -> tuple[Subscript, ...]:
        """Subscripts in the rows of these numbers, by their index: of those that there are not the last one that there
        is, of those that lie apart that of the thread, whose elements nobody adds again."""
        for index, number in numbers.items():
            first, apart, cut = IndexVar(name=self.crew.firsts[index]), self.crew.apart, self.crew.cut_of(index)
            if apart == 1:
                row = add(first, number)
                row = row if cut is None else minimum(row, subtract(cut, ONE))
            else:
                if cut is not None:
                    behind = subtract(subtract(cut, ONE), first)
                    number = minimum(number, combine(IndexOp.DIV, behind, const(apart)))
                row = add(first, multiply(const(apart), number))
            subscripts = at(subscripts, index, row)
        return subscripts

    @property
    def last(self) -> Mapping[str, IndexExpr]:
        """The numbers of the last row."""
        return {digit.index: subtract(digit.radix, ONE) for digit in self.digits}

    @property
    def number(self) -> IndexExpr:
        """That of the row at hand, among all."""
        return _number(self.digits, self.at_hand)

    def place(self, run: int, element: Element, numbers: Mapping[str, IndexExpr], here: IndexExpr) -> IndexExpr:
        """Where rows of these numbers have an element of their registers, of which each row has a `run`."""
        return add(multiply(const(run), _number(self.of(element), numbers)), here)

    @property
    def at_hand(self) -> Mapping[str, IndexExpr]:
        """The numbers of the row at hand."""
        return {digit.index: IndexVar(name=digit.name) for digit in self.digits}

    def each(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes for every row that there is. Of one index none is asked for where all rows of a thread are."""
        crew, (first, *others) = self.crew, self.digits
        cut = crew.cut_of(first.index)
        if others or cut is None:
            return self._each(nodes, asks=True)
        last = multiply(const(crew.apart), subtract(first.radix, ONE))
        end = add(IndexVar(name=crew.firsts[first.index]), add(last, ONE))
        return (
            Guard(
                condition=Compare(op=CompareOp.LE, left=end, right=cut),
                body=self._each(nodes, asks=False),
                orelse=self._each(nodes, asks=True),
                uniform=Scope.BLOCK,
                span=crew.span,
            ),
        )

    def _each(self, nodes: tuple[Node, ...], *, asks: bool) -> tuple[Node, ...]:
        """Of two indices rows that are none are added, too, where all that they take of memory is in registers, for
        nobody wants their sums: asked for each of its additions, a row took four times as long."""
        crew = self.crew
        for digit in reversed(self.digits):
            cut = crew.cut_of(digit.index)
            if asks and cut is not None and (len(self.digits) == 1 or self._reads(nodes, digit.index)):
                there = Compare(op=CompareOp.LT, left=IndexVar(name=digit.index), right=cut)
                nodes = (Guard(condition=there, body=nodes, padding=True, span=crew.span),)
            define = Define(index=digit.index, digits=(digit,), offset=IndexVar(name=crew.firsts[digit.index]))
            body = (define, *nodes)
            nodes = (Loop(index=digit.name, extent=digit.radix, body=body, digit=digit, unroll=True, span=crew.span),)
        return nodes

    def _reads(self, nodes: tuple[Node, ...], index: str) -> bool:
        """Whether nodes read memory at places that an index tells, or do else than update what there is."""
        buffers = self.crew.draft.buffers
        leaves = [node.leaf for node in of_kind(nodes, Generic)]
        reads = [read for leaf in leaves for read in read_accesses(leaf)]
        alone = all(isinstance(leaf, Accumulate) and buffers[leaf.buffer].memory is Memory.REG for leaf in leaves)
        return not alone or any(
            index in subscript_names(read.subscripts) and buffers[read.buffer].memory is not Memory.REG
            for read in reads
        )


def _number(digits: tuple[Digit, ...], numbers: Mapping[str, IndexExpr]) -> IndexExpr:
    """The number of a row among those of these digits, the last one the fastest."""
    found: IndexExpr = ZERO
    for digit in digits:
        found = add(multiply(found, digit.radix), numbers[digit.index])
    return found
