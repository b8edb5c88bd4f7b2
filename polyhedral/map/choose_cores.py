"""The first candidate of a band on a CPU: which indices are on cores, which is the innermost loop, how long a chunk is.

A dimension over which iterations update one element is no core dimension: its loop runs in order on one core, without
atomics. Only where that leaves no core dimension, and all iterations update the same element, is the outermost one on
cores after all. The innermost loop is over the index whose steps are contiguous in most accesses.
"""

from texpr.grammar.ast import Accumulate, Atomic, Gather, IndexExpr
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ONE, add, names
from texpr.grammar.index.interval import Ranges
from texpr.grammar.index.value import index_value
from texpr.polyhedral.layout.place import coordinates
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.map.bands import Nest, has_loop
from texpr.polyhedral.map.conflicts import shared_updates
from texpr.polyhedral.map.digits import power_of_two
from texpr.polyhedral.map.jammed import jams_of
from texpr.polyhedral.map.objective import WeightedAccess
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.mapped.candidate import Cores

LIGHT_CHUNK = 1024  # the most iterations of the only core dimension that a core runs at a time
HEAVY_CHUNK = 256  # the same where each iteration has loops
MIN_CHUNK = 16
MIN_CHUNKS = 64  # chunks that keep many cores busy


def choose_cores(problem: Problem, nest: Nest, ranges: Ranges) -> Cores:
    """The indices of a bounded nest dealt to cores, loops and the innermost loop."""
    cores = core_dims(problem, nest)
    vector = _vector_dim(problem, nest)
    if vector in cores and len(cores) > 1:
        cores = tuple(d for d in cores if d != vector)
    indices = tuple(nest.indices[d] for d in cores)
    jams = iter(()) if vector is None else jams_of(problem, nest, indices, nest.indices[vector])
    return Cores(
        cores=indices,
        vector=None if vector is None else nest.indices[vector],
        chunk=_chunk(problem, nest, add(ranges[indices[0]][1], ONE)) if cores == (vector,) else None,
        jam=next(jams, {}),
        memory=memory_of(problem, nest.body, block_level=False, outer=indices, ranges=ranges),
    )


def _chunk(problem: Problem, nest: Nest, extent: IndexExpr) -> int:
    """Iterations of the only core dimension that one core runs at a time: enough chunks for many cores."""
    most = HEAVY_CHUNK if has_loop(nest.body) else LIGHT_CHUNK
    if any(isinstance(s, Accumulate) and s.id in problem.long for s in nest.body):
        return most  # one partial for each chunk
    return max(MIN_CHUNK, min(most, power_of_two(problem.representative(extent, {}) // MIN_CHUNKS)))


def core_indices(problem: Problem, nest: Nest) -> tuple[str, ...]:
    """The indices that may be on cores."""
    return tuple(nest.indices[d] for d in core_dims(problem, nest))


def core_dims(problem: Problem, nest: Nest) -> tuple[int, ...]:
    """The dimensions over which no two iterations update one element; an extent that depends on a dimension that is no
    core dimension keeps its own off the cores too."""
    updates = [s for s in statements(nest.body) if isinstance(s, Accumulate | Atomic)]
    program = problem.proved.program
    found: list[int] = []
    for number, par in enumerate(nest.pars):
        outer = {p.index for d, p in enumerate(nest.pars[:number]) if d not in found}
        if names(par.extent) & outer:
            continue
        if not any(shared_updates(program, u.id, (par.index,)) for u in updates):
            found.append(number)
    if not found and updates and all(_is_total(problem, update, nest) for update in updates):
        return (0,)
    return tuple(found)


def _is_total(problem: Problem, update: Accumulate | Atomic, nest: Nest) -> bool:
    """Whether all iterations update one element, in the type that it is stored in: every core then carries its own
    part, and one atomic update adds it. A narrower element would be rounded once for every part."""
    indices = {par.index for par in nest.pars}
    fixed = all(not isinstance(s, Gather) and not names(s) & indices for s in update.subscripts)
    stored = problem.kernel.buffer(update.buffer).dtype
    own = update.value.dtype == stored or update.id in problem.long
    return fixed and own and stored.bits >= 32


def _vector_dim(problem: Problem, nest: Nest) -> int | None:
    """The dimension whose steps are contiguous in most accesses, None where none is, or a later extent needs it.

    The elements of accumulations do not count, for a register carries them where the dimension is outside.
    """
    best: tuple[int, int] | None = None
    accesses = [a for a in problem.accesses(nest.body, {}, without=declared(nest.body)) if not a.update]
    for number, par in enumerate(nest.pars):
        if any(par.index in names(p.extent) for p in nest.pars[number + 1 :]):
            continue
        steps = [(access.weight, step(problem, access, par.index)) for access in accesses]
        unit = sum(weight for weight, elements in steps if elements == 1)
        far = sum(weight for weight, elements in steps if elements not in (0, 1))
        if unit > far and (best is None or unit - far >= best[0]):
            best = (unit - far, number)
    return None if best is None else best[1]


def step(problem: Problem, access: WeightedAccess, index: str) -> int | None:
    """Elements between neighbouring iterations of the index; None for a gather."""
    ends: list[int] = []
    for turn in (0, 1):
        points: list[int] = []
        for subscript in access.subscripts:
            if isinstance(subscript, Gather):
                return None
            points.append(
                int(index_value(subscript, dict.fromkeys(names(subscript), 0) | {**problem.sizes, index: turn}))
            )
        ends.append(int(coordinates(access.layout, points, problem.sizes)[Unit.ADDRESS]))
    return ends[1] - ends[0]
