"""How many neighbouring iterations of an index a thread takes at once."""

from collections.abc import Sequence

from texpr.grammar.ast import Stmt
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.vectors import Element, along


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


def reads_alone(problem: Problem, stmts: Sequence[Stmt], index: str, width: int, hardware: tuple[str, ...]) -> bool:
    """Whether all that moves with the index are wide reads: who takes neighbours that are no iterations computes with
    zeros, which harms nobody."""
    found = along(problem, stmts, index, hardware).vectors(width)
    return not found.others and not any(wide.stores for wide in found.wide)


def any_address_width(problem: Problem, stmts: Sequence[Stmt], index: str, size: int, hardware: tuple[str, ...]) -> int:
    """The most iterations that fill accesses of 16 bytes at any address, where those reads are all that moves with the
    index; 1 where there are none such."""
    most = along(problem, stmts, index, hardware).most.wide
    width = min((wide.whole for wide in most), default=1)
    fits = width > 1 and size >= width * problem.target.warp_size
    return width if fits and reads_alone(problem, stmts, index, width, hardware) else 1
