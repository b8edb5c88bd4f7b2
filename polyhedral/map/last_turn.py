"""The turns in which a thread adds what it has of a reduction, and a last one of few rounds.

    seq 257 i { S_part += X[i, j] }      8 threads share i, 4 rounds of each at a time

    for i_serial < 8                     32 iterations each: none is asked for
      i_first = 32*i_serial + team ;  …
    i_first = 256 + team                 one round, of which only the first thread has an iteration
    …

So the last turn loads what there is, and all turns before it ask nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

from texpr.grammar.index.expr import const, constant_value
from texpr.polyhedral.map.crew import Crew, Part
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.rounds import Rounds
from texpr.polyhedral.mapped.tree import Node


def rounds(crew: Crew, reduction: Reduction, parts: Mapping[str, Part]) -> tuple[Node, ...]:
    """What a thread adds of a reduction; the rounds that are left behind whole turns are apart where they are no more
    than half of one."""
    choice, over = crew.choice, reduction.over
    extent, step = constant_value(over.extent), crew.team * choice.widths.get(over.index, 1)
    begin = 0 if extent is None else extent // (step * choice.ahead) * step * choice.ahead
    rest = 0 if extent is None else -(-(extent - begin) // step)
    if not begin or not 0 < 2 * rest <= choice.ahead or choice.blocks.get(over.index, 1) > 1:
        return Rounds(crew, reduction, parts).nodes()
    whole = Rounds(crew, _until(reduction, begin), parts)
    last = Rounds(crew, reduction, parts, begin=begin, ahead=rest)
    return whole.nodes((*whole.over(), *last.over()))


def _until(reduction: Reduction, end: int) -> Reduction:
    """The first iterations of the loop that threads share."""
    *around, over = reduction.loops
    return replace(reduction, loops=(*around, replace(over, extent=const(end))))
