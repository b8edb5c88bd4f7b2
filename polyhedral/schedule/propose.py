"""What else a program could run as: bands that follow one another fused, host loops of accumulations turned inside,
workspaces that only one iteration uses made its locals, a `seq` that needs no order made a `par`.

    new t: f32[M]
    par M i { t[i] = sum … }            fuse i, i_1 ; contract t
    par M i_1, N j { … t[i_1] … }       one launch of rows, t a register
    … A[i * K + k] * B[k * N + j] …     of 16 bits: view A, view B (tensor cores take boxes of dimensions)

A few schedules are proposed, from the boldest on: everything that is legal; only bands that share a workspace; only
workspaces that become scalars; loops turned and nothing fused; no `seq` made a `par`. Nothing is asked of isl where a
program has one band, nothing flat to see and no factor that could be an array.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import chain, pairwise, takewhile

from texpr.grammar.ast import Accumulate, Atomic, Bind, If, Kernel, New, Par, Read, Role, Seq
from texpr.grammar.core import buffers_of, children, statements
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import names
from texpr.grammar.index.linear import difference
from texpr.grammar.records import dataclass
from texpr.grammar.walk import walk
from texpr.polyhedral.moves import Contract, Distribute, Fuse, Interchange, Move, Parallelize, Swap, View
from texpr.polyhedral.program import Program, ProvedProgram
from texpr.polyhedral.schedule.apply import moved
from texpr.polyhedral.schedule.draft import Draft
from texpr.polyhedral.schedule.factors import factors
from texpr.polyhedral.schedule.flat_factors import has_flat_factors
from texpr.polyhedral.schedule.tree import Block, Loop, label_of
from texpr.polyhedral.schedule.view import can_be_seen
from texpr.polyhedral.walk import adjacent, contains_par, subscript_names

Moves = tuple[Move, ...]  # made together, or not at all
MAX_TRIES = 48  # moves that are tried for one schedule
LEAST_TRIES = 4  # fewer are not worth it
MAX_MODELLED = 300  # statements that are modelled for one schedule, all its tries together
SHARE = 10  # all schedules take at most one part in so many of the steps that are left


def propose(proved: ProvedProgram) -> tuple[Draft, ...]:
    """Schedules beside the program as it is, each of legal moves, the boldest first."""
    kernel = proved.program.kernel
    seen = has_flat_factors(kernel)
    loops = any(True for _ in chain(_wanted(kernel), _without_order(kernel)))
    if not loops and not seen and not any(factors(kernel)):
        return ()
    with proved.program.work.share(SHARE):
        start = _seen(Draft(program=proved.program), seen)
        found = [start]
        if loops:
            bold = _Proposal(start)
            found = [bold.made(), *(milder.made() for milder in _milder(bold)), start]
        found = [*map(_computed, found), *found]
    unlike: dict[Moves, Draft] = {draft.moves: draft for draft in reversed(found) if draft.moves}
    return tuple(reversed(unlike.values()))


def _seen(draft: Draft, wanted: bool) -> Draft:
    """The draft with views of all flat parameters that can have one."""
    for buffer in draft.program.kernel.params if wanted else ():
        if can_be_seen(draft.program, buffer):
            with suppress(TExprError):  # it is not made of whole rows
                draft = draft.then(View(buffer=buffer.name))
    return draft


def _computed(draft: Draft) -> Draft:
    """The draft with factors of its products as arrays of their own, where they can be."""
    for moves in list(factors(draft.program.kernel)):
        with suppress(TExprError):  # one is made of what the band itself makes
            draft = reduce(Draft.then, moves, draft)
    return draft


def _milder(bold: "_Proposal") -> Iterator["_Proposal"]:
    """What leaves out some of the boldest schedule's moves, which it is until the first of these."""
    for step in bold.past:
        if step.strange:
            yield _Proposal(step.before, apart=False)
            break
    for step in bold.past:
        if any(isinstance(m, Contract) and bold.kernel.buffer(m.buffer).shape for m in step.moves):
            yield _Proposal(step.before, arrays=False)
            break
    if any(isinstance(move, Parallelize) for move in bold.draft.moves):
        yield _Proposal(bold.past[0].before, parallel=False)
    turned = any(isinstance(move, Interchange) for move in bold.draft.moves)
    for step in bold.past:
        if turned and any(isinstance(move, Fuse) for move in step.moves):
            yield _Proposal(step.before, fusing=False)
            break


@dataclass(frozen=True, slots=True)
class _Step:
    """Moves that were made, the schedule before them, and whether they fused bands without a common workspace."""

    before: Draft
    moves: Moves
    strange: bool


class _Proposal:
    """One schedule in the making, which goes on from a draft while steps of isl are left. `apart`: bands without a
    common workspace are fused, too; `arrays`: workspaces become arrays of an iteration, too; `fusing`: bands are fused
    at all; `parallel`: loops that need no order become bands."""

    def __init__(
        self, start: Draft, *, apart: bool = True, arrays: bool = True, fusing: bool = True, parallel: bool = True
    ) -> None:
        self.draft = start
        self.apart, self.arrays, self.fusing, self.parallel = apart, arrays, fusing, parallel
        self.past: list[_Step] = []
        self.refused: set[Moves] = set()
        tries = min(MAX_TRIES, MAX_MODELLED // max(1, len(start.program.statements)))
        self.tries = tries if tries >= LEAST_TRIES else 0

    @property
    def kernel(self) -> Kernel:
        return self.draft.program.kernel

    def made(self) -> Draft:
        """The schedule, when nothing more can be done, or enough was tried."""
        while self._open() and any(self._try(moves) for moves in takewhile(self._open, self._next())):
            pass
        return self.draft

    def _open(self, _: Moves = ()) -> bool:
        """Whether more may be tried."""
        return self.tries > 0 and not self.draft.program.work.exhausted

    def _try(self, moves: Moves) -> bool:
        """Makes some moves, where they are legal; none that were refused before are tried again."""
        if moves in self.refused:
            return False
        draft, strange = self.draft, False
        for move in moves:
            self.tries -= 1
            strange |= isinstance(move, Fuse) and not _connected(draft.program.kernel, move)
            try:
                found = draft.tried(move)
            except TExprError:  # it does not fit, or takes too many steps
                found = None
            if not isinstance(found, Draft):
                self.refused.add(moves)
                return False
            draft = found
        self.past.append(_Step(self.draft, moves, strange))
        self.draft = draft
        return True

    def _next(self) -> Iterator[Moves]:
        """What could be done now, what makes the most of it first."""
        if self.parallel:
            yield from _without_order(self.kernel)
        for moves in _wanted(self.kernel):
            if all(self.fusing and self._may(move) for move in moves if isinstance(move, Fuse)):
                yield moves
        yield from _inside(self.kernel, {m.first for m in self.draft.moves if isinstance(m, Fuse)})
        yield from _turned_on(self.kernel, {m.outer for m in self.draft.moves if isinstance(m, Interchange)})
        yield from self._contracted()

    def _may(self, move: Fuse) -> bool:
        return self.apart or _connected(self.kernel, move)

    def _contracted(self) -> Iterator[Moves]:
        """Workspaces of one band, at the innermost loop that has all their uses, or further out."""
        for block in host_blocks(self.kernel):
            for name in [stmt.buffer for stmt in block if isinstance(stmt, New)]:
                for loop in reversed(_loops_of(block, name)):
                    move = Contract(buffer=name, loop=loop.index)
                    if self.arrays or _becomes_scalar(self.draft.program, move):
                        yield (move,)


def _connected(kernel: Kernel, move: Fuse) -> bool:
    """Whether the two loops use a workspace together."""
    locals = {b.name for b in kernel.buffers if b.role is Role.LOCAL}
    loops = {loop.index: loop for loop in _loops(kernel)}
    return bool(buffers_of(loops[move.first]) & buffers_of(loops[move.second]) & locals)


def host_blocks(kernel: Kernel) -> Iterator[Block]:
    """The blocks outside all `par`s that have one inside, outermost first."""
    work = [kernel.body]
    while work:
        block = work.pop()
        yield block
        for stmt in block:
            match stmt:
                case Seq(body=body) if contains_par(body):
                    work.append(body)
                case If(then=then, orelse=orelse) if contains_par((stmt,)):
                    work += [then, orelse]


def _wanted(kernel: Kernel) -> Iterator[Moves]:
    """Bands of one extent that follow one another, and loops of the host around one band."""
    for block in host_blocks(kernel):
        yield from _side_by_side(block)
        yield from _turned_to_fit(block)
        for stmt in block:
            if isinstance(stmt, Seq) and _holds_one_par(stmt):
                yield (Interchange(outer=stmt.index),)
            if isinstance(stmt, Seq):
                yield from _apart(stmt)
        yield from _brought_together(block)


def _without_order(kernel: Kernel) -> Iterator[Moves]:
    """Loops outside all bands, or alone in one, that may need no order: they write other elements in each turn."""
    found = [stmt for block in host_blocks(kernel) for stmt in block]
    found += [par.body[0] for par in statements(kernel.body) if isinstance(par, Par) and len(par.body) == 1]
    for stmt in found:
        if isinstance(stmt, Seq) and not stmt.attrs and _writes_apart(stmt):
            yield (Parallelize(loop=stmt.index),)


def _writes_apart(loop: Seq) -> bool:
    inside = {stmt.buffer for stmt in statements(loop.body) if isinstance(stmt, New)}
    writes = [stmt for stmt in statements(loop.body) if isinstance(stmt, Bind | Accumulate | Atomic)]
    return all(w.buffer in inside or loop.index in subscript_names(w.subscripts) for w in writes)


def _apart(loop: Seq) -> Iterator[Moves]:
    """A loop of the host around several bands: the first one with a loop of its own, which is turned inside it."""
    inner = [stmt for stmt in loop.body if not isinstance(stmt, New)]
    if len(inner) < 2 or not isinstance(inner[0], Par) or not isinstance(inner[1], Par):
        return
    if _holds_one_par(replace(loop, body=(inner[0],))):
        yield Distribute(loop=loop.index, before=inner[1].index), Interchange(outer=loop.index)


def _brought_together(block: Block) -> Iterator[Moves]:
    """Bands of common buffers with one statement between them, which may as well stand before or behind both."""
    found = [stmt for stmt in block if not isinstance(stmt, New)]
    for first, between, second in zip(found, found[1:], found[2:], strict=False):
        label = label_of(between)
        if isinstance(first, Par) and isinstance(second, Par) and label and buffers_of(first) & buffers_of(second):
            for fusions in _side_by_side((first, second)):
                yield Swap(first=first.index, second=label), *fusions
                yield Swap(first=label, second=second.index), *fusions


def _inside(kernel: Kernel, fused: set[str]) -> Iterator[Moves]:
    """What came to stand side by side in fused loops."""
    for loop in _loops(kernel):
        if loop.index in fused:
            yield from _side_by_side(loop.body)


def _turned_on(kernel: Kernel, turned: set[str]) -> Iterator[Moves]:
    """Loops that were turned inside one `par` and stand around another."""
    for loop in _loops(kernel):
        if isinstance(loop, Seq) and loop.index in turned and _holds_one_par(loop):
            yield (Interchange(outer=loop.index),)


def _loops(kernel: Kernel) -> list[Loop]:
    return [stmt for stmt in statements(kernel.body) if isinstance(stmt, Par | Seq)]


def _side_by_side(block: Block) -> Iterator[Moves]:
    """Fusions of `par`s of one extent; where one of them is a product, whose blocks share what they read, all of its
    loops or none."""
    for first, second in pairwise(stmt for stmt in block if not isinstance(stmt, New)):
        if isinstance(first, Par) and isinstance(second, Par):
            nests = adjacent(first), adjacent(second)
            alike = list(takewhile(_fits, zip(*nests, strict=False)))
            products = [len(nest) for nest in nests if _is_product(nest)]
            if alike and not products:
                yield (_fusion(*alike[0]),)
            elif alike and set(products) == {len(alike)} and len(nests[0]) == len(nests[1]):
                yield tuple(_fusion(*pair) for pair in alike)


def _turned_to_fit(block: Block) -> Iterator[Moves]:
    """Fusions of a band that one loop makes with one that follows it and has a loop like it further in, where the first
    writes what the second reads there: mean[c] of all b, then par B b, C c { … mean[c] … }."""
    for first, second in pairwise(stmt for stmt in block if not isinstance(stmt, New)):
        if isinstance(first, Par) and isinstance(second, Par) and len(adjacent(first)) == 1:
            nest = adjacent(second)
            depth = next((d for d, par in enumerate(nest) if d and _fits((first, par)) and _hands_on(first, par)), 0)
            if depth and not any(par.attrs for par in nest[:depth]):
                turns = tuple(Interchange(outer=par.index) for par in reversed(nest[:depth]))
                yield *turns, _fusion(first, nest[depth])


def _hands_on(first: Par, second: Par) -> bool:
    """Whether one loop binds an element for each iteration that another one of its kind reads."""
    bound = {
        s.buffer for s in statements(first.body) if isinstance(s, Bind) and first.index in subscript_names(s.subscripts)
    }
    reads = (node for stmt in statements(second.body) for node in walk(stmt) if isinstance(node, Read))
    return any(node.buffer in bound and subscript_names(node.subscripts) == {second.index} for node in reads)


def _fits(pair: tuple[Par, Par]) -> bool:
    first, second = pair
    return not first.attrs and not second.attrs and difference(first.extent, second.extent) == 0


def _fusion(first: Par, second: Par) -> Fuse:
    return Fuse(first=first.index, second=second.index)


def _is_product(nest: tuple[Par, ...]) -> bool:
    """Whether its loops read again and again what does not depend on one of the nest's indices, as a product does."""
    own = {par.index for par in nest}
    loops = (stmt for stmt in statements(nest[-1].body) if isinstance(stmt, Seq))
    reads = (node for loop in loops for node in walk(loop) if isinstance(node, Read) and node.subscripts)
    return len(nest) > 1 and any(not own <= subscript_names(read.subscripts) for read in reads)


def _holds_one_par(loop: Loop) -> bool:
    """Whether a loop holds one band, which has the same iterations in each of its turns."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, Par):
        return False
    return not inner.attrs and loop.index not in names(inner.extent)


def _loops_of(block: Block, name: str) -> list[Loop]:
    """The loops that hold all uses of a buffer, from the outermost `par` inwards."""
    found: list[Loop] = []
    while True:
        using = [stmt for stmt in block if name in buffers_of(stmt)]
        if len(using) != 1 or not isinstance(using[0], Par | Seq | If):
            return found
        if isinstance(using[0], Par) or (found and isinstance(using[0], Seq)):
            found.append(using[0])
        block = children(using[0])


def _becomes_scalar(program: Program, move: Contract) -> bool:
    try:
        return not moved(program, move).kernel.buffer(move.buffer).shape
    except TExprError:
        return False
