"""Launches for a CPU, as a candidate says: cores over some parallel indices, loops inside, one of them innermost.

    par M i, N j { C[i, j] = 0 ; seq K k { C[i, j] += A[i, k] * B[k, j] } }

    core i:  for j (vector): C[i, j] = 0
             for k: for j (vector): C[i, j] += A[i, k] * B[k, j]

Iterations of a par are independent, so its loop may be moved inward over a `seq` and distributed over statements; that
is done where no local lives in its body, and not over loops of a few turns. What is read along one index and written
along another runs in tiles of both, whose lines the nearest cache holds:

    par M i, N j { Y[j, i] = X[i, j] }

    core j / 32:  for i_tile: for j in 32: for i in 32 (vector): Y[j, i] = X[i, j]

Locals of an iteration can be rows of a piece of iterations, so that loops of an iteration stand around the vector:

    par N j { new t: f32 ; t = 0 ; seq M i { t += X[i, j] ; Y[i, j] = t } }

    core j / 256:  for j in 256 (vector): t[j] = 0
                   for i: for j in 256 (vector): { t[j] += X[i, j] ; Y[i, j] = t[j] }
"""

from dataclasses import replace
from functools import partial

from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Atomic,
    Bind,
    Compare,
    CompareOp,
    If,
    IndexVar,
    Intrinsic,
    New,
    Par,
    Read,
    Seq,
    Stmt,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ONE, add, names
from texpr.grammar.index.text import in_words
from texpr.polyhedral.layout.make import strided
from texpr.polyhedral.map.abreast import ABREAST
from texpr.polyhedral.map.bands import Nest, has_long_loop, has_loop
from texpr.polyhedral.map.choose_cores import PIECE, beside
from texpr.polyhedral.map.conflicts import shared_updates
from texpr.polyhedral.map.core_tiles import in_tiles
from texpr.polyhedral.map.digits import core_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.jammed import Jam
from texpr.polyhedral.map.launches import padding_guard, place_in
from texpr.polyhedral.map.once import kept_once
from texpr.polyhedral.map.problem import Region
from texpr.polyhedral.map.rows import Piece, carried_rows, over_piece, piece_of, summed_rows, tiles
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.mapped.on_cores import Cores
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node


def build_cores(draft: Draft, region: Region, choice: Cores) -> Launch:
    """The launch of an outermost band: one thread for every iteration of the core digits."""
    assert region.band is not None, "plain statements have no cores"
    nest, ranges = region.nest
    pars = {p.index: p for p in nest.pars}
    on_core = [pars[index] for index in choice.cores]
    extents = [add(ranges[index][1], ONE) for index in choice.cores]
    together = [choice.chunk or choice.jam.get(index) or choice.tile.get(index, 1) for index in choice.cores]
    digits, total = core_digits(choice.cores, extents, together, draft.names)
    place_in(draft, nest.body, choice.memory, block_level=False, outer=choice.cores, ranges=ranges)
    stmts, kept = kept_once(draft, nest.body, beside(choice)) if choice.once else (nest.body, ())
    locals_ = [s.buffer for s in stmts if isinstance(s, New)] if choice.local_rows else []
    level = _Core(draft, Body(draft, hardware=choice.cores), (*locals_, *kept) if choice.local_rows else ())
    body: tuple[Node, ...]
    start: list[Node] = []
    if choice.vector is None:
        body = level.worker.nodes(stmts)
    elif choice.chunk is not None:
        piece = piece_of(draft, on_core[0], digits, choice.chunk)
        digits = (*digits, piece.digit)
        start.append(piece.start)
        body = level.pieces(on_core[0], stmts, piece, abreast=choice.local_rows and choice.chunk <= ABREAST)
    elif choice.jam:
        (jammed,) = (par for par in on_core if par.index in choice.jam)
        groups = tuple(digit for digit in digits if digit.index == jammed.index)
        jam = Jam(draft=draft, worker=level.worker, par=jammed, own=groups, count=choice.jam)
        vector = pars[choice.vector]
        body = jam.body(stmts, vector, partial(level.pushed, vector, stmts, None))
    elif choice.tile:
        (second,) = (par for par in on_core if par.index in choice.tile)
        above = tuple(digit for digit in digits if digit.index == second.index)
        side = piece_of(draft, second, above, choice.tile[second.index])
        digits = (*digits, side.digit)
        start.append(side.start)
        vector = pars[choice.vector]
        tile, piece = tiles(draft, vector, choice.tile[choice.vector])
        innermost = level.vector_loop(vector, stmts, piece)
        body = (in_tiles(draft, nest, tile, (vector, piece), (second, side), innermost),)
    elif choice.local_rows:
        vector = pars[choice.vector]
        tile, piece = tiles(draft, vector, PIECE)
        inside = (piece.start, *level.pieces(vector, stmts, piece))
        body = (Loop(index=tile.name, extent=tile.radix, body=inside, digit=tile, span=vector.span),)
    else:
        body = level.pushed(pars[choice.vector], stmts, None)
    for par in reversed(nest.pars):
        if par.index not in (*choice.cores, choice.vector):
            body = (level.worker.loop(par, body),)
    if choice.chunk is None:
        own = {d.index: d for d in digits}
        grouped = {*choice.jam, *choice.tile}
        start += (Define(index=i, digits=(own[i],) if i in own else ()) for i in choice.cores if i not in grouped)
        guarded = tuple(par for par in on_core if par.index not in grouped)
        guard = padding_guard(Nest(pars=guarded, body=()), dict.fromkeys(choice.cores, 1), ranges)
        if guard is not None:
            body = (Guard(condition=guard, body=body, padding=True, span=region.band.span),)
    return Launch(
        name=region.name,
        grid=(total, ONE, ONE),
        threads=1,
        digits=digits,
        body=(*start, *body),
        span=region.band.span,
    )


class _Core:
    """The body of a core: the innermost loop moved inward, over locals that are `rows` too."""

    def __init__(self, draft: Draft, worker: Body, rows: tuple[str, ...]) -> None:
        self.draft, self.worker, self.rows = draft, worker, rows

    def pieces(self, par: Par, stmts: tuple[Stmt, ...], piece: Piece, *, abreast: bool = False) -> tuple[Node, ...]:
        """The par's loop over a piece moved inward, where they are to run `abreast` over whole ones alone; where locals
        are rows, they are of this piece."""
        length = piece.digit.radix
        for name in self.rows:
            buffer = self.draft.buffers[name]
            reason = f"one for each of {in_words(length)} neighbouring {par.index}"
            layout = strided((length, *buffer.shape), (ONE, *(length for _ in buffer.shape)))
            again = f"{buffer.reason}; {reason}" if buffer.shape else reason
            self.draft.buffers[name] = replace(buffer, layout=layout, expanded=(piece.digit.name,), reason=again)
        if not abreast:
            return self.pushed(par, stmts, piece)
        end = add(IndexVar(name=piece.start.index), length)
        fits = Compare(op=CompareOp.LE, left=end, right=par.extent)
        whole, rest = self.pushed(par, stmts, replace(piece, extent=length)), self.vector_loop(par, stmts, piece)
        return (Guard(condition=fits, body=whole, orelse=(rest,), span=par.span),)

    def pushed(self, par: Par, stmts: tuple[Stmt, ...], piece: Piece | None) -> tuple[Node, ...]:
        """The par's loop moved inward over statements, as deep as no extent, condition or local hinders it."""
        kept = Intrinsic if self.rows else New | Intrinsic
        if any(isinstance(s, kept) for s in statements(stmts)) or not has_long_loop(stmts):
            return (self.vector_loop(par, stmts, piece),)
        found: list[Node] = []
        leaves: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, Bind | Accumulate | Atomic | Anchor) or not has_long_loop((stmt,)):
                leaves.append(stmt)
                continue
            if leaves:
                found.append(self.vector_loop(par, tuple(leaves), piece))
                leaves = []
            match stmt:
                case New(buffer=buffer):
                    found.append(Fresh(buffer=buffer))
                case Seq(extent=extent) if par.index not in names(extent) and (
                    rows := summed_rows(self.draft, par, stmt)
                ):
                    found += self._rows(par, stmt, rows, piece)
                case Seq(extent=extent) | Par(extent=extent) if par.index not in names(extent):
                    found.append(self.worker.loop(stmt, self.pushed(par, stmt.body, piece)))
                case If(condition=condition) if not isinstance(condition, Read) and (par.index not in names(condition)):
                    then, orelse = self.pushed(par, stmt.then, piece), self.pushed(par, stmt.orelse, piece)
                    found.append(Guard(condition=condition, body=then, orelse=orelse, span=stmt.span))
                case _:
                    found.append(self.vector_loop(par, (stmt,), piece))
        if leaves:
            found.append(self.vector_loop(par, tuple(leaves), piece))
        return tuple(found)

    def _rows(self, par: Par, seq: Seq, updates: tuple[Accumulate, ...], piece: Piece | None) -> tuple[Node, ...]:
        """A `seq` with sums of rows, over the core's chunk of the par or over tiles of it."""
        if piece is None:
            tile, piece = tiles(self.draft, par)
            body = (piece.start, *self._rows(par, seq, updates, piece))
            return (Loop(index=tile.name, extent=tile.radix, body=body, digit=tile, span=par.span),)
        loop = self.worker.loop(seq, self.pushed(par, seq.body, piece))
        return carried_rows(self.draft, seq, updates, (loop,), piece, partial(self._over, par, piece))

    def _over(self, par: Par, piece: Piece, statement: Generic) -> Loop:
        """A statement at each index of a piece."""
        loop = Loop(index=par.index, extent=par.extent, body=(statement,), vector=True, span=par.span)
        return over_piece(loop, piece)

    def vector_loop(self, par: Par, stmts: tuple[Stmt, ...], piece: Piece | None) -> Loop:
        """The par's loop around statements, over all of it or over a core's chunk."""
        loop = self.worker.loop(par, self.worker.nodes(stmts))
        independent = not any(
            isinstance(s, Accumulate | Atomic) and shared_updates(self.draft.proved.program, s.id, (par.index,))
            for s in statements(stmts)
        )
        loop = replace(loop, vector=independent and not has_loop(stmts))
        if piece is None:
            return loop
        return replace(over_piece(loop, piece), unroll=loop.unroll or piece.extent == piece.digit.radix)
