"""Which statements of a body are reductions that threads and blocks may share out, and what stands around them.

    new s ; s = 0 ; seq N k { s += A[i, k] * f } ; C[i] = s / N

    reductions   seq N k { … }              shared out over k: threads and blocks each add a part of it
    first        what binds f               every thread by itself, before
    last         new s ; s = 0 ; … ; C[i]   where the parts meet, in order, the reduction's result in its place

A reduction is a nest of `seq`s that does nothing but update elements which none of its loops tells apart. Whatever its
body reads beside arrays that nothing here writes is bound once, to a scalar of the body, by a statement of `first`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from texpr.grammar.ast import Accumulate, Atomic, Bind, Buffer, Gather, If, IndexConst, New, Read, Seq, Stmt
from texpr.grammar.core import statements
from texpr.grammar.index.expr import constant_value, names
from texpr.grammar.index.interval import Ranges, index_range
from texpr.grammar.permissions import keeps_order, unroll_of
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.walk import read_accesses, subscript_names, value_reads

MIN_EXTENT = 64  # shorter reductions stay in one thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """`loops`, outermost first, of which threads share out the last one, and the `updates` inside."""

    loops: tuple[Seq, ...]
    updates: tuple[Accumulate, ...]

    @property
    def body(self) -> tuple[Stmt, ...]:
        return self.loops[-1].body

    @property
    def reading(self) -> tuple[Stmt, ...]:
        """The body, its updates without an element: they go to registers."""
        return tuple(map(self._without_elements, self.body))

    def _without_elements(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Accumulate() if any(stmt is update for update in self.updates):
                return replace(stmt, subscripts=())
            case Seq(body=body):
                return replace(stmt, body=tuple(map(self._without_elements, body)))
            case If(then=then, orelse=orelse):
                arms = (tuple(map(self._without_elements, arm)) for arm in (then, orelse))
                return replace(stmt, then=next(arms), orelse=next(arms))
            case _:
                return stmt

    @property
    def over(self) -> Seq:
        return self.loops[-1]

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(loop.index for loop in self.loops)


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


def shareable(problem: Problem, stmts: tuple[Stmt, ...], ranges: Ranges) -> tuple[str, ...]:
    """The index by which threads would share out each long reduction of a body; none where it has anything that one
    thread of each block cannot do, or where a reduction waits for another one."""
    over: list[str] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            known, sizes, at = dict(ranges), dict[str, int](), stmt
            while True:
                sizes[at.index] = problem.representative(at.extent, known)
                known |= {at.index: found} if (found := index_range(at.extent, known)) else {}
                if len(at.body) != 1 or not isinstance(at.body[0], Seq):
                    break
                at = at.body[0]
            long = [index for index, size in sizes.items() if size >= MIN_EXTENT]
            if long and reduction(problem, stmt, long[-1]) is not None:
                over.append(long[-1])
    return tuple(over) if over and work(problem, stmts, over) is not None else ()


def work(problem: Problem, stmts: tuple[Stmt, ...], shared_out: Sequence[str]) -> Work | None:
    """A body whose reductions over these indices are shared out; None where they cannot be."""
    tops = {index: stmt for stmt in stmts if isinstance(stmt, Seq) for index in _nest(stmt)}
    found = {index: reduction(problem, tops[index], index) for index in shared_out if index in tops}
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


def reduction(problem: Problem, top: Seq, over: str) -> Reduction | None:
    """The nest from `top` to the index `over` as a reduction, None where it is none that may be shared out."""
    loops = [top]
    while loops[-1].index != over:
        if len(loops[-1].body) != 1 or not isinstance(loops[-1].body[0], Seq):
            return None
        loops.append(loops[-1].body[0])
    if any(keeps_order(loop) or unroll_of(loop) for loop in loops):
        return None
    inside = tuple(statements(loops[-1].body))
    own = {s.buffer for s in inside if isinstance(s, New)}
    updates = tuple(s for s in inside if isinstance(s, Accumulate) and s.buffer not in own)
    targets = {u.buffer for u in updates}
    moving = {loop.index for loop in loops} | {s.index for s in inside if isinstance(s, Seq)}
    fits = (
        updates
        and len(targets) == len(updates)
        and all(_computes_only(problem, stmt, own) for stmt in inside)
        and all(read.buffer not in targets for read in _reads(inside))
        and not any(keeps_order(stmt) for stmt in inside)
        and all(_told_by_none(update, moving) for update in updates)
        and (_runs(loops, inside) or all(_exists(problem, update) for update in updates))
    )
    return Reduction(loops=tuple(loops), updates=updates) if fits else None


def _nest(top: Seq) -> Iterator[str]:
    yield top.index
    if len(top.body) == 1 and isinstance(top.body[0], Seq):
        yield from _nest(top.body[0])


def _computes_only(problem: Problem, stmt: Stmt, own: set[str]) -> bool:
    """Whether a statement of a reduction's body is an update, or computes scalars that a thread keeps for itself."""
    match stmt:
        case New(buffer=name):
            return _is_scalar(problem.kernel.buffer(name))
        case Bind(buffer=name):
            return name in own
        case Seq():
            return unroll_of(stmt) is None
        case Accumulate() | If():
            return True
        case _:
            return False


def _is_scalar(buffer: Buffer) -> bool:
    return not buffer.shape and buffer.memory in (None, Memory.REG.value)


def _of_one_thread(problem: Problem, stmt: Stmt) -> bool:
    """Whether one thread can run a statement for all that share its iteration."""
    return all(
        _is_scalar(problem.kernel.buffer(s.buffer))
        if isinstance(s, New)
        else isinstance(s, Bind | Accumulate | Atomic | If | Seq)
        for s in statements((stmt,))
    )


def _told_by_none(update: Accumulate, moving: set[str]) -> bool:
    gathered = any(isinstance(s, Gather) for s in update.subscripts)
    return not gathered and subscript_names(update.subscripts).isdisjoint(moving)


def _runs(loops: Sequence[Seq], inside: Sequence[Stmt]) -> bool:
    """Whether an iteration of each of the loops, whose extents depend on none of them, makes every update."""
    indices = {loop.index for loop in loops}
    fixed = all(names(loop.extent).isdisjoint(indices) for loop in loops)
    surely = all((constant_value(s.extent) or 0) > 0 for s in inside if isinstance(s, Seq))
    return fixed and surely and not any(isinstance(s, If) for s in inside)


def _exists(problem: Problem, update: Accumulate) -> bool:
    """Whether the element is there, also where nothing is added to it."""
    shape = problem.kernel.buffer(update.buffer).shape
    return all(
        isinstance(at, IndexConst) and 0 <= at.value < (constant_value(extent) or 0)
        for at, extent in zip(update.subscripts, shape, strict=True)
    )


def _reads(stmts: Sequence[Stmt]) -> Iterator[Read]:
    """The reads of these statements themselves."""
    for stmt in stmts:
        match stmt:
            case Bind() | Accumulate() | Atomic():
                yield from read_accesses(stmt)
            case If(condition=Read() as read):
                yield from value_reads(read)
            case _:
                pass


def _first(others: Sequence[Stmt], reductions: Sequence[Reduction]) -> tuple[Stmt, ...] | None:
    """The statements that bind what reductions read, in order; None where they cannot come before all others."""
    local = {stmt.buffer for stmt in others if isinstance(stmt, New)}
    writers: dict[str, list[Stmt]] = {}
    for stmt in others:
        for inner in statements((stmt,)):
            if isinstance(inner, Bind | Accumulate | Atomic):
                writers.setdefault(inner.buffer, []).append(stmt)
    for one in reductions:
        for update in one.updates:
            writers.setdefault(update.buffer, []).append(one.loops[0])
    wanted = [read.buffer for one in reductions for read in _reads(tuple(statements((one.loops[0],))))]
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
        wanted += [read.buffer for read in _reads((writer,))]
    if any(stmt.buffer in needed for stmt in others if isinstance(stmt, New)):
        found |= {id(stmt) for stmt in others if isinstance(stmt, New) and stmt.buffer in needed}
    return tuple(stmt for stmt in others if id(stmt) in found)
