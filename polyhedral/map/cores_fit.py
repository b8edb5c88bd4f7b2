"""Whether the cores of a candidate are such: what is wrong with them, in words."""

from collections.abc import Iterator

from texpr.grammar.index.expr import names
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.choose_cores import beside, can_be_rows, core_indices, tiles_of
from texpr.polyhedral.map.crew_fits import listed
from texpr.polyhedral.map.jammed import jams_of
from texpr.polyhedral.map.once import repeated
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.on_cores import Cores


def cores_faults(problem: Problem, nest: Nest, choice: Cores) -> Iterator[str]:
    """What is wrong with a launch on a CPU."""
    allowed = core_indices(problem, nest)
    if not set(choice.cores) <= set(allowed) or len(set(choice.cores)) != len(choice.cores):
        yield f"`cores` has {listed(choice.cores)}; those that may be on cores are {listed(allowed)}"
        return
    for par in nest.pars:
        if par.index in choice.cores and names(par.extent) & (set(nest.indices) - set(choice.cores)):
            yield f"`cores`: the extent of {par.index} depends on an index that is a loop"
    if choice.vector is not None:
        if choice.vector not in nest.indices:
            yield f"`vector`: {choice.vector} is no index of the band"
            return
        after = nest.pars[nest.indices.index(choice.vector) + 1 :]
        if any(choice.vector in names(p.extent) for p in after):
            yield f"`vector`: an extent inside depends on {choice.vector}"
    alone = choice.cores == (choice.vector,)
    if choice.vector in choice.cores and not alone:
        yield "`vector` is on cores, too: only a vector that is alone on cores can be, in chunks"
    if alone != (choice.chunk is not None) or (choice.chunk or 1) < 1:
        yield "`chunk` says how many iterations a core runs where the vector is the only core index"
    jams = [] if choice.vector is None else jams_of(problem, nest, choice.cores, choice.vector)
    if choice.jam and not any(choice.jam.keys() == jam.keys() for jam in jams):
        yield f"`jam`: iterations of {listed(choice.jam)} are not taken together inside the innermost loop"
    if min(choice.jam.values(), default=1) < 1:
        yield "`jam` has a loop of which less than one iteration is taken"
    tiles = [] if choice.vector is None else tiles_of(problem, nest, choice.cores, choice.vector)
    if choice.tile and (choice.jam or not any(choice.tile.keys() == tile.keys() for tile in tiles)):
        yield f"`tile`: iterations of {listed(choice.tile)} are not run in tiles"
    if min(choice.tile.values(), default=1) < 1:
        yield "`tile` has a side of less than one iteration"
    if choice.local_rows and (choice.vector is None or choice.jam or choice.tile):
        yield "`local_rows` are of pieces of the vector, without `jam` and `tile`"
    if choice.local_rows and not can_be_rows(problem, nest, choice.memory):
        yield "`local_rows`: the locals of an iteration are not all outside its loops and of one element"
    if choice.once and choice.vector is not None and not choice.local_rows:
        yield "`once`: a row keeps the values of one iteration, and iterations of the vector run beside one another"
    elif choice.once and not repeated(nest.body, beside(choice)):
        yield "`once`: no loops of an iteration compute the same, of a length that a core has room for"
