"""The first candidate of a band on a CPU: which indices are on cores, which is the innermost loop, how long a chunk is.

A dimension over which iterations update one element is no core dimension: its loop runs in order on one core, without
atomics. Only where that leaves no core dimension, and all iterations update the same element, is the outermost one on
cores after all. The innermost loop is over the index whose steps touch the fewest lines of memory; what is contiguous
along another runs in tiles of both.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from texpr.grammar.ast import Accumulate, Atomic, Bind, Gather, If, IndexExpr, Intrinsic, New, Par, Read, Seq, Stmt
from texpr.grammar.core import children, statements
from texpr.grammar.index.expr import ONE, add, constant_value, names
from texpr.grammar.index.interval import Ranges
from texpr.grammar.index.value import index_value
from texpr.grammar.walk import walk
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.place import coordinates
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.map.abreast import abreast_of
from texpr.polyhedral.map.bands import Nest, has_long_loop
from texpr.polyhedral.map.conflicts import shared_updates
from texpr.polyhedral.map.digits import power_of_two
from texpr.polyhedral.map.jammed import jams_of
from texpr.polyhedral.map.objective import WeightedAccess
from texpr.polyhedral.map.once import repeated
from texpr.polyhedral.map.problem import Problem, declared
from texpr.polyhedral.map.tally import elements, tally
from texpr.polyhedral.map.uses import memory_of
from texpr.polyhedral.mapped.on_cores import Cores
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.prove.additions import CHAIN
from texpr.polyhedral.target import CPU_TALLY_ELEMENTS, CPU_TASKS
from texpr.polyhedral.walk import subscript_names

LIGHT_CHUNK = 1024  # the most iterations of the only core dimension that a core runs at a time
HEAVY_CHUNK = 1024  # the same where each iteration has loops: of 4 bytes a page of each line that these go to
MIN_CHUNK = 16
LINE_BYTES = 64  # that memory moves at a time
PIECE = 256  # iterations of the vector whose locals are rows: a few of them fit the nearest cache
TILE_SIDE = LINE_BYTES  # iterations of a tile's side: of 4 bytes four lines; the nearest cache holds a square of them
MIN_CHUNKS = 64  # chunks that keep many cores busy
FEW_CHUNKS = 4  # the same of lines: shorter pieces of these take twice the time, by a page's translation for each


def choose_cores(problem: Problem, nest: Nest, ranges: Ranges) -> Cores:
    """The indices of a bounded nest dealt to cores, loops and the innermost loop."""
    cores = core_dims(problem, nest)
    vector = _vector_dim(problem, nest)
    if vector in cores and len(cores) > 1:
        cores = tuple(d for d in cores if d != vector)
    indices = tuple(nest.indices[d] for d in cores)
    jams = iter(()) if vector is None else jams_of(problem, nest, indices, nest.indices[vector])
    tiles = iter(()) if vector is None else tiles_of(problem, nest, indices, nest.indices[vector])
    memory = memory_of(problem, nest.body, block_level=False, outer=indices, ranges=ranges)
    if vector is None and len(nest.pars) == 1 == len(cores) and can_be_rows(problem, nest, memory):
        count = abreast_of(problem, nest)
        if count is not None:
            return Cores(cores=indices, vector=indices[0], chunk=count, local_rows=True, memory=memory)
    local_rows = vector is not None and can_be_rows(problem, nest, memory)
    return Cores(
        cores=indices,
        vector=None if vector is None else nest.indices[vector],
        chunk=_chunk(problem, nest, add(ranges[indices[0]][1], ONE)) if cores == (vector,) else None,
        jam=next(jams, {}),
        tile=next(tiles, {}),
        once=(vector is None or local_rows) and bool(repeated(nest.body, PIECE if local_rows else 1)),
        local_rows=local_rows,
        memory=memory,
    )


def beside(choice: Cores) -> int:
    """Iterations of the vector whose rows of locals a core has at a time; 1 where it has none."""
    return (choice.chunk or PIECE) if choice.local_rows else 1


def _chunk(problem: Problem, nest: Nest, extent: IndexExpr) -> int:
    """Iterations of the only core dimension that one core runs at a time: enough chunks for many cores."""
    heavy = has_long_loop(nest.body)
    if not heavy and any(isinstance(s, Accumulate) and s.id in problem.long for s in nest.body):
        return CHAIN  # a partial for each chunk
    most, chunks = (HEAVY_CHUNK, FEW_CHUNKS) if heavy else (LIGHT_CHUNK, MIN_CHUNKS)
    return max(MIN_CHUNK, min(most, power_of_two(problem.representative(extent, {}) // chunks)))


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
    return (0,) if not found and updates and _are_tallied(problem, updates, nest) else tuple(found)


def _are_tallied(problem: Problem, updates: Sequence[Accumulate | Atomic], nest: Nest) -> bool:
    """Whether all updates are of arrays so small that each part of a launch has copies, which `codegen/cpu/tally.py`
    adds up, and there is more to do than that."""
    found = tally(problem, nest, nest.indices[0])
    arrays = {update.buffer for update in updates} - declared(nest.body)
    if found is None or arrays != set(found.of):
        return False
    counts = {name: elements(problem.kernel.buffer(name)) or 0 for name in arrays}
    dense = all(constant_value(extent(problem.layouts[name])) == count for name, count in counts.items())
    turns = prod(problem.representative(par.extent, {}) for par in nest.pars)
    return dense and max(counts.values()) <= CPU_TALLY_ELEMENTS and sum(counts.values()) * CPU_TASKS <= turns


def _is_total(problem: Problem, update: Accumulate | Atomic, nest: Nest) -> bool:
    """Whether all iterations update one element, in the type that it is stored in: every core then carries its own
    part, and one atomic update adds it. A narrower element would be rounded once for every part."""
    indices = {par.index for par in nest.pars}
    fixed = all(not isinstance(s, Gather) and not names(s) & indices for s in update.subscripts)
    stored = problem.kernel.buffer(update.buffer).dtype
    own = update.value.dtype == stored or update.id in problem.long
    return fixed and own and stored.bits >= 32


def _vector_dim(problem: Problem, nest: Nest) -> int | None:
    """The dimension of the innermost loop; None where a later extent needs each.

    Where an iteration has long loops, one whose steps are contiguous in most accesses, or None: then a loop inside is
    the innermost. The elements of accumulations do not count there, for a register carries them where the dimension is
    outside. Else the one whose steps touch the fewest lines of memory, and the last of several.
    """
    free = [
        (number, par.index)
        for number, par in enumerate(nest.pars)
        if not any(par.index in names(p.extent) for p in nest.pars[number + 1 :])
    ]
    accesses = problem.accesses(nest.body, {}, without=declared(nest.body))
    if not has_long_loop(nest.body):
        lines = {number: sum(lines_touched(problem, a, index) for a in accesses) for number, index in free}
        return min(reversed(lines), key=lines.__getitem__, default=None)
    best: tuple[int, int] | None = None
    for number, index in free:
        steps = [(access.weight, step(problem, access, index)) for access in accesses if not access.update]
        unit = sum(weight for weight, elements in steps if elements == 1)
        far = sum(weight for weight, elements in steps if elements not in (0, 1))
        if unit > far and (best is None or unit - far >= best[0]):
            best = (unit - far, number)
    return None if best is None else best[1]


def lines_touched(problem: Problem, access: WeightedAccess, index: str) -> float:
    """Lines of memory that an iteration of the index touches and the one before it did not; what is written counts
    twice, as a line is read before a part of it is written."""
    elements = step(problem, access, index)
    share = 1.0 if elements is None else min(1.0, abs(elements) * access.element_bytes / LINE_BYTES)
    return access.weight * share * (2 if access.writes else 1)


def tiles_of(problem: Problem, nest: Nest, cores: Sequence[str], vector: str) -> Iterator[dict[str, int]]:
    """Sides of the tiles of a core index and the vector: where an access goes along the core index from one element to
    the next, and along the vector from line to line. None where an iteration has long loops or extents depend."""
    indices = set(nest.indices)
    if vector in cores or has_long_loop(nest.body) or any(names(par.extent) & indices for par in nest.pars):
        return
    accesses = problem.accesses(nest.body, {}, without=declared(nest.body))
    far = [a for a in accesses if lines_touched(problem, a, vector) >= a.weight]
    for index in reversed(cores):
        if any(step(problem, access, index) == 1 for access in far):
            yield {index: TILE_SIDE, vector: TILE_SIDE}


def can_be_rows(problem: Problem, nest: Nest, memory: Mapping[str, Memory]) -> bool:
    """Whether an iteration has long loops, and locals of one element each and a thread's own, outside these loops or
    around none; and whether data decides of single binds only, which become selections."""
    own = [s.buffer for s in nest.body if isinstance(s, New)]
    plain = all(memory.get(b) is Memory.REG and not problem.kernel.buffer(b).shape for b in own)
    return bool(own) and plain and has_long_loop(nest.body) and _can_be_vector(nest.body)


def _can_be_vector(stmts: tuple[Stmt, ...]) -> bool:
    """Whether the statements can run for neighbouring iterations side by side, their long loops around these."""
    for stmt in stmts:
        match stmt:
            case Seq() | Par():
                local = has_long_loop(stmt.body) and any(isinstance(s, New) for s in statements(stmt.body))
                if local or not _can_be_vector(stmt.body):
                    return False
            case If(condition=Read()):
                if not all(isinstance(s, Bind) and not _gathers(s) for s in (*stmt.then, *stmt.orelse)):
                    return False
            case If():
                if any(isinstance(s, New) for s in statements((stmt,))) or not _can_be_vector(children(stmt)):
                    return False
            case Intrinsic():
                return False
            case _:
                pass
    return True


def _gathers(stmt: Bind) -> bool:
    return any(isinstance(node, Gather) for node in (*stmt.subscripts, *walk(stmt.value)))


def step(problem: Problem, access: WeightedAccess, index: str) -> int | None:
    """Elements between neighbouring iterations of the index; None for a gather whose place depends on it."""
    ends: list[int] = []
    for turn in (0, 1):
        points: list[int] = []
        for subscript in access.subscripts:
            if isinstance(subscript, Gather):
                if index in subscript_names((subscript,)):
                    return None
                points.append(0)
                continue
            points.append(
                int(index_value(subscript, dict.fromkeys(names(subscript), 0) | {**problem.sizes, index: turn}))
            )
        ends.append(int(coordinates(access.layout, points, problem.sizes)[Unit.ADDRESS]))
    return ends[1] - ends[0]
