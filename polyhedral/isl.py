"""The only door to isl: the names of islpy that the compiler uses, and the work of one compilation, counted.

Every compilation has an isl context of its own, so that limits and failures of one thread are not another's. isl counts
its operations (allocations and pivots), one of which takes time with the columns that it touches; a step is one
operation on up to `WIDTH` columns. A query may take so many steps, and so may all queries of a compilation together:
what takes more is E0307. No isl value is printed or handed out from inside a query that may end anywhere.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from islpy import (
    Aff,
    BasicSet,
    Constraint,
    Context,
    Error,
    LocalSpace,
    Map,
    Point,
    PwAff,
    Set,
    Space,
    Val,
    dim_type,
)

from texpr.grammar.diagnostics import TExprError, error
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span

__all__ = [
    "Aff",
    "BasicSet",
    "Constraint",
    "Context",
    "Error",
    "LocalSpace",
    "Map",
    "Point",
    "PwAff",
    "Set",
    "Space",
    "Val",
    "Work",
    "columns",
    "dim_type",
    "least_point",
    "translated",
    "unsolved",
]

WIDTH = 16  # columns of a usual query
QUERY = 20_000  # steps of one query
BUILDING = 100_000  # steps to build the domain or the relation of one construct
TOTAL = 20_000_000  # steps of one compilation
SMALLEST = 256  # steps that a query is charged at least, but where an operation is many
HELP = "bind the sizes, or write simpler subscripts and conditions"


@dataclass(slots=True)
class _Budget:
    """The steps of one compilation, and whether a query is taking of them."""

    total: int
    left: int
    running: bool = False


class Work:
    """The isl work on one program of a compilation: its context, the steps that are left, what it was asked before."""

    def __init__(self, total: int = TOTAL) -> None:
        self.context = Context()
        self._budget = _Budget(total, total)
        self._answers: dict[Hashable, bool] = {}
        self.given_up: set[Hashable] = set()  # questions that took too many steps

    def beside(self) -> "Work":
        """The work on another program of the compilation: the same context and steps, answers of its own."""
        other = Work(0)
        other.context, other._budget = self.context, self._budget
        return other

    @property
    def left(self) -> int:
        """The steps that are left to the compilation."""
        return self._budget.left

    @property
    def exhausted(self) -> bool:
        return self.left <= 0

    @contextmanager
    def share(self, parts: int) -> Iterator[None]:
        """Inside, one part in so many of the steps that are left is all that there is: what is only tried there cannot
        take the steps of what must be done."""
        kept = self.left - self.left // parts
        self._budget.left -= kept
        try:
            yield
        finally:
            self._budget.left += kept

    def once(self, question: Hashable, ask: Callable[[], bool]) -> bool:
        """The answer to a question about the compilation's program, asked of isl the first time only."""
        if question not in self._answers:
            self._answers[question] = ask()
        return self._answers[question]

    def learn(self, other: "Work") -> None:
        """Takes over the answers to questions about a program with the same statements."""
        self._answers |= other._answers

    @contextmanager
    def limited(self, span: Span, what: str, width: int = 0, steps: int = QUERY) -> Iterator[None]:
        """Runs one query on so many columns; E0307 at `span` where it takes more steps, or none are left to it."""
        assert not self._budget.running, "queries do not nest"
        weight = weight_of(width)
        operations = min(steps, self.left) // weight
        if operations <= 0:
            raise self._spent(span)
        self._budget.running = True
        self.context.reset_operations()
        self.context.set_max_operations(operations)
        try:
            yield
        except Error as failure:
            raise self._exceeded(span, what, steps, failure) from failure
        finally:
            self._budget.left -= weight * self._operations(operations, max(SMALLEST // weight, 16))
            self.context.set_max_operations(0)
            self.context.reset_operations()
            self._budget.running = False

    def _exceeded(self, span: Span, what: str, steps: int, failure: Error) -> TExprError:
        if "maximal number of operations" not in str(failure):
            return TExprError([error("E0307", f"{what} is beyond the integer set library", span, help=HELP)])
        if self.left < steps:
            return self._spent(span)
        return TExprError([error("E0307", f"{what} takes more than {steps} steps", span, help=HELP)])

    def _spent(self, span: Span) -> TExprError:
        message = f"the proofs of this kernel take more than {self._budget.total} steps together"
        help = "split the kernel, replace unrolled statements by loops, or bind the sizes"
        return TExprError([error("E0307", message, span, "they stop here", help=help)])

    def _operations(self, most: int, least: int) -> int:
        """About how many operations the query took, no fewer: isl counts them and does not tell, so it is asked whether
        one more would be too many."""
        bound = least
        while bound < most:
            self.context.set_max_operations(bound)
            try:
                Val.zero(self.context)
            except Error:
                bound *= 4
            else:
                return bound
        return most


def weight_of(width: int) -> int:
    """The steps of one operation on so many columns: a pivot touches rows and columns, and both grow."""
    return max(1, (width // WIDTH) ** 2)


def columns(*values: Set | Map) -> int:
    """The columns of a query that combines the values: parameters once, their dimensions and floors together."""
    dims = 0
    for value in values:
        dims += value.dim(dim_type.set if isinstance(value, Set) else dim_type.in_)
        dims += 0 if isinstance(value, Set) else value.dim(dim_type.out)
    return dims + max(value.dim(dim_type.param) for value in values)


def unsolved(points: Set) -> int:
    """The columns that a complement of the set is worth beyond its own: those of floors that no expression gives.

    isl solves for them by parametric integer programming, whose tables grow with each: the range of 5i + 7j + 11k has
    two, and one operation takes a hundred times as long as on that of 4i + 2j.
    """
    floors = max((_unknown(piece) for piece in points.get_basic_sets()), default=0)
    return WIDTH * 4**floors if floors > 1 else 0


def _unknown(piece: BasicSet) -> int:
    count = 0
    for position in range(piece.dim(dim_type.div)):
        try:
            piece.get_div(position)
        except Error:
            count += 1
    return count


@contextmanager
def translated(span: Span) -> Iterator[None]:
    """No error of islpy leaves a stage: what no query foresaw is beyond the library, E0307."""
    try:
        yield
    except Error as failure:
        message = "this kernel is beyond the integer set library"
        raise TExprError([error("E0307", message, span, help=HELP)]) from failure


def least_point(points: Set) -> tuple[int, ...]:
    """The lexicographically least point of a non-empty set that is bounded below, parameters first (in their order,
    each as small as can be), then dimensions.

    One coordinate at a time, on the pieces that are not empty: in islpy 2026.2.2 `lexmin` fails on some sets with
    existential dimensions, and `dim_min_val` of a union counts its empty pieces.
    """
    flat = points.move_dims(dim_type.set, 0, dim_type.param, 0, points.dim(dim_type.param))
    pieces = [Set.from_basic_set(piece) for piece in flat.get_basic_sets()]
    point: list[int] = []
    for position in range(flat.dim(dim_type.set)):
        pieces = [piece for piece in pieces if not piece.is_empty()]
        least = min(piece.dim_min_val(position).to_python() for piece in pieces)
        value = Val.int_from_si(flat.get_ctx(), least)
        pieces = [piece.fix_val(dim_type.set, position, value) for piece in pieces]
        point.append(least)
    return tuple(point)
