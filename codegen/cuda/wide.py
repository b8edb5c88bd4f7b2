"""Wide copies and reductions in CUDA: one call of a header function each.

copy v[8 * q + e] = X[i, c + e], wide    tx::put(v, 8 * q, tx::load_wanted<8>(X, …, {-c, N - c}, tx::bf16{0xff80}));
copy Y[i, c + e] = o[8 * q + e], wide    tx::store_wanted(Y, …, tx::take<8>(o, 8 * q), {-c, N - c});
m[0] = Greatest of v[x] for x < 48       const auto S1 = tx::fold<tx::Greatest<tx::f32>, 48>([&](int x) {
                                           return v.load(x); });
z[0], … = ScaledSum over 32 lanes        const auto S4 = tx::reduce_lanes<tx::ScaledSum<tx::f32>>({m, s});
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from texpr.codegen.cuda import index as ix
from texpr.codegen.cuda.expr import Value
from texpr.codegen.cuda.facts import LaunchFacts
from texpr.codegen.cuda.literals import literal, value_type
from texpr.grammar.ast import Expr, Gather, IndexExpr, Subscript
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.expr import constant_value
from texpr.grammar.index.linear import linear
from texpr.grammar.types import F32, F64, I32, I64, U32
from texpr.polyhedral.mapped.monoids import MONOIDS
from texpr.polyhedral.mapped.operators import Access, Cache, Completion, Copy, Elementwise, Reduce
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.mapped.tree import Lead, Node

BYTES = (2, 4, 8, 16)  # of a wide access
COMBINED = (F32, F64, I32, I64, U32)  # the types of values that monoids combine
HEADER = "texpr/registers.cuh"


class Place(Protocol):
    """The accessor of an element, and its number there."""

    def __call__(self, name: str, subscripts: tuple[Subscript, ...], *, writes: bool) -> tuple[str, str]: ...


# ---- copies ----


def wide_call(
    copy: Copy, buffers: Callable[[str], MappedBuffer], at: Place, number_of: Callable[[IndexExpr], ix.Term]
) -> str:
    """The call that moves the elements of a copy's only index. Raises E0502 for what no access moves."""
    count = _count(copy)
    inside, outside = (buffers(v.buffer).memory is Memory.REG for v in (copy.target, copy.source))
    if inside == outside:
        raise _refused(copy, "is between two memories and not of registers, which has no wide access")
    view = copy.source if inside else copy.target
    if copy.access is Access.FUNNEL and not inside:
        raise _refused(copy, "writes at any address; only loads may be shifted")
    own, where = at(view.buffer, view.first(copy.over).subscripts, writes=not inside)
    held = copy.target if inside else copy.source
    register, number = at(held.buffer, held.first(copy.over).subscripts, writes=inside)
    cache = f"tx::Cache::k{''.join(w.capitalize() for w in copy.cache.value.split('_'))}"
    hint = "" if copy.cache is Cache.PLAIN else cache
    wanted = ""
    if copy.within is not None:
        ends = (number_of(e).as_wide() for e in (copy.within.begin, copy.within.end))
        wanted = f"tx::Wanted<{count}>({', '.join(e.text for e in ends)})"
    if not inside:
        verb = "store_wanted" if wanted else "store"
        given = ", ".join(text for text in (own, where, f"tx::take<{count}>({register}, {number})", wanted) if text)
        return f"tx::{verb}{f'<{hint}>' if hint else ''}({given});"
    if wanted and (copy.within is None or copy.within.other is None):
        raise _refused(copy, "fills registers and does not say what becomes of those that are not wanted")
    other = literal(copy.within.other.value, copy.target.dtype) if copy.within and copy.within.other else ""
    verb = {
        (Access.ALIGNED, False): "load",
        (Access.ALIGNED, True): "load_wanted",
        (Access.FUNNEL, False): "load_funnel",
        (Access.FUNNEL, True): "load_wanted_funnel",
    }[copy.access, bool(wanted)]
    given = ", ".join(text for text in (own, where, wanted, other) if text)
    return f"tx::put({register}, {number}, tx::{verb}<{', '.join(t for t in (str(count), hint) if t)}>({given}));"


def _count(copy: Copy) -> int:
    """The elements of an access, which must be neighbours on both sides."""
    ((name, extent),) = copy.over
    count, size = constant_value(extent), copy.source.dtype.size_bytes
    if count is None or count * size not in BYTES or copy.source.dtype != copy.target.dtype:
        raise _refused(copy, "is no access of 2, 4, 8 or 16 bytes of elements of one type")
    if copy.access is Access.FUNNEL and count * size != BYTES[-1]:
        raise _refused(copy, "is at any address, and not of 16 bytes")
    for view in (copy.source, copy.target):
        *outer, last = (0 if isinstance(s, Gather) else linear(s).coefficient(name) for s in view.subscripts)
        if last != 1 or any(outer):
            raise _refused(copy, f"moves elements of {view.buffer} that are no neighbours")
    return count


def _refused(node: Copy | Reduce, why: str) -> TExprError:
    return fail(
        "E0502",
        f"{node.id} {why}, so it is not emitted for CUDA",
        node.span,
        help="move the elements one by one" if isinstance(node, Copy) else "combine them by statements",
    )


# ---- reductions ----


@dataclass(frozen=True, slots=True)
class Reduction:
    """The name of what was combined, the call that does, and its components, in the order of the targets."""

    name: str
    call: str
    components: tuple[str, ...]


def reduction(node: Reduce, name: str, value: Callable[[Expr], str], index: str, warp_size: int) -> Reduction:
    """The call of a reduction, whose one index has this C++ name. Raises E0502 for one that is not emitted."""
    dtype = node.values[0].dtype
    if dtype not in COMBINED or len(node.over) > 1:
        why = f"values of {dtype}" if dtype not in COMBINED else "several indices"
        raise _refused(node, f"combines {why}, which no header function does")
    if warp_size % node.lanes or node.lanes & (node.lanes - 1):
        raise _refused(node, f"combines {node.lanes} lanes, which are no group")
    monoid = MONOIDS[node.monoid]
    kind = f"tx::{monoid.name}<{value_type(dtype)}>"
    values = ", ".join(value(v) for v in node.values)
    single = len(monoid.components) == 1
    if node.lift and not single:
        element = f"{kind}::lift({values})"
    else:
        element = values if single else f"{kind}::Partial{{{values}}}"
    call = element
    for _, extent in node.over:
        count = constant_value(extent)
        if count is None:
            raise _refused(node, "combines so many elements as no number says")
        call = f"tx::fold<{kind}, {count}>([&](int {index}) {{ return {element}; }})"
    if node.lanes > 1:
        lanes = "" if node.lanes == warp_size else f", {node.lanes}"
        call = f"tx::reduce_lanes<{kind}{lanes}>({call})"
    if node.last:
        call = f"{kind}::result({call})"
    return Reduction(name, call, (name,) if single else tuple(f"{name}.{c}" for c in monoid.components))


def headers(facts: LaunchFacts) -> Iterator[str]:
    """The headers of the calls of this file."""
    if facts.has(Lead, Reduce) or any(copy.access is not Access.EACH for copy in facts.of(Copy)):
        yield HEADER


def is_alone(copy: Copy) -> bool:
    """Whether a copy that is over at once is wide."""
    return copy.completion is Completion.NOW and copy.access is not Access.EACH


def too_deep(node: Reduce) -> Callable[[Value], str]:
    """What a value in the body of a fold does for a temporary: its statement would stand outside."""

    def refuse(_: Value) -> str:
        said = f"a value that {node.id} folds is nested too deeply to be emitted"
        raise fail("E0506", said, node.span, help="compute parts of it in an elementwise operator before")

    return refuse


def check_plain(copy: Copy) -> None:
    """E0502 for a copy of single elements that asks something of the caches."""
    if copy.cache is not Cache.PLAIN:
        raise fail(
            "E0502", f"{copy.id} copies each element with a cache hint, which is not emitted for CUDA", copy.span
        )


def rest_of(node: Elementwise, inner: Sequence[tuple[str, IndexExpr]]) -> tuple[Node, ...]:
    """What an elementwise operator does for one value of its first index."""
    return (replace(node, over=tuple(inner)),) if inner else node.each
