"""Launches for a CPU: cores over the outer parallel dimensions, loops inside, the contiguous one innermost.

    par M i, N j { C[i, j] = 0 ; seq K k { C[i, j] += A[i, k] * B[k, j] } }

    core i:  for j (vector): C[i, j] = 0
             for k: for j (vector): C[i, j] += A[i, k] * B[k, j]

Iterations of a par are independent, so its loop may be moved inward over a `seq` and distributed over statements; that
is done where no local lives in its body and its index is the contiguous one of most accesses. A dimension over which
iterations update one element is no core dimension: its loop runs in order on one core, without atomics. Only where
that leaves no core dimension, and all iterations update the same element, is the outermost one on cores after all.
"""

from dataclasses import replace
from functools import partial

from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Atomic,
    Bind,
    Gather,
    If,
    IndexExpr,
    IndexVar,
    Intrinsic,
    New,
    Par,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.index.expr import ONE, add, const, minimum, names, row_major, subtract
from texpr.grammar.index.value import index_value
from texpr.polyhedral.map.bands import Nest, bounded_nest, has_loop, nest_of
from texpr.polyhedral.map.conflicts import shared_updates
from texpr.polyhedral.map.digits import core_digits, power_of_two
from texpr.polyhedral.map.launches import padding_guard
from texpr.polyhedral.map.objective import WeightedAccess
from texpr.polyhedral.map.placement import place_locals
from texpr.polyhedral.map.rows import Piece, carried_rows, long_rows, tiles
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.session import Session
from texpr.polyhedral.map.uses import local_uses
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.places import Digit, Place
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Loop, Node
from texpr.polyhedral.walk import walk

LIGHT_CHUNK = 1024  # the most iterations of the only core dimension that a core runs at a time
HEAVY_CHUNK = 256  # the same where each iteration has loops
MIN_CHUNK = 16
MIN_CHUNKS = 64  # chunks that keep many cores busy
CPU_TASKS = 64  # parts of a parallel launch, each on one thread


class CoreBuilder:
    """Builds one launch of a band for a CPU."""

    def __init__(self, session: Session, host: tuple[str, ...]) -> None:
        self.session = session
        self.host = host

    def band(self, par: Par, name: str) -> Launch:
        """The launch of an outermost band: one thread for every iteration of the core digits."""
        session = self.session
        nest, ranges = bounded_nest(nest_of(par))
        cores = self._core_dims(nest)
        vector = self._vector_dim(nest)
        if vector in cores and len(cores) > 1:
            cores = tuple(d for d in cores if d != vector)
        chunked = cores == (vector,)
        on_core = [nest.pars[d] for d in cores]
        indices = tuple(p.index for p in on_core)
        extents = [add(ranges[p.index][1], ONE) for p in on_core]
        chunk = self._chunk_size(nest, extents[0]) if chunked else 1
        digits, total = core_digits(indices, extents, [chunk] * len(cores), session.names)
        uses, known = local_uses(session.kernel, nest.body, block_level=False, outer=indices, ranges=ranges)
        session.buffers.update(place_locals(uses, known, session.target, session.host_ranges))
        self.worker = Body(session, self.host, hardware=indices)
        outer = [p for d, p in enumerate(nest.pars) if d not in cores and d != vector]
        body: tuple[Node, ...]
        start: list[Node] = []
        if vector is None:
            body = self.worker.nodes(nest.body)
        elif chunked:
            piece = self._piece(on_core[0], digits, chunk)
            digits = (*digits, piece.digit)
            start.append(piece.start)
            body = self._pushed(on_core[0], nest.body, piece)
        else:
            body = self._pushed(nest.pars[vector], nest.body, None)
        for p in reversed(outer):
            body = (self.worker.loop(p, body),)
        if not chunked:
            own = {d.index: d for d in digits}
            start += (Define(index=i, digits=(own[i],) if i in own else ()) for i in indices)
            guard = padding_guard(Nest(pars=tuple(on_core), body=()), dict.fromkeys(indices, 1), ranges)
            if guard is not None:
                body = (Guard(condition=guard, body=body, padding=True, span=par.span),)
        return Launch(name=name, grid=(total, ONE, ONE), threads=1, digits=digits, body=(*start, *body), span=par.span)

    def _chunk_size(self, nest: Nest, extent: IndexExpr) -> int:
        """Iterations of the only core dimension that one core runs at a time: enough chunks for many cores."""
        most = HEAVY_CHUNK if has_loop(nest.body) else LIGHT_CHUNK
        if any(isinstance(s, Accumulate) and s.id in self.session.long for s in nest.body):
            return most  # one partial for each chunk
        return max(MIN_CHUNK, min(most, power_of_two(self.session.representative(extent, {}) // MIN_CHUNKS)))

    def _core_dims(self, nest: Nest) -> tuple[int, ...]:
        """The dimensions over which no two iterations update one element; an extent that depends on a dimension that
        is no core dimension keeps its own off the cores too."""
        updates = [s for s in walk(nest.body) if isinstance(s, Accumulate | Atomic)]
        program = self.session.proved.program
        found: list[int] = []
        for number, par in enumerate(nest.pars):
            outer = {p.index for d, p in enumerate(nest.pars[:number]) if d not in found}
            if names(par.extent) & outer:
                continue
            if not any(shared_updates(program, u.id, (par.index,)) for u in updates):
                found.append(number)
        if not found and updates and all(self._is_total(update, nest) for update in updates):
            return (0,)
        return tuple(found)

    def _is_total(self, update: Accumulate | Atomic, nest: Nest) -> bool:
        """Whether all iterations update one element, in the type that it is stored in: every core then carries its
        own part, and one atomic update adds it. A narrower element would be rounded once for every part."""
        indices = {par.index for par in nest.pars}
        fixed = all(not isinstance(s, Gather) and not names(s) & indices for s in update.subscripts)
        stored = self.session.kernel.buffer(update.buffer).dtype
        own = update.value.dtype == stored or update.id in self.session.long
        return fixed and own and stored.bits >= 32

    def _vector_dim(self, nest: Nest) -> int | None:
        """The dimension whose steps are contiguous in most accesses, None where none is, or a later extent needs it.

        The elements of accumulations do not count, for a register carries them where the dimension is outside.
        """
        best: tuple[int, int] | None = None
        accesses = [a for a in self.session.accesses(nest.body, {}) if not a.update]
        for number, par in enumerate(nest.pars):
            if any(par.index in names(p.extent) for p in nest.pars[number + 1 :]):
                continue
            unit = sum(a.weight for a in accesses if self._step(a, par.index) == 1)
            far = sum(a.weight for a in accesses if self._step(a, par.index) not in (0, 1))
            if unit > far and (best is None or unit - far >= best[0]):
                best = (unit - far, number)
        return None if best is None else best[1]

    def _step(self, access: WeightedAccess, index: str) -> int | None:
        """Elements between neighbouring iterations of the index; None for a gather."""
        buffer = access.buffer
        strides = buffer.strides if buffer.strides is not None else row_major(buffer.shape)
        step = 0
        for subscript, stride in zip(access.subscripts, strides, strict=True):
            if isinstance(subscript, Gather):
                return None
            at = dict.fromkeys(names(subscript), 0) | dict(self.session.sizes)
            here, after = (int(index_value(subscript, at | {index: turn})) for turn in (0, 1))
            step += (after - here) * int(index_value(stride, at))
        return step

    def _piece(self, par: Par, cores: tuple[Digit, ...], chunk: int) -> Piece:
        """The chunk of consecutive iterations that one core runs."""
        fresh = self.session.names.fresh
        name, first = fresh(f"{par.index}_vector"), fresh(f"{par.index}_first")
        return Piece(
            digit=Digit(name=name, index=par.index, weight=1, radix=const(chunk), stride=ONE, place=Place.VECTOR),
            start=Define(index=first, digits=cores),
            define=Define(index=par.index, digits=cores),
            extent=minimum(const(chunk), subtract(par.extent, IndexVar(name=first))),
        )

    def _pushed(self, par: Par, stmts: tuple[Stmt, ...], piece: Piece | None) -> tuple[Node, ...]:
        """The par's loop moved inward over statements, as deep as no extent, condition or local hinders it."""
        if any(isinstance(s, New | Intrinsic) for s in walk(stmts)):
            return (self._vector_loop(par, stmts, piece),)
        found: list[Node] = []
        leaves: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, Bind | Accumulate | Atomic | Anchor):
                leaves.append(stmt)
                continue
            if leaves:
                found.append(self._vector_loop(par, tuple(leaves), piece))
                leaves = []
            match stmt:
                case Seq(extent=extent) if par.index not in names(extent) and (
                    rows := long_rows(self.session, par, stmt)
                ):
                    found += self._rows(par, stmt, rows, piece)
                case Seq(extent=extent) | Par(extent=extent) if par.index not in names(extent):
                    found.append(self.worker.loop(stmt, self._pushed(par, stmt.body, piece)))
                case If(condition=condition) if not isinstance(condition, Read) and (par.index not in names(condition)):
                    then, orelse = self._pushed(par, stmt.then, piece), self._pushed(par, stmt.orelse, piece)
                    found.append(Guard(condition=condition, body=then, orelse=orelse, span=stmt.span))
                case _:
                    found.append(self._vector_loop(par, (stmt,), piece))
        if leaves:
            found.append(self._vector_loop(par, tuple(leaves), piece))
        return tuple(found)

    def _rows(self, par: Par, seq: Seq, updates: tuple[Accumulate, ...], piece: Piece | None) -> tuple[Node, ...]:
        """A `seq` with long sums of rows, over the core's chunk of the par or over tiles of it."""
        if piece is None:
            tile, piece = tiles(self.session, par)
            body = (piece.start, *self._rows(par, seq, updates, piece))
            return (Loop(index=tile.name, extent=tile.radix, body=body, digit=tile, span=par.span),)
        loop = self.worker.loop(seq, self._pushed(par, seq.body, piece))
        return carried_rows(self.session, seq, updates, loop, piece, partial(self._over, par, piece))

    def _over(self, par: Par, piece: Piece, statement: Generic) -> Loop:
        """A statement at each index of a piece."""
        define = replace(piece.define, digits=(*piece.define.digits, piece.digit))
        body = (define, statement)
        return Loop(
            index=piece.digit.name, extent=piece.extent, body=body, digit=piece.digit, vector=True, span=par.span
        )

    def _vector_loop(self, par: Par, stmts: tuple[Stmt, ...], piece: Piece | None) -> Loop:
        """The par's loop around statements, over all of it or over a core's chunk."""
        loop = self.worker.loop(par, self.worker.nodes(stmts))
        independent = not any(
            isinstance(s, Accumulate | Atomic) and shared_updates(self.session.proved.program, s.id, (par.index,))
            for s in walk(stmts)
        )
        vector = independent and not has_loop(stmts)
        if piece is None:
            return replace(loop, vector=vector)
        define = replace(piece.define, digits=(*piece.define.digits, piece.digit))
        return Loop(
            index=piece.digit.name,
            extent=piece.extent,
            body=(define, *loop.body),
            digit=piece.digit,
            unroll=loop.unroll,
            vector=vector,
            span=par.span,
        )
