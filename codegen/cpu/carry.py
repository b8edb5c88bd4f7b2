"""Accumulators around loops: which accumulated elements a loop can keep in a variable.

An element that does not move while a loop runs, and that the loop only accumulates into with one operator, is carried:
read before the loop (or, where several threads add to it, started from the identity), written once after it. This is
what lets narrow types accumulate in f32 and be rounded once, and makes one atomic update of many.

    for i in range(n): s[0] += A[i]    ->    sum0 = s[0]; for i in range(n): sum0 += A[i]; s[0] = sum0
"""

from collections.abc import Iterator
from dataclasses import replace

from texpr.codegen.cpu.ranges import Branch, CpuNode, Range, Split
from texpr.grammar.ast import AccOp, Accumulate, Atomic, Condition, Gather, IndexConst, IndexExpr, Read
from texpr.grammar.index.expr import ZERO, names
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType
from texpr.polyhedral.mapped.operators import Elementwise, Generic, Store
from texpr.polyhedral.mapped.tree import Define


@dataclass(frozen=True, slots=True, kw_only=True)
class Carry:
    """An element carried around a loop. `nonempty` are ranges (low, high) that must hold something, and `conditions`
    what must be true, for the element to be touched at all; only then may it be read and written. `marked`: iterations
    decide that, and each update notes it."""

    store: Store
    op: AccOp
    dtype: DType
    subscripts: tuple[IndexExpr, ...]
    nonempty: tuple[tuple[IndexExpr, IndexExpr], ...]
    conditions: tuple[Condition, ...]
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """An operator, the ranges around it, and the conditions; None where one of them is data or an `else`."""

    operator: Generic
    ranges: tuple[Range, ...]
    conditions: tuple[Condition, ...] | None


def find_carries(loop: Range, dtypes: dict[str, DType], scalars: frozenset[str]) -> tuple[Carry, ...]:
    """The carries of a loop, one per tensor. `dtypes` has the stored type of every tensor, `scalars` names those that
    are plain variables already."""
    every = list(sites_of((loop,)))
    sites: dict[str, list[Site]] = {}
    for site in every:
        for tensor, _ in site.operator.writes:
            if tensor not in scalars:
                sites.setdefault(tensor, []).append(site)
    if not any(isinstance(found[0].operator.leaf, Accumulate | Atomic) for found in sites.values()):
        return ()
    inner = frozenset(_defined(loop))
    blocked = {read.buffer for site in every for read in site.operator.reads}
    blocked.update(asked((loop,)))
    carries = []
    for tensor, found in sites.items():
        carry = None if tensor in blocked else _carry(loop, found, inner, dtypes[tensor])
        if carry is not None:
            carries.append(carry)
    return tuple(carries)


def _carry(loop: Range, sites: list[Site], inner: frozenset[str], stored: DType) -> Carry | None:
    first = sites[0].operator
    store, leaf = first.store, first.leaf
    if store is None or store.op is None or not isinstance(leaf, Accumulate | Atomic):
        return None
    affine = tuple(s for s in store.subscripts if not isinstance(s, Gather))
    if len(affine) != len(store.subscripts) or any(names(s) & inner for s in affine):
        return None
    dtype = leaf.value.dtype
    for site in sites:
        if site.operator.store != store or site.operator.leaf.value.dtype != dtype:
            return None
    if not _may_round_once(stored, dtype, store.op):
        return None
    carry = Carry(store=store, op=store.op, dtype=dtype, subscripts=affine, nonempty=(), conditions=())
    when = _when_touched(sites, inner)
    if when is None:
        return replace(carry, marked=True) if is_left_in_parts(loop, carry) else None
    return replace(carry, nonempty=when[0], conditions=when[1])


def is_left_in_parts(loop: Range, carry: Carry) -> bool:
    """Whether the parts of a parallel launch each keep what they have of the element."""
    return loop.cores and carry.store.atomic and carry.dtype.bits >= 32


def _when_touched(
    sites: list[Site], inner: frozenset[str]
) -> tuple[tuple[tuple[IndexExpr, IndexExpr], ...], tuple[Condition, ...]] | None:
    """The ranges that must hold something, and the conditions, for the element to be touched; None where iterations of
    the loop decide that, or sites differ."""
    around = sites[0]
    nonempty: list[tuple[IndexExpr, IndexExpr]] = []
    for low, high in dict.fromkeys((r.low, r.high) for r in around.ranges):
        if isinstance(low, IndexConst) and isinstance(high, IndexConst):
            if low.value >= high.value:
                return None
        elif (names(low) | names(high)) & inner:
            return None
        else:
            nonempty.append((low, high))
    if any((site.ranges, site.conditions) != (around.ranges, around.conditions) for site in sites):
        return None
    if around.conditions is None or any(names(c) & inner for c in around.conditions):
        return None
    return tuple(nonempty), tuple(dict.fromkeys(around.conditions))


def _may_round_once(stored: DType, computed: DType, op: AccOp) -> bool:
    """Whether sums in the computed type, rounded to the stored one at the end, are among those that the language
    allows; `#ordered` asks for an order, which a loop keeps."""
    if stored == computed:
        return True
    if stored.is_float and computed.is_float:
        return True
    return stored.is_integer and computed.is_integer and op in (AccOp.ADD, AccOp.MUL)


def sites_of(
    body: tuple[CpuNode, ...], ranges: tuple[Range, ...] = (), conditions: tuple[Condition, ...] | None = ()
) -> Iterator[Site]:
    """Every operator of a body, in text order."""
    for node in body:
        match node:
            case Generic():
                yield Site(node, ranges, conditions)
            case Elementwise():
                over = tuple(Range(index=i, low=ZERO, high=extent, body=()) for i, extent in node.over)
                for statement in node.each:
                    yield Site(statement, (*ranges, *over), conditions)
            case Range(body=inner):
                yield from sites_of(inner, (*ranges, node), conditions)
            case Branch(condition=condition, body=inner, orelse=orelse):
                known = None if conditions is None or isinstance(condition, Read) else (*conditions, condition)
                yield from sites_of(inner, ranges, known)
                yield from sites_of(orelse, ranges, None)
            case _:
                pass


def _defined(node: CpuNode) -> Iterator[str]:
    match node:
        case Define(index=index) | Split(index=index):
            yield index
        case Elementwise(over=over):
            yield from (index for index, _ in over)
        case Range(index=index, body=body):
            yield index
            for child in body:
                yield from _defined(child)
        case Branch(body=body, orelse=orelse):
            for child in body + orelse:
                yield from _defined(child)
        case _:
            pass


def asked(body: tuple[CpuNode, ...]) -> Iterator[str]:
    """The buffers that conditions of a body read."""
    for node in body:
        if isinstance(node, Range):
            yield from asked(node.body)
        elif isinstance(node, Branch):
            if isinstance(node.condition, Read):
                yield node.condition.buffer
            yield from asked(node.body + node.orelse)


def is_shared_update(store: Store, parallel: bool) -> bool:
    """Whether the update must be indivisible: several threads run, and the mapping asks for it."""
    return parallel and store.atomic
