"""The turns in which a thread adds what it has of a reduction, and a last one of few rounds.

    seq 257 i { S_part += X[i, j] }      8 threads share i, 4 rounds of each at a time

    for i_serial < 8                     32 iterations each: none is asked for
      i_first = 32*i_serial + team ;  …
    i_first = 256 + team                 one round, of which only the first thread has an iteration
    …

So the last turn loads what there is, and all turns before it ask nothing. Of one block it has no more than half of the
rounds of a turn; of several blocks, which have equal shares of it, any (first maxima of 131072 x 1024 in bf16: .955 of
a read so, .930 where some blocks have a turn more). Several blocks that share what lies along memory have none: their
loads come no faster for it (a dot product of 2^28 elements in f32: .938 of a read so, 1.009 where each turn asks).
Nor have rows that begin before their first iteration.

With `next_turn` each round of a whole turn is loaded again, for the next one, as soon as it is added: a thread has
loads on their way while it adds. Those of what is left come first of all then.
"""

from collections.abc import Mapping
from dataclasses import replace

from texpr.grammar.ast import IndexExpr
from texpr.grammar.index.expr import const, constant_value
from texpr.polyhedral.map.crew import Crew, Part
from texpr.polyhedral.map.reducible import Reduction
from texpr.polyhedral.map.rounds import Rounds
from texpr.polyhedral.mapped.tree import Node


def rounds(crew: Crew, reduction: Reduction, parts: Mapping[str, Part]) -> tuple[Node, ...]:
    """What a thread adds of a reduction: whole turns, and the rounds that are left where these are apart."""
    choice, over = crew.choice, reduction.over
    blocks = choice.blocks.get(over.index, 1)
    width = choice.widths.get(over.index, 1)
    if (blocks > 1 and width > 1) or crew.rows_origin is not None:
        return Rounds(crew, reduction, parts).nodes()
    step = crew.team * width * blocks
    split = last_turn(over.extent, step, choice.ahead, most=choice.ahead // 2 if blocks == 1 else choice.ahead - 1)
    turn = step * choice.ahead
    several = split is not None and choice.next_turn and split[0] > turn
    if split is None or not (split[1] or several):
        return Rounds(crew, reduction, parts).nodes()
    begin, rest = split
    whole = Rounds(crew, _until(reduction, begin - turn if several else begin), parts, next_turn=several)
    last = Rounds(crew, reduction, parts, begin=begin, ahead=rest) if rest else None
    nodes = whole.over()
    if several:  # the loads of the last whole turn have followed the one before
        nodes += Rounds(crew, _until(reduction, begin), parts, begin=begin - turn, loaded=whole.loads).over()
    loads, additions = last.apart() if last is not None else ((), ())
    return whole.nodes((*loads, *nodes, *additions) if several else (*nodes, *loads, *additions))


def last_turn(extent: IndexExpr, step: int, ahead: int, most: int) -> tuple[int, int] | None:
    """Where the rounds begin that are left behind whole turns of so many rounds, each of `step` iterations, and how
    many there are; None where there is no whole turn, or they are more than `most`."""
    size = constant_value(extent) or 0
    begin = size // (step * ahead) * step * ahead
    rest = -(-(size - begin) // step)
    return (begin, rest) if begin and rest <= most else None


def _until(reduction: Reduction, end: int) -> Reduction:
    """The first iterations of the loop that threads share."""
    *around, over = reduction.loops
    return replace(reduction, loops=(*around, replace(over, extent=const(end))))
