"""Rows beside one another: neighbouring iterations of a band whose sums one thread adds, along which it has runs.

    par M i { Y[i] = sum N j { A[i, j] * X[j] } }      runs of 8 along j, of 4 rows i

    copy A_run[8*r + e] = A[min(i_first + r, M - 1), j_first + e] for r < 4, e < 8
    copy X_run[e] = X[j_first + e] for e < 8
    for i_row < 4, j_vector < 8: Y_part[i_row] += A_run[8*i_row + j_vector] * X_run[j_vector]

What no row has of its own is loaded once for all of them.
"""

from texpr.grammar.ast import Compare, CompareOp, IndexExpr, IndexVar
from texpr.grammar.index.expr import ONE, add, const, minimum, multiply, subtract
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.crew import Crew
from texpr.polyhedral.map.vectors import Element
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.mapped.places import Digit
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.walk import subscript_names


def takes_rows(crew: Crew, choice: Parted) -> bool:
    """Whether a thread has neighbours that are rows, and none along its runs."""
    return crew.along is not None and crew.along.index in choice.patch


@dataclass(frozen=True, slots=True)
class RowsBeside:
    """The rows of a thread, by the digit of the one at hand."""

    crew: Crew
    digit: Digit

    def has(self, element: Element) -> bool:
        """Whether each row has another element."""
        return self.digit.index in subscript_names(element[1])

    def at(self, number: IndexExpr) -> IndexExpr:
        """The iteration of the row of this number: of those that there are not the last one that there is, whose
        elements nobody adds again."""
        row = add(IndexVar(name=self.crew.firsts[self.digit.index]), number)
        return row if self.crew.cut is None else minimum(row, subtract(self.crew.cut, ONE))

    @property
    def last(self) -> IndexExpr:
        """That of the last one."""
        return self.at(const(self.crew.width - 1))

    def place(self, run: int, number: IndexExpr, here: IndexExpr) -> IndexExpr:
        """Where a row of this number has an element of its registers, of which each row has a `run`."""
        return add(multiply(const(run), number), here)

    def each(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes for every row that there is."""
        crew, digit = self.crew, self.digit
        if crew.cut is not None:
            there = Compare(op=CompareOp.LT, left=IndexVar(name=digit.index), right=crew.cut)
            nodes = (Guard(condition=there, body=nodes, padding=True, span=crew.span),)
        define = Define(index=digit.index, digits=(digit,), offset=IndexVar(name=crew.firsts[digit.index]))
        body = (define, *nodes)
        return (Loop(index=digit.name, extent=digit.radix, body=body, digit=digit, unroll=True, span=crew.span),)
