"""Which updates must be indivisible: iterations of different threads accumulate into one element.

par M i { C[0] += A[i] }           i on threads: yes
par M i { seq K k { C[i] += … } }  no: one thread makes all updates of C[i]
seq T t { par M i { C[t + i] += … } }  no: the launches of two t run one after the other
"""

from collections.abc import Collection

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.permissions import promises_unique
from texpr.polyhedral import isl
from texpr.polyhedral.affine import coprime_columns
from texpr.polyhedral.isl import columns
from texpr.polyhedral.program import Access, AccessMode, Program, ProgramStatement
from texpr.polyhedral.prove.ordering import equal_outside

_UPDATES = (AccessMode.ACCUMULATE, AccessMode.ATOMIC)


def shared_updates(program: Program, statement: str, hardware: Collection[str]) -> bool:
    """Whether iterations that differ in a parallel index of `hardware` update one element, one by `statement`.

    A statement with `#unique` promises that they do not; where it takes too many steps to tell, they do. It is looked
    for once, whoever asks.
    """
    question = ("shared update", statement, frozenset(hardware))
    return program.work.once(question, lambda: _shared_updates(program, statement, hardware))


def _shared_updates(program: Program, statement: str, hardware: Collection[str]) -> bool:
    mine = program.statement(statement)
    update = mine.write
    if update is None or update.mode not in _UPDATES or not hardware or promises_unique(mine.leaf):
        return False
    for other in program.statements:
        theirs = other.write
        if theirs is None or theirs.buffer != update.buffer or theirs.mode not in _UPDATES:
            continue
        width = columns(update.relation, theirs.relation) + coprime_columns((*update.subscripts, *theirs.subscripts))
        try:
            with program.work.limited(update.span, "whether these updates meet", width):
                if any(_collides(program, (mine, update), (other, theirs), index) for index in hardware):
                    return True
        except TExprError:
            if program.work.exhausted:
                raise
            return True
    return False


def _collides(
    program: Program, first: tuple[ProgramStatement, Access], second: tuple[ProgramStatement, Access], index: str
) -> bool:
    """Whether two instances with different values of `index`, in one launch, touch one element."""
    places = []
    for statement, _ in (first, second):
        loops = [loop.index for loop in statement.loops]
        if index not in loops:
            return False
        places.append(loops.index(index))
    same = program.facts.around(first[1].relation.apply_range(second[1].relation.reverse()))
    same = equal_outside(same, _loops_around_launches(first[0]))
    ins, outs = isl.dim_type.in_, isl.dim_type.out
    return not (
        same.order_lt(ins, places[0], outs, places[1]).is_empty()
        and same.order_gt(ins, places[0], outs, places[1]).is_empty()
    )


def _loops_around_launches(statement: ProgramStatement) -> int:
    """How many `seq` loops stand outside all pars: they are loops of the host."""
    return next((depth for depth, loop in enumerate(statement.loops) if loop.parallel), len(statement.loops))
