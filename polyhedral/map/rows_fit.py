"""Whether the rows of a candidate's blocks are such: what is wrong with them, in words."""

from collections.abc import Iterator

from texpr.grammar.ast import Par, Stmt
from texpr.polyhedral.map.crew_fits import listed
from texpr.polyhedral.map.held import held_by, held_bytes, members
from texpr.polyhedral.map.lines import LINE_BYTES
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.resident import blocks_asked
from texpr.polyhedral.map.row_room import HELD_BYTES
from texpr.polyhedral.map.row_slots import in_chunks, slot_bytes, slot_room
from texpr.polyhedral.mapped.candidate import Blocks, Row


def row_faults(problem: Problem, stmts: tuple[Stmt, ...], choice: Blocks) -> Iterator[str]:
    """What is wrong with the rows of a launch of these statements, and with how many blocks are resident."""
    every = [index for row in choice.rows for index in row.indices]
    if len(set(every)) != len(every):
        yield "`rows`: an index is in two rows"
    for row in choice.rows:
        yield from _row(problem, stmts, choice, row)
    asked = blocks_asked(problem.kernel, problem.target)
    if asked is not None and choice.resident not in (0, asked):
        yield f"`resident`: the author asks for {asked} blocks, and the candidate has {choice.resident}"
    if choice.resident * choice.threads > problem.target.resident_threads:
        yield f"`resident`: {choice.resident} blocks have more threads than a multiprocessor runs"


def _row(problem: Problem, stmts: tuple[Stmt, ...], choice: Blocks, row: Row) -> Iterator[str]:
    """The loops over a row stand beside one another, over the same iterations of the same threads."""
    loops, named = members(stmts, row.indices), listed(row.indices)
    width = choice.widths.get(row.indices[0], 1) if row.indices else 1
    for loop in loops:
        own = choice.inner.get(loop.index) if isinstance(loop, Par) else ((loop.index, choice.team),)
        together = isinstance(loop, Par) or loop.index in choice.shared_out
        if not together or own != ((loop.index, choice.team),) or choice.widths.get(loop.index, 1) != width:
            yield f"`rows`: the threads do not go over {named} in the same way"
    if not loops or len({loop.extent for loop in loops}) > 1:
        yield f"`rows`: {named} are no loops of one extent beside one another"
        return
    held = held_by(problem, stmts, loops, choice.team * choice.cluster * width, row.line)
    if row.line not in (0, LINE_BYTES) or (row.line and (width == 1 or choice.team * width < LINE_BYTES)):
        yield f"`rows`: the runs of {named} are not counted from lines of {row.line} bytes"
    if row.slots and held is not None:
        if not in_chunks(problem, held, width, row.line):
            yield f"`rows`: what {named} read does not come to slots of shared memory in whole chunks"
        if slot_bytes(problem, held, width, choice.team) > slot_room(
            problem.target, max(1, choice.resident), choice.team
        ):
            yield f"`rows`: {named} read more than the slots of so many blocks on a multiprocessor have room for"
    elif held is None or held_bytes(problem, held, width) > HELD_BYTES:
        yield f"`rows`: {named} read nothing that {HELD_BYTES} bytes of a thread's registers can hold"
