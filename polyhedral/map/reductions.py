"""Reductions over the threads of a block: a `seq` at block level that only accumulates is split and combined.

    seq K k { v += e(k) }        v does not depend on k, no #ordered

    every thread:    p = 0 ; for k of this thread: p += e(k)
    all:             part[t] = p                                       barrier
    first warp:      part[r] = part[r] + part[r + 32] + …              barrier
    who updates v:   v += part[0] + … + part[31]

The update is made by every thread where v is its register, else by one. The order of the sums is fixed, so results do
not change from run to run. A band of rows whose elements lie along `k` is given blocks for its iterations, so that
lanes run along k: a matrix times a vector reads each row contiguously.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from texpr.grammar.ast import (
    Accumulate,
    Bind,
    Compare,
    CompareOp,
    Condition,
    Const,
    Expr,
    Gather,
    IndexBinary,
    IndexExpr,
    IndexOp,
    IndexVar,
    Leaf,
    New,
    Par,
    Read,
    Role,
    Seq,
    Stmt,
)
from texpr.grammar.index.expr import ONE, ZERO, add, at_least_zero, ceildiv, const, constant_value, multiply, names
from texpr.grammar.index.interval import Ranges, most
from texpr.grammar.numerics import identity
from texpr.grammar.source import Span
from texpr.grammar.types import F32, F64, DType
from texpr.polyhedral.map.bands import Nest, block_statements
from texpr.polyhedral.map.digits import Names, ThreadDigits, share, thread_digits
from texpr.polyhedral.map.lanes import choose_lanes
from texpr.polyhedral.map.long_sums import CHAIN, as_type, narrow, size_ranges
from texpr.polyhedral.map.objective import cost, lane_values
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.map.session import Session
from texpr.polyhedral.mapped.operators import Generic, Origin, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Free, MappedBuffer
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.walk import read_accesses, subscript_names

MIN_EXTENT = 64  # shorter reductions stay in one thread
REST = 8  # at most one part in so many of the accesses may be outside the reductions
GAIN = 4  # a band is given blocks where lanes along the reduction touch this many times fewer sectors


def splits(session: Session, seq: Seq, ranges: Ranges) -> bool:
    """Whether the threads of a block may and should share out the iterations."""
    if seq.has("ordered") or seq.has("unroll") or session.representative(seq.extent, ranges) < MIN_EXTENT:
        return False
    updates = [s for s in seq.body if isinstance(s, Accumulate)]
    targets = {u.buffer for u in updates}
    if not updates or len(targets) != len(updates) or not _computes_only(session, seq, targets):
        return False
    return all(
        not any(isinstance(s, Gather) for s in update.subscripts)
        and seq.index not in subscript_names(update.subscripts)
        and not any(read.buffer in targets for read in read_accesses(update))
        and not update.has("ordered")
        for update in updates
    )


def _computes_only(session: Session, seq: Seq, targets: set[str]) -> bool:
    """Whether what the body holds beside its updates are scalars that a thread computes for itself, in registers."""
    own = {s.buffer for s in seq.body if isinstance(s, New)}
    for stmt in seq.body:
        match stmt:
            case New(buffer=name):
                placed, buffer = session.buffers.get(name), session.kernel.buffer(name)
                elsewhere = buffer.memory not in (None, "reg") or (
                    placed is not None and placed.memory is not Memory.REG
                )
                if buffer.shape or elsewhere:
                    return False
            case Bind(buffer=name):
                if name not in own or any(read.buffer in targets for read in read_accesses(stmt)):
                    return False
            case Accumulate(buffer=name):
                if name in own:
                    return False
            case _:
                return False
    return True


def reductions(session: Session, stmts: tuple[Stmt, ...], ranges: Ranges) -> tuple[Seq, ...]:
    """The reductions among the statements that the threads of a block would share out."""
    return tuple(s for s in stmts if isinstance(s, Seq) and splits(session, s, ranges))


def prefers_blocks(session: Session, nest: Nest, sizes: list[int], threads: int, ranges: Ranges) -> bool:
    """Whether a band without inner pars does better with a block for each iteration: some row that no other iteration
    reads lies along a reduction, lanes along it touch far fewer sectors, and little else is left to one thread."""
    fixed = {**dict.fromkeys(ranges, 0), **session.sizes}
    warp = session.target.warp_size
    found = reductions(session, block_statements(nest.body), ranges)
    total = sum(a.weight for a in session.accesses(nest.body, ranges))
    shared_out = sum(a.weight for seq in found for a in session.accesses((seq,), ranges))
    if (total - shared_out) * REST > total:
        return False
    order, caps = choose_lanes(session, nest, sizes, threads, ranges)
    flat = thread_digits(nest.indices, share(sizes, order, caps, threads), Names(()), warp)
    apart = together = 0
    for seq in found:
        accesses = session.accesses(seq.body, ranges)
        every = {*nest.indices, seq.index}
        if not any(every <= subscript_names(a.subscripts) for a in accesses):
            return False
        along = thread_digits((seq.index,), ((0, warp),), Names(()), warp)
        apart += cost(accesses, lane_values(flat, nest.indices, warp), fixed)[0]
        together += cost(accesses, lane_values(along, (seq.index,), warp), fixed)[0]
    return bool(found) and together * GAIN <= apart


def reduced_dim(session: Session, nest: Nest, sizes: list[int], threads: int, ranges: Ranges) -> int | None:
    """The dimension of a band of accumulations over which the threads of a block may combine their updates, before
    one of them makes an atomic one: no element depends on it, and lanes along it are no worse than elsewhere.

    None for a band with anything else in it, or whose extents depend on one another: there an element that no
    iteration updates need not exist.
    """
    updates = [s for s in nest.body if isinstance(s, Accumulate)]
    rectangular = all(names(p.extent).isdisjoint(nest.indices) for p in nest.pars)
    if len(updates) != len(nest.body) or len({u.buffer for u in updates}) != len(updates) or not rectangular:
        return None
    if any(isinstance(s, Gather) for u in updates for s in u.subscripts):
        return None
    used = frozenset[str]().union(*(subscript_names(u.subscripts) for u in updates))
    accesses = [a for a in session.accesses(nest.body, ranges) if not a.update]
    fixed = {**dict.fromkeys(ranges, 0), **session.sizes}
    warp = session.target.warp_size

    def sectors(dim: int) -> int:
        along = thread_digits((nest.indices[dim],), ((0, warp),), Names(()), warp)
        return cost(accesses, lane_values(along, (nest.indices[dim],), warp), fixed)[0]

    free = [d for d, p in enumerate(nest.pars) if p.index not in used and sizes[d] >= MIN_EXTENT]
    best = min(free, key=lambda d: (sectors(d), -d), default=None)
    if best is None:
        return None
    order, _ = choose_lanes(session, nest, sizes, threads, ranges)
    return best if sectors(best) <= GAIN * sectors(order[0]) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The nodes of a reduction that is shared out, the digits that they use, and the shared bytes that they need."""

    nodes: tuple[Node, ...]
    digits: tuple[Digit, ...]


def shared_bytes(seq: Seq, threads: int) -> int:
    """Shared memory that the partial results need."""
    return sum(threads * u.value.dtype.size_bytes for u in seq.body if isinstance(u, Accumulate))


def split(session: Session, host: tuple[str, ...], seq: Seq, outer: tuple[str, ...], threads: int) -> Split:
    """The reduction over the block's threads; `outer` are the parallel indices of the block."""
    splitter = Splitter(session, host, outer, threads)
    extent = constant_value(seq.extent)
    inside = None
    if extent is None or extent % threads:
        inside = Compare(op=CompareOp.LT, left=IndexVar(name=seq.index), right=seq.extent)
    nodes = splitter.whole(seq, seq.body, (), ceildiv(at_least_zero(seq.extent), threads), inside)
    if extent is None or extent <= 0:
        some = Compare(op=CompareOp.GT, left=seq.extent, right=ZERO)
        nodes = (Guard(condition=some, body=nodes, uniform=Scope.BLOCK, span=seq.span),)
    return Split(nodes=nodes, digits=tuple(splitter.digits))


def _serial(digit: Digit, body: tuple[Node, ...], span: Span) -> Loop:
    return Loop(index=digit.name, extent=digit.radix, body=body, digit=digit, span=span)


class Splitter:
    def __init__(self, session: Session, host: tuple[str, ...], outer: tuple[str, ...], threads: int) -> None:
        self.session = session
        self.host = host
        self.outer = outer
        self.threads = threads
        self.digits: list[Digit] = []

    def whole(
        self,
        loop: Seq | Par,
        body: Sequence[Stmt],
        places: tuple[Digit, ...],
        rounds: IndexExpr,
        inside: Condition | None,
        around: Sequence[tuple[Define, Digit]] = (),
        stride: Digit | None = None,
    ) -> tuple[Node, ...]:
        """The body's updates over the loop's index, a sum of `places` (of blocks, and the serial `stride`), `rounds` of
        a serial digit and all threads; `around` has the indices that a serial digit of their own runs over, too, and
        `inside` cuts what is no iteration."""
        turns = most(rounds, size_ranges(self.session.kernel))
        if stride is None and not around and turns is not None and turns <= CHAIN:  # no thread's part is long
            body = [self._narrow(s) if isinstance(s, Accumulate) else s for s in body]
        updates = [s for s in body if isinstance(s, Accumulate)]
        partials = {u.id: self._local(f"{u.buffer}_part", u.value.dtype, ()) for u in updates}
        nodes: list[Node] = []
        for update in updates:
            name = partials[update.id]
            start = identity(update.op, update.value.dtype).item()
            nodes.append(Fresh(buffer=name))
            first = Const(value=start, dtype=update.value.dtype, span=update.span)
            nodes.append(self._made(update, "init", Origin.INIT, name, (), first, unused=Unused.REPLICATED))
        nodes += self._partial(loop, body, partials, places, rounds, inside, around, stride)
        for update in updates:
            nodes += self._combine(update, partials[update.id])
        return tuple(nodes)

    def _partial(
        self,
        loop: Seq | Par,
        body: Sequence[Stmt],
        partials: Mapping[str, str],
        places: tuple[Digit, ...],
        rounds: IndexExpr,
        inside: Condition | None,
        around: Sequence[tuple[Define, Digit]],
        stride: Digit | None,
    ) -> tuple[Node, ...]:
        """Every thread accumulates its iterations, T apart."""
        session, index = self.session, loop.index
        band, digits = self._band(index)
        worker = Body(session, self.host, hardware=(*self.outer, index), digits=digits)
        worker.band = ((index,), band)
        nodes: tuple[Node, ...] = worker.nodes(
            tuple(replace(s, buffer=partials[s.id], subscripts=()) if isinstance(s, Accumulate) else s for s in body)
        )
        if inside is not None:
            nodes = (Guard(condition=inside, body=nodes, padding=True, span=loop.span),)
        own: tuple[Digit, ...] = ()
        if rounds != ONE:
            name = session.names.fresh(f"{index}_serial")
            own = (Digit(name=name, index=index, weight=self.threads, radix=rounds, stride=ONE, place=Place.SERIAL),)
        nodes = (Define(index=index, digits=(*places, *own, *reversed(band.all))), *nodes)
        for digit in (*own, *(() if stride is None else (stride,))):
            nodes = (_serial(digit, nodes, loop.span),)
        for define, digit in around:
            nodes = (_serial(digit, (define, *nodes), loop.span),)
        self.digits += (*(digit for _, digit in around), *(() if stride is None else (stride,)), *own)
        return nodes

    def _narrow(self, update: Accumulate) -> Accumulate:
        return replace(update, value=narrow(update.value)) if update.id in self.session.long else update

    def _combine(self, update: Accumulate, partial: str) -> tuple[Node, ...]:
        """The partial results through shared memory to the element."""
        dtype = update.value.dtype
        warp = min(self.session.target.warp_size, self.threads)
        array = self._local(f"{update.buffer}_parts", dtype, (const(self.threads),))
        slot = self.session.names.fresh("slot")
        band, digits = self._band(slot)
        nodes: list[Node] = [
            Fresh(buffer=array),
            Define(index=slot, digits=tuple(reversed(band.all))),
            self._made(
                update, "part", Origin.COMBINE, array, (IndexVar(name=slot),), self._read(partial, (), update), digits
            ),
        ]
        if self.threads > warp:
            nodes += self._fold_warps(update, array, warp)
        target = self.session.buffers[update.buffer]
        unused = Unused.REPLICATED if target.memory is Memory.REG else Unused.ONCE
        total = self._local(f"{update.buffer}_total", dtype, ())
        nodes.append(Fresh(buffer=total))
        first = self._read(array, (ZERO,), update)
        nodes.append(self._made(update, "first", Origin.COMBINE, total, (), first, unused=unused))
        step = self.session.names.fresh("lane_slot")
        other = self._read(array, (add(IndexVar(name=step), ONE),), update)
        inner = self._made(update, "fold", Origin.COMBINE, total, (), other, unused=unused, accumulate=True)
        nodes.append(Loop(index=step, extent=const(warp - 1), body=(inner,), span=update.span))
        result: Expr = self._read(total, (), update)
        if update.id in self.session.long:
            result = as_type(result, F64 if target.dtype == F64 else F32)
        final = Body(self.session, self.host, hardware=self.outer, unused=unused).leaf(replace(update, value=result))
        nodes.append(replace(final, id=f"{update.id}_out", origin=Origin.COMBINE))
        return tuple(nodes)

    def _fold_warps(self, update: Accumulate, array: str, warp: int) -> tuple[Node, ...]:
        """The first warp adds the slots of the others to its own."""
        dtype = update.value.dtype
        row = self.session.names.fresh("column")
        band, digits = self._band(row)
        here = IndexVar(name=row)
        column = self._local(f"{update.buffer}_column", dtype, ())
        step = self.session.names.fresh("warp_slot")
        next_row = add(multiply(const(warp), IndexBinary(op=IndexOp.ADD, left=IndexVar(name=step), right=ONE)), here)
        inside: tuple[Node, ...] = (
            Fresh(buffer=column),
            self._made(update, "column", Origin.COMBINE, column, (), self._read(array, (here,), update), digits),
            Loop(
                index=step,
                extent=const(self.threads // warp - 1),
                body=(
                    self._made(
                        update,
                        "rows",
                        Origin.COMBINE,
                        column,
                        (),
                        self._read(array, (next_row,), update),
                        digits,
                        accumulate=True,
                    ),
                ),
                span=update.span,
            ),
            self._made(update, "warp", Origin.COMBINE, array, (here,), self._read(column, (), update), digits),
        )
        some = Compare(op=CompareOp.LT, left=here, right=const(warp))
        return (
            Define(index=row, digits=tuple(reversed(band.all))),
            Guard(condition=some, body=inside, padding=True, span=update.span),
        )

    def _band(self, index: str) -> tuple[ThreadDigits, tuple[str, ...]]:
        """Digits of an index that runs over all threads, and their names."""
        pieces = ((0, self.threads),)
        band = thread_digits((index,), pieces, self.session.names, self.session.target.warp_size)
        self.digits += band.all
        return band, tuple(d.name for d in band.all)

    def _local(self, wanted: str, dtype: DType, shape: tuple[IndexExpr, ...]) -> str:
        """A new buffer: an array in shared memory, or a thread's own scalar."""
        name = self.session.names.fresh(wanted)
        self.session.buffers[name] = MappedBuffer(
            name=name,
            dtype=dtype,
            shape=shape,
            memory=Memory.SHARED if shape else Memory.REG,
            scope=Scope.BLOCK if shape else Scope.THREAD,
            layout=Free(),
            role=Role.LOCAL,
            reason="partial results of a reduction over the threads of a block",
        )
        return name

    def _read(self, buffer: str, subscripts: tuple[IndexExpr, ...], update: Accumulate) -> Read:
        return Read(buffer=buffer, subscripts=subscripts, dtype=update.value.dtype, span=update.span)

    def _made(
        self,
        update: Accumulate,
        suffix: str,
        origin: Origin,
        buffer: str,
        subscripts: tuple[IndexExpr, ...],
        value: Expr,
        digits: tuple[str, ...] = (),
        *,
        unused: Unused | None = None,
        accumulate: bool = False,
    ) -> Generic:
        """A statement of the reduction's own: a bind, or an accumulation with the update's operator."""
        id, span = f"{update.id}_{suffix}", update.span
        leaf: Leaf
        if accumulate:
            leaf = Accumulate(id=id, op=update.op, buffer=buffer, subscripts=subscripts, value=value, span=span)
        else:
            leaf = Bind(id=id, buffer=buffer, subscripts=subscripts, value=value, span=span)
        return Generic(id=id, leaf=leaf, origin=origin, digits=digits, unused=unused)
