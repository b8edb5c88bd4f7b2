"""Lines of parts: what threads read of columns whose rows begin anywhere, in aligned chunks and nothing else.

    par 4093 j { C[j] = sum M i { X[i, j] } }     bf16, 32 lanes along j, 8 threads share i

    lead = X[team, 0] behind a multiple of 16 bytes ;  j_first = 248*j_block + 8*j_lane - lead

All rows that a thread reads are multiples of 8 rows apart, so they are aligned alike, and so are its chunks. Those of a
team begin at different places, so a block has 31 chunks of columns and reads 32: what it has of other columns their
blocks have, too, and where the parts meet it is left.
"""

from texpr.grammar.ast import Compare, CompareOp, Condition, Gather, IndexExpr, IndexVar
from texpr.grammar.index.expr import ONE, add, const
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
        return part_lines(problem, nest, found, index, team)[name]
    return None


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
