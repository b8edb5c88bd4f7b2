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
    IndexBinary,
    IndexExpr,
    IndexOp,
    IndexVar,
    Leaf,
    Par,
    Read,
    Role,
    Seq,
    Stmt,
)
from texpr.grammar.index.expr import ONE, ZERO, add, at_least_zero, ceildiv, const, constant_value, multiply
from texpr.grammar.index.interval import most
from texpr.grammar.numerics import identity
from texpr.grammar.source import Span
from texpr.grammar.types import F32, F64, DType
from texpr.polyhedral.layout.make import row_major
from texpr.polyhedral.map.digits import ThreadDigits, thread_digits
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.long_sums import CHAIN, as_type, narrow, size_ranges
from texpr.polyhedral.map.serial import Body
from texpr.polyhedral.mapped.operators import Generic, Origin, Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who shares out a reduction: the threads of a block, with the parallel indices of the block."""

    outer: tuple[str, ...]
    threads: int


def split(draft: Draft, team: Team, seq: Seq) -> tuple[Node, ...]:
    """A `seq` over the block's threads."""
    extent = constant_value(seq.extent)
    inside = None
    if extent is None or extent % team.threads:
        inside = Compare(op=CompareOp.LT, left=IndexVar(name=seq.index), right=seq.extent)
    nodes = shared_out(draft, team, seq, seq.body, (), ceildiv(at_least_zero(seq.extent), team.threads), inside)
    if extent is None or extent <= 0:
        some = Compare(op=CompareOp.GT, left=seq.extent, right=ZERO)
        nodes = (Guard(condition=some, body=nodes, uniform=Scope.BLOCK, span=seq.span),)
    return nodes


def shared_out(
    draft: Draft,
    team: Team,
    loop: Seq | Par,
    body: Sequence[Stmt],
    places: tuple[Digit, ...],
    rounds: IndexExpr,
    inside: Condition | None,
    around: Sequence[tuple[Define, Digit]] = (),
    stride: Digit | None = None,
) -> tuple[Node, ...]:
    """The body's updates over the loop's index, a sum of `places` (of blocks, and the serial `stride`), `rounds` of a
    serial digit and all threads; `around` has the indices that a serial digit of their own runs over, too, and `inside`
    cuts what is no iteration."""
    turns = most(rounds, size_ranges(draft.kernel))
    if stride is None and not around and turns is not None and turns <= CHAIN:  # no thread's part is long
        body = [_narrow(draft, s) if isinstance(s, Accumulate) else s for s in body]
    updates = [s for s in body if isinstance(s, Accumulate)]
    partials = {u.id: _local(draft, f"{u.buffer}_part", u.value.dtype, ()) for u in updates}
    nodes: list[Node] = []
    for update in updates:
        name = partials[update.id]
        start = identity(update.op, update.value.dtype).item()
        nodes.append(Fresh(buffer=name))
        first = Const(value=start, dtype=update.value.dtype, span=update.span)
        nodes.append(_made(update, "init", Origin.INIT, name, (), first, unused=Unused.REPLICATED))
    nodes += _partial(draft, team, loop, body, partials, places, rounds, inside, around, stride)
    for update in updates:
        nodes += _combine(draft, team, update, partials[update.id])
    return tuple(nodes)


def _serial(digit: Digit, body: tuple[Node, ...], span: Span) -> Loop:
    return Loop(index=digit.name, extent=digit.radix, body=body, digit=digit, span=span)


def _partial(
    draft: Draft,
    team: Team,
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
    index = loop.index
    band, digits = _band(draft, team, index)
    worker = Body(draft, hardware=(*team.outer, index), digits=digits)
    nodes: tuple[Node, ...] = worker.nodes(
        tuple(replace(s, buffer=partials[s.id], subscripts=()) if isinstance(s, Accumulate) else s for s in body)
    )
    if inside is not None:
        nodes = (Guard(condition=inside, body=nodes, padding=True, span=loop.span),)
    own: tuple[Digit, ...] = ()
    if rounds != ONE:
        name = draft.names.fresh(f"{index}_serial")
        own = (Digit(name=name, index=index, weight=team.threads, radix=rounds, stride=ONE, place=Place.SERIAL),)
    nodes = (Define(index=index, digits=(*places, *own, *reversed(band.all))), *nodes)
    for digit in (*own, *(() if stride is None else (stride,))):
        nodes = (_serial(digit, nodes, loop.span),)
    for define, digit in around:
        nodes = (_serial(digit, (define, *nodes), loop.span),)
    draft.digits += (*(digit for _, digit in around), *(() if stride is None else (stride,)), *own)
    return nodes


def _narrow(draft: Draft, update: Accumulate) -> Accumulate:
    return replace(update, value=narrow(update.value)) if update.id in draft.long else update


def _combine(draft: Draft, team: Team, update: Accumulate, partial: str) -> tuple[Node, ...]:
    """The partial results through shared memory to the element."""
    dtype = update.value.dtype
    warp = min(draft.target.warp_size, team.threads)
    array = _local(draft, f"{update.buffer}_parts", dtype, (const(team.threads),))
    slot = draft.names.fresh("slot")
    band, digits = _band(draft, team, slot)
    nodes: list[Node] = [
        Fresh(buffer=array),
        Define(index=slot, digits=tuple(reversed(band.all))),
        _made(update, "part", Origin.COMBINE, array, (IndexVar(name=slot),), _read(partial, (), update), digits),
    ]
    if team.threads > warp:
        nodes += _fold_warps(draft, team, update, array, warp)
    target = draft.buffers[update.buffer]
    unused = Unused.REPLICATED if target.memory is Memory.REG else Unused.ONCE
    total = _local(draft, f"{update.buffer}_total", dtype, ())
    nodes.append(Fresh(buffer=total))
    first = _read(array, (ZERO,), update)
    nodes.append(_made(update, "first", Origin.COMBINE, total, (), first, unused=unused))
    step = draft.names.fresh("lane_slot")
    other = _read(array, (add(IndexVar(name=step), ONE),), update)
    inner = _made(update, "fold", Origin.COMBINE, total, (), other, unused=unused, accumulate=True)
    nodes.append(Loop(index=step, extent=const(warp - 1), body=(inner,), span=update.span))
    result: Expr = _read(total, (), update)
    if update.id in draft.long:
        result = as_type(result, F64 if target.dtype == F64 else F32)
    final = Body(draft, hardware=team.outer, unused=unused).leaf(replace(update, value=result))
    nodes.append(replace(final, id=f"{update.id}_out", origin=Origin.COMBINE))
    return tuple(nodes)


def _fold_warps(draft: Draft, team: Team, update: Accumulate, array: str, warp: int) -> tuple[Node, ...]:
    """The first warp adds the slots of the others to its own."""
    dtype = update.value.dtype
    row = draft.names.fresh("column")
    band, digits = _band(draft, team, row)
    here = IndexVar(name=row)
    column = _local(draft, f"{update.buffer}_column", dtype, ())
    step = draft.names.fresh("warp_slot")
    next_row = add(multiply(const(warp), IndexBinary(op=IndexOp.ADD, left=IndexVar(name=step), right=ONE)), here)
    inside: tuple[Node, ...] = (
        Fresh(buffer=column),
        _made(update, "column", Origin.COMBINE, column, (), _read(array, (here,), update), digits),
        Loop(
            index=step,
            extent=const(team.threads // warp - 1),
            body=(
                _made(
                    update,
                    "rows",
                    Origin.COMBINE,
                    column,
                    (),
                    _read(array, (next_row,), update),
                    digits,
                    accumulate=True,
                ),
            ),
            span=update.span,
        ),
        _made(update, "warp", Origin.COMBINE, array, (here,), _read(column, (), update), digits),
    )
    some = Compare(op=CompareOp.LT, left=here, right=const(warp))
    return (
        Define(index=row, digits=tuple(reversed(band.all))),
        Guard(condition=some, body=inside, padding=True, span=update.span),
    )


def _band(draft: Draft, team: Team, index: str) -> tuple[ThreadDigits, tuple[str, ...]]:
    """Digits of an index that runs over all threads, and their names."""
    pieces = ((0, team.threads),)
    band = thread_digits((index,), pieces, draft.names, draft.target.warp_size)
    draft.digits += band.all
    return band, tuple(d.name for d in band.all)


def _local(draft: Draft, wanted: str, dtype: DType, shape: tuple[IndexExpr, ...]) -> str:
    """A new buffer: an array in shared memory, or a thread's own scalar."""
    name = draft.names.fresh(wanted)
    draft.buffers[name] = MappedBuffer(
        name=name,
        dtype=dtype,
        memory=Memory.SHARED if shape else Memory.REG,
        scope=Scope.BLOCK if shape else Scope.THREAD,
        layout=row_major(shape),
        role=Role.LOCAL,
        reason="partial results of a reduction over the threads of a block",
    )
    return name


def _read(buffer: str, subscripts: tuple[IndexExpr, ...], update: Accumulate) -> Read:
    return Read(buffer=buffer, subscripts=subscripts, dtype=update.value.dtype, span=update.span)


def _made(
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
