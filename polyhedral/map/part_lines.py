"""Lines of parts: what threads read of columns, or along rows, that begin anywhere, in aligned chunks and nothing else.

    par 4093 j { C[j] = sum M i { X[i, j] } }     bf16, 32 lanes along j, 8 threads share i

    lead = X[team, 0] behind a multiple of 16 bytes ;  j_first = 248*j_block + 8*j_lane - lead

All rows that a thread reads are multiples of 8 rows apart, so they are aligned alike, and so are its chunks. Those of a
team begin at different places, so a block has 31 chunks of columns and reads 32: what it has of other columns their
blocks have, too, and where the parts meet it is left.

    par 257 i { Y[i] = sum 100003 j { A[i, j] * X[j] } }     bf16, 2 rows in a thread, which lie 8 rows apart

    lead = A[i_first, 0] behind a multiple of 16 bytes ;  j_first = 8*team - lead ;  i = i_first + 8*i_row

So are rows along which threads lie: those of a thread are aligned alike, each is read in chunks alone, and what all
rows read is shifted once for all of them. 8 blocks have 16 rows, each those of one class; of the last 8 there are as
many as have a row.
"""

from texpr.grammar.ast import Compare, CompareOp, Condition, Gather, IndexExpr, IndexOp, IndexVar
from texpr.grammar.index.expr import ONE, add, combine, const, minimum, multiply
from texpr.grammar.index.linear import linear
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.place import offset
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.greatest import Ends, greatest
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.vectors import ACCESS_BYTES, Element, Wide, along, arrays_of, at, events_of, is_run, printed
from texpr.polyhedral.map.work import Work
from texpr.polyhedral.mapped.candidate import Parted
from texpr.polyhedral.walk import subscript_names


def part_lines(problem: Problem, nest: Nest, found: Work, index: str, team: int) -> dict[str, Element]:
    """The elements from whose chunks neighbours of an index may be counted, by how the mapping prints them, where so
    many threads share a reduction: all that moves with the index is aligned with each of them."""
    if len(found.reductions) != 1 or found.first:
        return {}
    (one,) = found.reductions
    arrays, able = arrays_of(problem), dict[str, Element]()
    events = [event for event in events_of(one.reading) if event is not None]
    written = {event.element[0] for event in events if event.writes}
    for event in events:
        name, subscripts = event.element
        plain = name in arrays - written and not any(isinstance(s, Gather) for s in subscripts)
        if plain and index in subscript_names(subscripts) and _is_alike(problem, one, event.element, index, team):
            moved = along(problem, one.reading, index, (*nest.indices, *one.indices), origin=event.element)
            width = ACCESS_BYTES // event.dtype.size_bytes
            wide = moved.vectors(width)
            if not wide.others and not wide.seldom and all(w.width == width and not w.funnel for w in wide.wide):
                able[printed(*event.element)] = event.element
    return able


def part_origin(problem: Problem, nest: Nest, found: Work, choice: Parted, team: int) -> Element | None:
    """The element from whose chunks the neighbours of the index along are counted, None where they are from 0."""
    for index, name in choice.lines.items():
        if index in nest.indices:
            return part_lines(problem, nest, found, index, team)[name]
    return None


def row_lines(problem: Problem, nest: Nest, found: Work, row: str) -> dict[str, tuple[Element, int]]:
    """The elements from whose chunks runs along a reduction may be counted, by how the mapping prints them, where a
    thread has several rows of an index; and how far apart these lie, to be aligned alike."""
    if len(found.reductions) != 1 or found.first:
        return {}
    (one,) = found.reductions
    arrays, able = arrays_of(problem), dict[str, tuple[Element, int]]()
    events = [event for event in events_of(one.reading) if event is not None]
    written = {event.element[0] for event in events if event.writes}
    for event in events:
        name, subscripts = event.element
        plain = name in arrays - written and not any(isinstance(s, Gather) for s in subscripts)
        if not plain or not {row, one.over.index} <= subscript_names(subscripts):
            continue
        apart = _rows_alike(problem, event.element, row, one.over.index)
        origin, hardware = event.element, (*nest.indices, *one.indices)
        width = ACCESS_BYTES // event.dtype.size_bytes
        wide = along(problem, one.reading, one.over.index, hardware, origin=origin).vectors(width).wide
        if apart and any(w.element == origin and w.width == width and not w.funnel for w in wide):
            able[printed(*origin)] = origin, apart
    return able


def row_origin(problem: Problem, nest: Nest, found: Work, choice: Parted) -> tuple[Element, int] | None:
    """The element from whose chunks runs along the reduction are counted, and how far apart the rows of a thread lie;
    None where they are counted from the first iteration, and rows are neighbours."""
    for index, name in choice.lines.items():
        if index not in nest.indices:
            (row,) = choice.patch
            return row_lines(problem, nest, found, row)[name]
    return None


def _rows_alike(problem: Problem, element: Element, row: str, over: str) -> int:
    """How far apart rows of an element lie at least that are aligned alike, a power of two; 0 where none are, or those
    of a row are no neighbours."""
    name, subscripts = element
    buffer, layout = problem.kernel.buffer(name), problem.layouts[name]
    if buffer.align < ACCESS_BYTES or not is_run(problem, element, over):
        return 0
    whole = apart = ACCESS_BYTES // buffer.dtype.size_bytes

    def place(value: IndexExpr) -> tuple[IndexExpr, ...]:
        return tuple(s for s in at(subscripts, row, value) if not isinstance(s, Gather))

    here = linear(offset(layout, place(IndexVar(name=row))))

    def alike(rows: int) -> bool:
        there = linear(offset(layout, place(add(IndexVar(name=row), const(rows)))))
        return (there - here).is_multiple(whole, problem.divisors)

    while apart > 1 and alike(apart // 2):
        apart //= 2
    return apart if alike(apart) else 0


def row_groups(extent: IndexExpr, rows: int, apart: int) -> IndexExpr:
    """How many threads, each with so many rows of an index that lie so far apart, have all of them."""
    together = const(rows * apart)
    whole, rest = (combine(op, extent, together) for op in (IndexOp.DIV, IndexOp.MOD))
    return add(multiply(const(apart), whole), minimum(const(apart), rest))


def first_of_group(group: IndexExpr, rows: int, apart: int) -> IndexExpr:
    """The first row of the thread of this number."""
    together, own = (combine(op, group, const(apart)) for op in (IndexOp.DIV, IndexOp.MOD))
    return add(multiply(const(rows * apart), together), own)


def _is_alike(problem: Problem, one: Reduction, element: Element, index: str, team: int) -> bool:
    """Whether neighbours are neighbours in memory, and all rows that a thread reads are aligned alike."""
    name, subscripts = element
    buffer, layout = problem.kernel.buffer(element[0]), problem.layouts[name]
    if buffer.align < ACCESS_BYTES or layout.xor is not None or not is_run(problem, element, index):
        return False
    whole = ACCESS_BYTES // buffer.dtype.size_bytes

    def place(loop: str, value: IndexExpr) -> tuple[IndexExpr, ...]:
        return tuple(s for s in at(subscripts, loop, value) if not isinstance(s, Gather))

    here = linear(offset(layout, place(index, IndexVar(name=index))))
    for loop in one.loops:
        step = const(team) if loop is one.over else ONE
        there = linear(offset(layout, place(loop.index, add(IndexVar(name=loop.index), step))))
        if not (there - here).is_multiple(whole, problem.divisors):
            return False
    return True


def chunks_near(problem: Problem, wide: Wide, ends: Ends) -> Condition | None:
    """Whether no chunk with an element between these ends leaves its array; None where that is not known."""
    name, subscripts = wide.element
    layout = problem.layouts[name]
    far = greatest(linear(offset(layout, [s for s in subscripts if not isinstance(s, Gather)])), ends)
    return None if far is None else Compare(op=CompareOp.LE, left=add(far, const(wide.width)), right=extent(layout))


def rows_alone(problem: Problem, one: Reduction, index: str) -> tuple[Element, ...]:
    """What an iteration of a reduction surely reads that is the same for all values of an index, and of arrays that
    none writes: each row has one, which is loaded with it."""
    events = [event for event in events_of(one.reading) if event is not None]
    written = {event.element[0] for event in events if event.writes}
    found = {
        event.element: None
        for event in events
        if event.surely and not event.writes and event.element[0] in arrays_of(problem) - written
        if not any(isinstance(s, Gather) for s in event.element[1])
        if one.over.index in (names := subscript_names(event.element[1])) and index not in names
    }
    return tuple(found)


def own_columns(choice: Parted, lanes: int, width: int) -> int:
    """The elements that a block ends, of the index along."""
    return (choice.strip or (lanes - 1) * width) if choice.lines else lanes * width
