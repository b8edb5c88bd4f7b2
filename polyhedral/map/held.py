"""Rows that are held: what the threads of a block read along several indices is loaded once, and stays in registers.

    m = maximum N k { X[i, k] }                            X[i, k] and X[i, j] are one element of a row for k = j,
    par N j { Y[i, j] = exp(X[i, j] - m) }                 and the thread that has the iteration k has j = k, too

An element is held where some iteration surely reads it, whatever the data are, so that it may be read before; where
nothing but the index moves in its subscripts; and where no statement writes its array, but for one that binds or
updates the element itself, in the last loop over the row that reads it and after its reads there.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from texpr.grammar.ast import Gather, If, IndexExpr, IndexVar, Leaf, Par, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.expr import add, at_least_zero, ceildiv, const
from texpr.grammar.index.interval import most
from texpr.grammar.records import dataclass
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.bands import is_serial_par, nest_of
from texpr.polyhedral.map.lines import ahead
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.vectors import Element, arrays_of, at, events_of
from texpr.polyhedral.mapped.candidate import Blocks, Row
from texpr.polyhedral.walk import subscript_names, written

ROW = IndexVar(name="#row")  # an index of a row, whichever loop runs over it

Origins = Mapping[str, Element]
NO_ORIGINS: Origins = MappingProxyType({})
RowElement = Element
"""A buffer, and its subscripts over `ROW`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The elements that a row holds, `rounds` runs of neighbours of each, in which threads cover so many iterations;
    `reads` has for each index what it reads. Lines are those of the first element."""

    elements: tuple[RowElement, ...]
    reads: Mapping[str, tuple[RowElement, ...]]
    rounds: int
    covered: int


Member = Seq | Par


def members(stmts: tuple[Stmt, ...], indices: Sequence[str]) -> tuple[Member, ...]:
    """The loops over these indices, where they stand beside one another at the level of a block in this order; else
    none."""
    for among in _levels(stmts):
        loops = [s for s in among if isinstance(s, Seq | Par) and s.index in indices]
        if loops:
            return tuple(loops) if [loop.index for loop in loops] == list(indices) else ()
    return ()


def siblings(stmts: tuple[Stmt, ...], indices: Sequence[str]) -> Iterator[tuple[Member, ...]]:
    """Of these indices those whose loops stand beside one another, of one extent, in text order."""
    for among in _levels(stmts):
        loops = [s for s in among if isinstance(s, Seq | Par) and s.index in indices]
        for extent in dict.fromkeys(loop.extent for loop in loops):
            yield tuple(loop for loop in loops if loop.extent == extent)


def _levels(stmts: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """The lists of statements that a block runs as one."""
    yield stmts
    for stmt in stmts:
        match stmt:
            case Seq(body=body):
                yield from _levels(body)
            case If(then=then, orelse=orelse):
                yield from _levels(then)
                yield from _levels(orelse)
            case _:
                pass


def _rounds(problem: Problem, extent: IndexExpr, covered: int, before: int = 0) -> int | None:
    """How many times threads that cover so many iterations go to the end of a row that begins up to `before` elements
    behind where they start; None where sizes leave it open."""
    return most(ceildiv(add(at_least_zero(extent), const(before)), covered), size_ranges(problem.kernel))


def held_by(
    problem: Problem, stmts: tuple[Stmt, ...], loops: Sequence[Member], covered: int, line: int = 0
) -> Held | None:
    """What a row holds where the loops of a launch's `stmts` go over it; None where that is nothing, or sizes leave its
    length open. A single loop holds what it reads of a row of its block's own, several what two of them read."""
    reads = _common(problem, stmts, loops)
    elements = tuple(dict.fromkeys(element for own in reads.values() for element in own))
    if not elements:
        return None
    rounds = _rounds(problem, loops[0].extent, covered, ahead(problem, elements[0], line) if line else 0)
    return Held(elements=elements, reads=reads, rounds=rounds, covered=covered) if rounds else None


def _common(problem: Problem, stmts: tuple[Stmt, ...], loops: Sequence[Member]) -> dict[str, tuple[RowElement, ...]]:
    """What several loops of a launch's `stmts` read of a row that may be read before the first of them, by the index of
    each: it is looked for once."""
    question = ("common", tuple(loop.index for loop in loops))
    return problem.once(question, lambda: _found_in_common(problem, stmts, loops))


def _found_in_common(
    problem: Problem, stmts: tuple[Stmt, ...], loops: Sequence[Member]
) -> dict[str, tuple[RowElement, ...]]:
    found = {loop.index: _reads(problem, loop) for loop in loops}
    readers: dict[RowElement, list[bool]] = {}
    for reads in found.values():
        for element, surely in reads.items():
            readers.setdefault(element, []).append(surely)
    again = {e for e, own in readers.items() if len(own) > 1 or (len(loops) == 1 and _is_own(e))}
    held = {e for e in again if any(readers[e]) and _stays(stmts, loops, e)}
    return {index: tuple(element for element in reads if element in held) for index, reads in found.items()}


def reads_beside(problem: Problem, stmts: tuple[Stmt, ...], loop: Member) -> bool:
    """Whether a loop by itself reads along its row what is not held."""
    return set(_reads(problem, loop)) != set(_common(problem, stmts, (loop,))[loop.index])


def _is_own(element: RowElement) -> bool:
    """Whether other blocks have another row of it. One that is all blocks' stays in the L1, and needs no registers."""
    return subscript_names(element[1]) != {ROW.name}


def unheld(
    problem: Problem, stmts: tuple[Stmt, ...], choice: Blocks
) -> Iterator[tuple[tuple[Member, ...], tuple[RowElement, ...], bool]]:
    """Loops over a row that is not held, what they read in common, and whether the length of the row is known."""
    held = {index for row in choice.rows for index in row.indices}
    alone = [index for nest, deal in choice.inner.items() for index in {nest, *(i for i, _ in deal)} if len(deal) <= 1]
    for loops in siblings(stmts, [*choice.shared_out, *alone]):
        free = tuple(loop for loop in loops if loop.index not in held)
        reads = _common(problem, stmts, free) if free else {}
        elements = tuple(dict.fromkeys(element for own in reads.values() for element in own))
        if elements and any(isinstance(loop, Seq) for loop in free):
            yield free, elements, _rounds(problem, free[0].extent, choice.team) is not None


def read_again(problem: Problem, name: str, stmts: tuple[Stmt, ...], choice: Blocks) -> Iterator[str]:
    """What the report says of rows that a launch reads more than once from memory."""
    for loops, elements, known in unheld(problem, stmts, choice):
        reads = _common(problem, stmts, loops)
        why = "the registers of a block have no room for it" if known else "sizes leave its length open"
        for element in elements if len(loops) > 1 else ():
            times = sum(element in own for own in reads.values())
            yield f"{name} reads each row of {element[0]} {times} times: {why}"


def held_bytes(problem: Problem, held: Held, width: int) -> int:
    """Bytes of the registers that a thread needs where it takes so many neighbours at a time."""
    return sum(held.rounds * width * problem.kernel.buffer(name).dtype.size_bytes for name, _ in held.elements)


def held_rows(problem: Problem, stmts: tuple[Stmt, ...], choice: Blocks) -> dict[str, tuple[Row, Held]]:
    """What each row of a candidate that fits holds, by its indices."""
    found: dict[str, tuple[Row, Held]] = {}
    for row in choice.rows:
        covered = choice.team * choice.cluster * choice.widths.get(row.indices[0], 1)
        held = held_by(problem, stmts, members(stmts, row.indices), covered, row.line)
        assert held is not None, "a candidate that fits"
        found |= dict.fromkeys(row.indices, (row, held))
    return found


def row_origins(problem: Problem, stmts: tuple[Stmt, ...], rows: Sequence[Row]) -> Origins:
    """From which element runs are counted, of each index where it is not 0: at it a line of memory begins."""
    found: dict[str, Element] = {}
    for row in rows:
        loops = members(stmts, row.indices) if row.line else ()
        first = next((element for own in _common(problem, stmts, loops).values() for element in own), None)
        if first is not None:
            found |= {loop.index: named(first, loop.index) for loop in loops}
    return found


def named(element: RowElement, index: str) -> Element:
    """The element as a loop over the row names it."""
    return element[0], at(element[1], ROW.name, IndexVar(name=index))


def along_row(element: Element, index: str) -> RowElement:
    """The element with the row in place of an index."""
    name, subscripts = element
    return name, at(subscripts, index, ROW)


def _body(loop: Member) -> tuple[Stmt, ...]:
    return nest_of(loop).body if isinstance(loop, Par) else loop.body


def _reads(problem: Problem, loop: Member) -> dict[RowElement, bool]:
    """The elements of arrays that an iteration reads where nothing but its index moves, and whether it surely does."""
    if isinstance(loop, Par) and (is_serial_par(loop) or len(nest_of(loop).pars) > 1):
        return {}
    events = list(events_of(_body(loop)))
    arrays, found = arrays_of(problem), dict[RowElement, bool]()
    for event in events:
        if event is None:
            return {}
        name, subscripts = event.element
        moved = loop.index in subscript_names(subscripts) and not any(isinstance(s, Gather) for s in subscripts)
        if name in arrays and moved and not event.writes:
            element = along_row(event.element, loop.index)
            found[element] = found.get(element, False) or event.surely
    return found


def _stays(stmts: tuple[Stmt, ...], loops: Sequence[Member], element: RowElement) -> bool:
    """Whether what was loaded before the loops is still the element's value where they read it."""
    name, readers = element[0], [loop for loop in loops if touches(loop, element[0])]
    last = readers[-1]
    inside = sum(_writes(s, name) for s in statements((last,)))
    if sum(_writes(s, name) for s in statements(stmts)) > inside:
        return False
    written_yet = False
    for event in events_of(_body(last)):
        if event is None:
            return not inside
        if event.element[0] == name:
            if event.writes and (event.atomic or along_row(event.element, last.index) != element):
                return False
            if written_yet and not event.writes:
                return False
            written_yet = written_yet or event.writes
    return True


def _writes(stmt: Stmt, name: str) -> bool:
    return isinstance(stmt, Leaf) and (target := written(stmt)) is not None and target[0] == name


def touches(loop: Member, name: str) -> bool:
    """Whether an iteration may touch an array."""
    return any(event is None or event.element[0] == name for event in events_of(_body(loop)))
