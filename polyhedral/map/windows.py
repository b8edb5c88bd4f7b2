"""Windows: what a thread reads of an array for neighbouring iterations, where its reads are shifted copies of another.

    par M-2 i, N-2 j { Y[i + 1, j + 1] = X[i, j + 1] + X[i + 1, j] + X[i + 1, j + 2] + X[i + 2, j + 1] }

    4 iterations of j, 2 of i: rows i .. i + 3 of X, each in the aligned chunks that hold columns j .. j + 5, once

A window is one piece of an array, rows of aligned chunks of 16 bytes in the registers of a thread. Where the array and
the element from whose alignment runs are counted lie to one another so that the chunks begin at a known place of every
row, each read is a register: no access is shifted, and none is made twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import Gather, IndexExpr, IndexOp, Role, Stmt
from texpr.grammar.index.expr import ZERO, add, combine, const, multiply, names
from texpr.grammar.index.interval import Ranges
from texpr.grammar.index.linear import Linear, atom_names, linear
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.lines import origins
from texpr.polyhedral.map.objective import WeightedAccess
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.vectors import (
    ACCESS_BYTES,
    Element,
    Wide,
    address,
    along,
    at,
    is_run,
    plain_subscripts,
)
from texpr.polyhedral.mapped.candidate import Flat

MOST_BYTES = 512  # of all windows of a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What rows of an array add to the place of a chunk: `first + row * pitch` elements, of which only the remainder by
    `width` counts."""

    first: int
    pitch: int
    width: int

    def at(self, row: int) -> int:
        return (self.first + row * self.pitch) % self.width

    def expression(self, row: IndexExpr) -> IndexExpr:
        """The same of a row, from 0 on."""
        if self.pitch % self.width == 0:
            return const(self.first % self.width)
        place = add(const(self.first % self.width), multiply(const(self.pitch % self.width), row))
        return combine(IndexOp.MOD, place, const(self.width))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`rows` rows of `chunks` chunks of an array. The first row lies `above` rows from the element `base` of the first
    iteration (0 or less), the first chunk of a row `before` chunks from that with the base. `shifts` has every read as
    rows and columns from the base; `steps` says how far behind the begin of its chunk the base lies in each row.
    `moves`: the next row of iterations has another row of the array."""

    base: Element
    dtype: DType
    first: Stmt
    shifts: Mapping[Element, tuple[int, int]]
    rows: int
    above: int
    before: int
    chunks: int
    steps: Steps
    moves: bool

    @property
    def width(self) -> int:
        """The elements of a chunk."""
        return self.steps.width

    @property
    def columns(self) -> tuple[int, int]:
        """The least and the greatest shift along the columns."""
        found = [aside for _, aside in self.shifts.values()]
        return min(found), max(found)

    @property
    def below(self) -> int:
        """How many rows its last one lies behind the base of the last iteration."""
        return max(down for down, _ in self.shifts.values())

    @property
    def spread(self) -> int:
        """How many rows more it has than the iterations."""
        return self.below - self.above

    @property
    def bytes(self) -> int:
        return self.rows * self.chunks * ACCESS_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """What a thread does at once: `count` neighbouring iterations of `index`, for `rows` neighbours of `down` (''
    where there is no such index), with its windows. `skew` says how many columns earlier each row begins, so that it is
    aligned as the first one is."""

    index: str
    count: int
    down: str
    rows: int
    windows: tuple[Window, ...]
    skew: Steps

    @property
    def pays(self) -> bool:
        """Whether something is read less often than it is written in the program."""
        return any(len(window.shifts) > 1 for window in self.windows)


def flat_patch(problem: Problem, nest: Nest, choice: Flat) -> Patch | None:
    """The patch of a thread of a flat launch; None where it reads nothing twice, or no numbers say how its rows lie."""
    if len(choice.widths) != 1 or choice.turns or len(choice.patch) > 1:
        return None
    ((index, count),) = choice.widths.items()
    down, rows = next(iter(choice.patch.items()), ("", 1))
    if down not in ("", *nest.indices) or down == index or any({down, index} & names(par.extent) for par in nest.pars):
        return None
    origin = origins(problem, nest, choice.lines).get(index)
    reads = along(problem, nest.body, index, nest.indices, origin=origin).vectors(count).wide
    patch = patch_of(problem, reads, index, count, down, rows, origin)
    return patch if patch is not None and patch.pays else None


def once_each(problem: Problem, nest: Nest, choice: Flat, ranges: Ranges, weight: int) -> Sequence[WeightedAccess]:
    """The accesses of a flat launch whose threads run its band so often, with each window in place of what is in it."""
    accesses = problem.accesses(nest.body, ranges, without=declared(nest.body), weight=weight)
    patch = flat_patch(problem, nest, choice)
    if patch is None:
        return accesses
    rows = {element: 0 for window in patch.windows for element in window.shifts}
    rows |= {window.base: window.rows for window in patch.windows}
    found = [(access, rows.get((access.buffer, access.subscripts), patch.rows)) for access in accesses]
    return [replace(access, weight=-(-access.weight * n // patch.rows)) for access, n in found if n]


def patch_of(
    problem: Problem,
    reads: Sequence[Wide],
    index: str,
    count: int,
    down: str = "",
    rows: int = 1,
    origin: Element | None = None,
) -> Patch | None:
    """The patch of a thread, in so far as these wide reads of its iterations are in windows; None where rows do not lie
    to one another as numbers say, or too much would be held."""
    skew = _skew(problem, down, rows, origin)
    if skew is None:
        return None
    windows = [
        window
        for group in _groups(problem, reads, index, count, down, rows)
        if (window := _window(problem, group, index, count, down, rows, origin, skew)) is not None
    ]
    if sum(window.bytes for window in windows) > MOST_BYTES:
        return None
    return Patch(index=index, count=count, down=down, rows=rows, windows=tuple(windows), skew=skew)


def _skew(problem: Problem, down: str, rows: int, origin: Element | None) -> Steps | None:
    """How many columns earlier than the first row the others begin; None where no number says."""
    if origin is None or rows == 1:
        return Steps(first=0, pitch=0, width=1)
    width = ACCESS_BYTES // problem.kernel.buffer(origin[0]).dtype.size_bytes
    pitch = _pitch(problem, origin, down, width)
    return None if pitch is None else Steps(first=0, pitch=pitch, width=width)


def _pitch(problem: Problem, element: Element, down: str, width: int) -> int | None:
    """How far apart the rows of an element lie, but for multiples of a width; None where no number says."""
    where = address(problem, element)
    here = where.coefficient(down) if down else 0
    if here is not None:
        return here % width
    moving = where.part(lambda monomial, _: any(down in atom_names(atom) for atom in monomial))
    return 0 if moving.is_multiple(width, problem.divisors) else None


Group = tuple[Wide, dict[Element, tuple[int, int]]]
"""A read, and all that are shifted copies of it, with the rows and columns between them."""


def _groups(problem: Problem, reads: Sequence[Wide], index: str, count: int, down: str, rows: int) -> list[Group]:
    """The reads that may be in windows, those together that lie not much farther apart than a thread's iterations."""
    found: list[Group] = []
    for read in reads:
        if not _is_windowed(problem, read, index):
            continue
        for base, shifts in found:
            apart = _apart(base.element, read.element, index, down)
            most = 2 * rows if _is_brought(problem, read) else 0
            if apart is not None and abs(apart[0]) <= most and abs(apart[1]) <= 2 * count:
                shifts[read.element] = apart
                break
        else:
            found.append((read, {read.element: (0, 0)}))
    return found


def _is_windowed(problem: Problem, read: Wide, index: str) -> bool:
    """Whether a read may be part of a window."""
    plain = not any(isinstance(s, Gather) for s in read.element[1])
    aligned = problem.kernel.buffer(read.element[0]).align >= ACCESS_BYTES
    return read.loads and not read.stores and plain and aligned and is_run(problem, read.element, index)


def _is_brought(problem: Problem, read: Wide) -> bool:
    """Whether a call brings an array, so that all of it has values. Of another one no window has an element that no
    iteration reads: it is of a row, and without gaps."""
    buffer = problem.kernel.buffer(read.element[0])
    return buffer.role is Role.PARAM and problem.proved.directions[buffer.name] != "out"


def _has_gaps(columns: Iterable[int]) -> bool:
    """Whether some columns between the first and the last are missing."""
    found = set(columns)
    return max(found) - min(found) >= len(found)


def _apart(base: Element, other: Element, index: str, down: str) -> tuple[int, int] | None:
    """How many rows and columns a read lies behind another one; None where no numbers say."""
    if base[0] != other[0]:
        return None
    rows = columns = 0
    for here, there in zip(base[1], other[1], strict=True):
        form = linear(here) if isinstance(here, IndexExpr) else None
        apart = None if form is None or not isinstance(there, IndexExpr) else (linear(there) - form).value
        if form is None or apart is None:
            return None
        if apart == 0:
            continue
        along, step = form.coefficient(index), form.coefficient(down) if down else 0
        if along == 1 and step == 0 and not columns:
            columns = apart
        elif along == 0 and step and apart % step == 0 and not rows:
            rows = apart // step
        else:
            return None
    moving = sum(down in names(s) for s in base[1] if isinstance(s, IndexExpr)) if down else 0
    return None if rows and moving > 1 else (rows, columns)  # one row down would be another place of two dimensions


def _window(
    problem: Problem,
    group: Group,
    index: str,
    count: int,
    down: str,
    rows: int,
    origin: Element | None,
    skew: Steps,
) -> Window | None:
    """The window of a read and its copies; None where chunks begin at no known place of its rows."""
    base, shifts = group
    width = ACCESS_BYTES // base.dtype.size_bytes
    pitch, first = _pitch(problem, base.element, down, width), _remainder(problem, base.element, index, origin, width)
    if first is None or pitch is None or count % width:
        return None
    if not _is_brought(problem, base) and _has_gaps(aside for _, aside in shifts.values()):
        return None
    above = min(down_by for down_by, _ in shifts.values())
    below = max(down_by for down_by, _ in shifts.values())
    steps = Steps(first=first + above * pitch, pitch=pitch, width=width)
    moves = any(down in names(s) for s in base.element[1] if isinstance(s, IndexExpr))
    begins = [
        aside + steps.at((row if moves else 0) + down_by - above) - skew.at(row)
        for row in range(rows)
        for down_by, aside in shifts.values()
    ]
    before = min(begins) // width
    chunks = (max(begins) + count - 1) // width - before + 1
    return Window(
        base=base.element,
        dtype=base.dtype,
        first=base.first,
        shifts=shifts,
        rows=(rows if moves else 1) + below - above,
        above=above,
        before=before,
        chunks=chunks,
        steps=steps,
        moves=moves,
    )


def _remainder(problem: Problem, element: Element, index: str, origin: Element | None, width: int) -> int | None:
    """How many elements behind a multiple of 16 bytes the first iteration of a run has an element; None where no number
    says."""
    first = Linear()
    if origin is not None:
        size = problem.kernel.buffer(origin[0]).dtype.size_bytes
        if ACCESS_BYTES // size < width:
            return None  # the origin is aligned by fewer elements than a chunk has
        first = _at_zero(problem, origin, index)
    apart = _at_zero(problem, element, index) - first
    rest = apart.constant % width
    return rest if (apart - rest).is_multiple(width, problem.divisors) else None


def _at_zero(problem: Problem, element: Element, index: str) -> Linear:
    name, subscripts = element
    return linear(offset(problem.layouts[name], plain_subscripts(at(subscripts, index, ZERO))))
