"""How many neighbouring iterations of an index a thread takes at once."""

from collections.abc import Sequence

from texpr.grammar.ast import Stmt
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.digits import is_power_of_two
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.strided import reading_of
from texpr.polyhedral.map.vectors import ACCESS_BYTES, MOST, Element, address, along, events_of
from texpr.polyhedral.walk import subscript_names, subscript_reads

STRIDED_BYTES = 64  # in f32 3 x 3 means of 144 ran at .80 of a copy, 4 x 4 of 128 at .99, one by one at .95 and 1.00


def run_width(
    problem: Problem,
    stmts: Sequence[Stmt],
    index: str,
    size: int,
    hardware: tuple[str, ...],
    asked: int | None,
    others: int = 1,
    origin: Element | None = None,
) -> int:
    """The most iterations that fill the widest accesses, all of which they make, and a warp, with `others` beside them;
    or as many as the author asks for; 1 where there are none such. They are counted from where the `origin` is
    aligned, None: from 0."""
    found = along(problem, stmts, index, hardware, origin=origin)
    if asked is not None:
        return asked if any(not wide.funnel for wide in found.vectors(asked).wide) else 1
    width = found.greatest
    while width > 1:
        whole = width * problem.target.warp_size
        fits = size >= whole or (size % width == 0 and size * others >= whole)
        if fits and found.vectors(width).whole(width):
            return width
        width //= 2
    return 1


def strided_width(problem: Problem, nest: Nest, index: str) -> int:
    """The fewest iterations of which all accesses in short loops have 16 bytes, and not too many of these, where all
    else that moves with the index is as wide as so many iterations are; 1 where there are none such."""
    width = 2
    while width <= MOST:
        found = reading_of(problem, nest, index, width)
        full = all(one.width * one.dtype.size_bytes == ACCESS_BYTES for one in found.strided)
        if 0 < found.bytes <= STRIDED_BYTES and full and found.plain.vectors(width).whole(width):
            return width
        width *= 2
    return 1


def has_run(
    problem: Problem,
    stmts: Sequence[Stmt],
    index: str,
    width: int,
    hardware: tuple[str, ...],
    origin: Element | None = None,
) -> bool:
    """Whether so many iterations, a power of two, have a wide access."""
    found = along(problem, stmts, index, hardware, origin=origin)
    return width > 1 and is_power_of_two(width) and bool(found.vectors(width).wide)


def written_width(
    problem: Problem, stmts: Sequence[Stmt], index: str, size: int, hardware: tuple[str, ...], origin: Element | None
) -> int:
    """The most iterations that fill the widest stores, and a warp, where all else that moves with the index and is not
    as wide is read at floors and remainders of it, element by element; 1 where there are none such."""
    found = along(problem, stmts, index, hardware, origin=origin)
    width = max((wide.width for wide in found.most.wide if wide.stores), default=1)
    wide = found.vectors(width).wide
    if any(one.width < min(width, one.whole) for one in wide) or size < width * problem.target.warp_size:
        return 1
    moved = {one.element for one in wide}
    others = [
        event
        for event in events_of(stmts)
        if event is None or (event.element not in moved and index in subscript_names(event.element[1]))
    ]
    told = all(
        event is not None and not event.writes and _at_remainders(problem, event.element, index) for event in others
    )
    return width if others and told else 1


def _at_remainders(problem: Problem, element: Element, index: str) -> bool:
    """Whether floors and remainders of an index tell where an element lies, and no data."""
    operations = () if subscript_reads(element[1]) else address(problem, element).operations()
    return any(index in operation.names for operation in operations)


def reads_alone(problem: Problem, stmts: Sequence[Stmt], index: str, width: int, hardware: tuple[str, ...]) -> bool:
    """Whether all that moves with the index are wide reads: who takes neighbours that are no iterations computes with
    zeros, which harms nobody."""
    found = along(problem, stmts, index, hardware).vectors(width)
    return not found.others and not found.seldom and not any(wide.stores for wide in found.wide)


def any_address_width(
    problem: Problem, stmts: Sequence[Stmt], index: str, size: int, hardware: tuple[str, ...], lanes: int | None = None
) -> int:
    """The most iterations that fill accesses of 16 bytes at any address, and so many lanes, a warp's where that is not
    said, where those reads are all that moves with the index; 1 where there are none such."""
    most = along(problem, stmts, index, hardware).most.wide
    width = min((wide.whole for wide in most), default=1)
    fits = width > 1 and size >= width * (lanes or problem.target.warp_size)
    return width if fits and reads_alone(problem, stmts, index, width, hardware) else 1
