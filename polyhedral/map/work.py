"""Which statements of a body are reductions that threads and blocks may share out, and what stands around them.

    new s ; s = 0 ; seq N k { s += A[i, k] * f } ; C[i] = s / N

    reductions   seq N k { … }              shared out over k: threads and blocks each add a part of it
    first        what binds f               every thread by itself, before
    last         new s ; s = 0 ; … ; C[i]   where the parts meet, in order, the reduction's result in its place

Whatever a reduction (`reducible.py`) reads beside arrays that nothing here writes is bound once, to a scalar of the
body, by a statement of `first`.
"""

from collections.abc import Sequence

from texpr.grammar.ast import Accumulate, Atomic, Bind, If, New, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.interval import Ranges
from texpr.grammar.records import dataclass
from texpr.polyhedral.map.bands import Nest
from texpr.polyhedral.map.problem import Problem, Region, plain_nest
from texpr.polyhedral.map.reducible import (
    MIN_EXTENT,
    Reduction,
    as_reduction,
    combinable,
    is_scalar,
    nest_of_seqs,
    reads_of,
    reduction,
)
from texpr.polyhedral.map.updates import targets


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The reductions of a body, the statements that each thread runs `first`, and all others, in which the outermost
    loops of the reductions stand."""

    reductions: tuple[Reduction, ...]
    first: tuple[Stmt, ...]
    last: tuple[Stmt, ...]

    def at(self, stmt: Stmt) -> Reduction | None:
        """The reduction that a statement of `last` is."""
        return next((r for r in self.reductions if r.loops[0] is stmt), None)


def shared_nest(region: Region, shared_out: Sequence[str]) -> tuple[Nest, Ranges]:
    """The nest of a region whose reductions over these indices are shared out, which may be indices of its band."""
    nest, ranges = plain_nest(region)
    own = [index for index in shared_out if index in nest.indices]
    return (as_reduction(nest, own[0]), ranges) if len(own) == 1 and combinable(nest) else (nest, ranges)


def shareable(problem: Problem, stmts: tuple[Stmt, ...], ranges: Ranges) -> tuple[str, ...]:
    """The index by which threads would share out each long reduction of a body; none where it has anything that one
    thread of each block cannot do, or where a reduction waits for another one."""
    over: list[str] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            sizes, _ = problem.loop_sizes(nest_of_seqs(stmt), ranges)
            long = [index for index, size in sizes.items() if size >= MIN_EXTENT]
            if long and reduction(problem.kernel, stmt, long[-1]) is not None:
                over.append(long[-1])
    return tuple(over) if over and work(problem, stmts, over) is not None else ()


def work(problem: Problem, stmts: tuple[Stmt, ...], shared_out: Sequence[str]) -> Work | None:
    """A body whose reductions over these indices are shared out; None where they cannot be."""
    tops = {
        index: stmt for stmt in stmts if isinstance(stmt, Seq) for index in (loop.index for loop in nest_of_seqs(stmt))
    }
    found = {index: reduction(problem.kernel, tops[index], index) for index in shared_out if index in tops}
    reductions = tuple(r for r in found.values() if r is not None)
    heads = [id(r.loops[0]) for r in reductions]
    if not shared_out or len(reductions) != len(shared_out) or len(set(heads)) != len(heads):
        return None
    others = [stmt for stmt in stmts if id(stmt) not in heads]
    if not all(_of_one_thread(problem, stmt) for stmt in others):
        return None
    first = _first(others, reductions)
    if first is None:
        return None
    before = {id(stmt) for stmt in first}
    return Work(reductions=reductions, first=first, last=tuple(s for s in stmts if id(s) not in before))


def _of_one_thread(problem: Problem, stmt: Stmt) -> bool:
    """Whether one thread can run a statement for all that share its iteration."""
    return all(
        is_scalar(problem.kernel.buffer(s.buffer))
        if isinstance(s, New)
        else isinstance(s, Bind | Accumulate | Atomic | If | Seq)
        for s in statements((stmt,))
    )


def _first(others: Sequence[Stmt], reductions: Sequence[Reduction]) -> tuple[Stmt, ...] | None:
    """The statements that bind what reductions read, in order; None where they cannot come before all others."""
    local = {stmt.buffer for stmt in others if isinstance(stmt, New)}
    writers: dict[str, list[Stmt]] = {}
    for stmt in others:
        for inner in statements((stmt,)):
            if isinstance(inner, Bind | Accumulate | Atomic):
                writers.setdefault(inner.buffer, []).append(stmt)
    for one in reductions:
        for name in {name for update in one.updates for name, _ in targets(update)}:
            writers.setdefault(name, []).append(one.loops[0])
    wanted = [read.buffer for one in reductions for read in reads_of(tuple(statements(one.reading)))]
    found = set[int]()
    needed = set[str]()
    while wanted:
        name = wanted.pop()
        if name in needed or name not in writers:
            continue
        needed.add(name)
        if name not in local or len(writers[name]) > 1 or not isinstance(writers[name][0], Bind):
            return None
        (writer,) = writers[name]
        found.add(id(writer))
        wanted += [read.buffer for read in reads_of((writer,))]
    if any(stmt.buffer in needed for stmt in others if isinstance(stmt, New)):
        found |= {id(stmt) for stmt in others if isinstance(stmt, New) and stmt.buffer in needed}
    return tuple(stmt for stmt in others if id(stmt) in found)
