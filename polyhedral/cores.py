"""Launches for a CPU: cores over the outer parallel dimensions, loops inside, the contiguous one innermost.

    par M i, N j { C[i, j] = 0 ; seq K k { C[i, j] += A[i, k] * B[k, j] } }

    core i:  for j (vector): C[i, j] = 0
             for k: for j (vector): C[i, j] += A[i, k] * B[k, j]

Iterations of a par are independent, so its loop may be moved inward over a `seq` and distributed over statements; that
is done where no local lives in its body and its index is the contiguous one of most accesses. A dimension over which
iterations update one element is no core dimension: its loop runs in order on one core, without atomics.
"""

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
from texpr.polyhedral.bands import Nest, bounded_nest, has_loop, nest_of
from texpr.polyhedral.conflicts import shared_updates
from texpr.polyhedral.digits import core_digits
from texpr.polyhedral.indices import ONE, add, condition_names, const, evaluate, minimum, names, sub
from texpr.polyhedral.launches import padding_guard
from texpr.polyhedral.mapping import Define, Digit, Guard, Loop, MappedLaunch, Node, Place
from texpr.polyhedral.objective import WeightedAccess, dense_strides
from texpr.polyhedral.placement import place_locals
from texpr.polyhedral.serial import Body
from texpr.polyhedral.session import Session
from texpr.polyhedral.uses import local_uses
from texpr.polyhedral.walk import walk

CHUNK = 1024  # iterations of a light one-dimensional par that one core runs at a time


class CoreBuilder:
    """Builds one launch of a band for a CPU."""

    def __init__(self, session: Session, host: tuple[str, ...]) -> None:
        self.session = session
        self.host = host

    def band(self, par: Par, name: str) -> MappedLaunch:
        """The launch of an outermost band: one thread for every iteration of the core dimensions."""
        nest, ranges = bounded_nest(nest_of(par))
        cores = self._core_dims(nest)
        vector = self._vector_dim(nest, cores)
        chunked = vector is not None and cores == (vector,) and not has_loop(nest.body)
        if vector is not None and not chunked:
            cores = tuple(d for d in cores if d != vector) if len(cores) > 1 else cores
        on_core = [nest.pars[d] for d in cores]
        extents = [add(ranges[p.index][1], ONE) for p in on_core]
        covered = [CHUNK if chunked else 1 for _ in on_core]
        digits, total = core_digits([p.index for p in on_core], extents, covered, self.session.names)
        indices = tuple(p.index for p in on_core)
        uses, known = local_uses(self.session.kernel, nest.body, block_level=False, outer=indices, ranges=ranges)
        self.session.buffers.update(place_locals(uses, known, self.session.target))
        self.worker = Body(self.session, self.host, hardware=indices)
        digit = {d.index: d for d in digits}
        body: tuple[Node, ...]
        if chunked:
            chunk, body = self._chunk(on_core[0], extents[0], digit.get(indices[0]), self.worker.nodes(nest.body))
            digits = (*digits, chunk)
        else:
            inner = [nest.pars[d] for d in range(len(nest.pars)) if d not in cores]
            body = self._inside(inner, vector is not None and vector not in cores, nest, vector)
            guard = padding_guard(Nest(pars=tuple(on_core), body=()), dict.fromkeys(indices, 1), ranges)
            if guard is not None:
                body = (Guard(condition=guard, body=body, padding=True, span=par.span),)
            body = (*(Define(index=i, digits=(digit[i],) if i in digit else ()) for i in indices), *body)
        return MappedLaunch(name=name, grid=(total, ONE, ONE), threads=1, digits=digits, body=body, span=par.span)

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
        return tuple(found)

    def _vector_dim(self, nest: Nest, cores: tuple[int, ...]) -> int | None:
        """The dimension whose steps are contiguous in most accesses, None where none is, or a later extent needs it."""
        best: tuple[int, int] | None = None
        accesses = self.session.accesses(nest.body, {})
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
        strides = buffer.strides if buffer.strides is not None else dense_strides(buffer.shape)
        step = 0
        for subscript, stride in zip(access.subscripts, strides, strict=True):
            if isinstance(subscript, Gather):
                return None
            at = dict.fromkeys(names(subscript), 0) | dict(self.session.sizes)
            width = evaluate(stride, at | dict(self.session.sizes))
            step += (evaluate(subscript, at | {index: 1}) - evaluate(subscript, at | {index: 0})) * width
        return int(step)

    def _chunk(
        self, par: Par, extent: IndexExpr, core: Digit | None, body: tuple[Node, ...]
    ) -> tuple[Digit, tuple[Node, ...]]:
        """A light one-dimensional par: every core runs a chunk of consecutive iterations."""
        fresh = self.session.names.fresh
        inner = Digit(
            name=fresh(f"{par.index}_vector"),
            index=par.index,
            weight=1,
            radix=const(CHUNK),
            stride=ONE,
            place=Place.VECTOR,
        )
        first = fresh(f"{par.index}_first")
        start: tuple[Node, ...] = (Define(index=first, digits=(core,) if core else ()),)
        left = minimum(const(CHUNK), sub(extent, IndexVar(name=first)))
        define = Define(index=par.index, digits=(*((core,) if core else ()), inner))
        loop = Loop(index=inner.name, extent=left, body=(define, *body), digit=inner, vector=True, span=par.span)
        return inner, (*start, loop)

    def _inside(self, inner: list[Par], vector: bool, nest: Nest, number: int | None) -> tuple[Node, ...]:
        """Loops of the dimensions that are not on cores, the contiguous one as far inside as it may go."""
        if number is None or not vector:
            nodes = self.worker.nodes(nest.body)
            for par in reversed(inner):
                nodes = (self.worker.loop(par, nodes),)
            return nodes
        contiguous = nest.pars[number]
        nodes = self._pushed(contiguous, nest.body)
        for par in reversed([p for p in inner if p is not contiguous]):
            nodes = (self.worker.loop(par, nodes),)
        return nodes

    def _pushed(self, par: Par, stmts: tuple[Stmt, ...]) -> tuple[Node, ...]:
        """The par's loop moved inward over statements, as deep as no extent, condition or local hinders it."""
        if any(isinstance(s, New | Intrinsic) for s in walk(stmts)):
            return (self._vector_loop(par, stmts),)
        found: list[Node] = []
        leaves: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, Bind | Accumulate | Atomic | Anchor):
                leaves.append(stmt)
                continue
            if leaves:
                found.append(self._vector_loop(par, tuple(leaves)))
                leaves = []
            match stmt:
                case Seq(extent=extent) | Par(extent=extent) if par.index not in names(extent):
                    found.append(self.worker.loop(stmt, self._pushed(par, stmt.body)))
                case If(condition=condition) if not isinstance(condition, Read) and (
                    par.index not in condition_names(condition)
                ):
                    then, orelse = self._pushed(par, stmt.then), self._pushed(par, stmt.orelse)
                    found.append(Guard(condition=condition, body=then, orelse=orelse, span=stmt.span))
                case _:
                    found.append(self._vector_loop(par, (stmt,)))
        if leaves:
            found.append(self._vector_loop(par, tuple(leaves)))
        return tuple(found)

    def _vector_loop(self, par: Par, stmts: tuple[Stmt, ...]) -> Loop:
        loop = self.worker.loop(par, self.worker.nodes(stmts))
        light = not has_loop(stmts) and not any(
            isinstance(s, Accumulate | Atomic) and shared_updates(self.session.proved.program, s.id, (par.index,))
            for s in walk(stmts)
        )
        return Loop(
            index=loop.index,
            extent=loop.extent,
            body=loop.body,
            parallel=True,
            unroll=loop.unroll,
            vector=light,
            span=loop.span,
        )
