"""Whether the choice of a contraction in tiles fits it: its own numbers, and the band."""

from collections.abc import Iterator
from math import prod

from texpr.grammar.index.expr import constant_value
from texpr.grammar.permissions import raster_of
from texpr.polyhedral.map.bands import has_block_level
from texpr.polyhedral.map.contracted_tiles import DEEP, bringing, lanes, square, tile_bytes
from texpr.polyhedral.map.contraction import Contraction, contraction
from texpr.polyhedral.map.crew_fits import listed
from texpr.polyhedral.map.digits import is_power_of_two
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.triangle import Boxed
from texpr.polyhedral.mapped.candidate import Contracted

MOST_SIDE, MOST_DEPTH = 256, 64  # of a tile
SUM_BYTES = 512  # of a thread's registers: half of what it can have


def contracted_fault(problem: Problem, nest: Boxed, choice: Contracted, *, alone: bool = False) -> str | None:
    """What does not fit, None where all does; where locals may lie, others say. `alone`: a condition on data stands
    around the launch, under which no blocks are counted."""
    if has_block_level(problem.kernel, nest):
        return "its band has work for the threads of a block: `Blocks` gives each iteration one"
    if alone and choice.parts > 1:
        return "`parts`: under a condition on data blocks do not share a reduction"
    sides = (choice.along, choice.across)
    one = contraction(problem, nest, choice) if problem.target.is_cuda else None
    if one is None and choice.joined:
        return f"`joined`: {listed(sides)} are no sides of a sum of products with what is to be joined"
    if one is None or len(set(sides)) != 2 or not choice.joined.keys() <= set(sides):
        return f"`along` and `across`: {listed(sides)} are no sides of a sum of products"
    return next(_faults(problem, one, choice), None)


def _faults(problem: Problem, one: Contraction, choice: Contracted) -> Iterator[str]:
    sides, target = {choice.along, choice.across}, problem.target
    for name, numbers, most in (("tile", choice.tile, MOST_SIDE), ("each", choice.each, MOST_SIDE)):
        if numbers.keys() != sides or not all(is_power_of_two(n) and n <= most for n in numbers.values()):
            yield f"`{name}` gives {listed(sorted(sides))} powers of two up to {most}"
            return
    if not is_power_of_two(choice.depth) or choice.depth > MOST_DEPTH:
        yield f"`depth` is a power of two up to {MOST_DEPTH}"
        return
    if choice.ahead not in (1, 2) or choice.depth < choice.ahead:
        yield "`ahead` is 1 or 2, and no more than the depth"
        return
    if any(choice.tile[side] % choice.each[side] or choice.each[side] % square(one) for side in sides):
        yield f"`each` gives a thread no squares of {square(one)} by {square(one)} of the tile"
        return
    team = prod(choice.tile[side] // choice.each[side] for side in sides)
    if team != choice.threads or prod(n for _, n in lanes(choice, target.warp_size)) != team:
        yield f"a tile has shares for {team} threads, and the candidate has {choice.threads}"
        return
    if prod(choice.each.values()) * one.dtype.size_bytes > SUM_BYTES:
        yield f"`each`: a thread has {SUM_BYTES} bytes for its sums"
    for side in sides:
        own = bringing(problem, one, choice, side)
        reach = {side: choice.tile[side], DEEP: choice.depth}
        if prod(own.threads.values()) != choice.threads or any(n % own.covered(way) for way, n in reach.items()):
            yield f"`depth`: {choice.threads} threads have no equal shares of what {choice.depth} products need"
    needed = tile_bytes(problem, one, choice)
    if needed > target.shared_bytes:
        yield f"its tiles need {needed} bytes of shared memory, and a block has {target.shared_bytes}"
    if choice.parts > 1 and (constant_value(one.extent) is None or raster_of(problem.kernel) is not None):
        yield "`parts`: blocks share a number of products that is known, and no raster is asked of them"
    if choice.parts > 1 and one.nest.domain is not None:
        yield "`parts`: blocks share no tiles of which some have no element"
    if choice.parts > max(1, -(-(constant_value(one.extent) or 0) // choice.depth)):
        yield f"`parts`: {choice.parts} blocks share fewer steps"
    if choice.resident * choice.threads > target.resident_threads:
        yield f"`resident`: a multiprocessor has room for {target.resident_threads} threads"
