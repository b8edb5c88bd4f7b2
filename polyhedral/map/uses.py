"""How one launch uses the locals that are declared in it: at which level, and who writes them."""

from dataclasses import field

from texpr.grammar.ast import Accumulate, Atomic, Bind, IndexExpr, Kernel, New, Par, Seq, Stmt
from texpr.grammar.core import children
from texpr.grammar.index.interval import Ranges, bounds, index_range
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import bounded_nest, is_serial_par
from texpr.polyhedral.map.placement import LocalUse, choose_memory, size_bytes
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.places import Memory


@dataclass(slots=True)
class _Uses:
    declared: dict[str, tuple[bool, tuple[str, ...]]] = field(default_factory=dict)
    shared_by_threads: set[str] = field(default_factory=set)
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = field(default_factory=dict)


def local_uses(
    kernel: Kernel, stmts: tuple[Stmt, ...], *, block_level: bool, outer: tuple[str, ...], ranges: Ranges
) -> tuple[tuple[LocalUse, ...], Ranges]:
    """The locals declared below `stmts` in order of declaration, and the ranges of all indices around them.

    `block_level`: the statements belong to a block, whose threads share out the pars inside; else to one thread.
    `outer` are the parallel indices on hardware places around the statements, `ranges` those of all outer indices.
    """
    uses = _Uses(ranges=dict(ranges))
    _visit(stmts, block_level, outer, uses)
    found = tuple(
        LocalUse(
            buffer=kernel.buffer(name),
            block_level=level,
            shared_by_threads=name in uses.shared_by_threads,
            indices=indices,
            bytes=size_bytes(kernel.buffer(name)),
        )
        for name, (level, indices) in uses.declared.items()
    )
    return found, uses.ranges


def memory_of(
    problem: Problem, stmts: tuple[Stmt, ...], *, block_level: bool, outer: tuple[str, ...], ranges: Ranges
) -> dict[str, Memory]:
    """The memory of those locals that the author's word and the rules of `choose_memory` give. Raises as these do."""
    uses, _ = local_uses(problem.kernel, stmts, block_level=block_level, outer=outer, ranges=ranges)
    return {name: memory for name, (memory, _) in choose_memory(uses, problem.target).items()}


def _visit(stmts: tuple[Stmt, ...], block_level: bool, hardware: tuple[str, ...], uses: _Uses) -> None:
    for stmt in stmts:
        match stmt:
            case New(buffer=buffer):
                uses.declared[buffer] = (block_level, hardware)
            case Bind(buffer=buffer) | Accumulate(buffer=buffer) | Atomic(buffer=buffer):
                if buffer in uses.declared and uses.declared[buffer][0] and not block_level:
                    uses.shared_by_threads.add(buffer)
                if isinstance(stmt, Atomic):
                    uses.shared_by_threads.add(buffer)
            case Par(index=index, extent=extent, body=body) if block_level and not is_serial_par(stmt):
                nest, own = bounded_nest(stmt)
                uses.ranges.update({name: _bounded(r, uses) for name, r in own.items()})
                _visit(nest.body, False, hardware + nest.indices, uses)
            case Par(index=index, extent=extent, body=body) | Seq(index=index, extent=extent, body=body):
                found = index_range(extent, uses.ranges)
                if found is not None:
                    uses.ranges[index] = found
                _visit(body, block_level and isinstance(stmt, Seq), hardware, uses)
            case _:
                _visit(children(stmt), block_level, hardware, uses)


def _bounded(own: tuple[IndexExpr, IndexExpr], uses: _Uses) -> tuple[IndexExpr, IndexExpr]:
    """The range of an inner index, its bound over the outer indices where one is found."""
    found = bounds(own[1], uses.ranges)
    return own if found is None else (own[0], found[1])
