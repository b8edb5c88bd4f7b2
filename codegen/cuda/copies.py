"""Copies in CUDA: which instruction brings the elements, and its call.

now            loops of loads and stores                          (`expand.py`)
cp_async       tx::cp_async<16>(a.at(…), A.at(…));                accesses of 4, 8 or 16 bytes
               tx::cp_async<16>(a.at(…), A.maybe(…), tx::bytes_of<16>(2 * n));   of which some are wanted, else zeros
transaction    tx::load_bulk(a.at(…), A.at(…), 256, ring.full()); a run of neighbours, in one's own block
               tx::load_box(a.at(…), A_box, ring.full(), {k, i}); a box of an array, by a tensor map
               tx::load_box_to(3, …)                              the same into the blocks of ranks 0 and 1
               tx::store_to<3>(p, at, x, ring.full());            a register into these blocks
               tx::send_to(p, at, {x, y}, ring.full(), q);        neighbours into the block of rank q
bulk           tx::store_bulk, tx::store_box                      back, in a group
"""

from collections.abc import Callable
from itertools import product
from math import copysign
from typing import Protocol, assert_never

from texpr.codegen.cuda import index as ix
from texpr.codegen.tensor_map import box_fault
from texpr.grammar.ast import IndexExpr
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.expr import ZERO, const, constant_value, multiply
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.make import CHUNK_BYTES, SWIZZLES
from texpr.polyhedral.layout.normal import canonical
from texpr.polyhedral.layout.place import coordinate
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped.access import Access, Cache, Completion
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.sync import Pipe
from texpr.polyhedral.mapped.views import View, Within

CP_ASYNC_BYTES = (16, 8, 4)
SENT_BYTES, SENT_COUNTS = (4, 8), (1, 2, 4)
BULK_BYTES = 16  # runs are of multiples of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """`count` neighbours at a time, for each value of the other indices `over`; of these the first `wanted` (None: all)
    are read, others are zeros. Of `chunks` any may be wanted."""

    count: int
    over: tuple[tuple[str, IndexExpr], ...]
    source: View
    target: View
    wanted: IndexExpr | None = None
    chunks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """So many bytes that are neighbours on both sides, the first at these elements."""

    bytes: IndexExpr
    source: View
    target: View


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxMap:
    """What a tensor map describes: boxes of an array that lie in shared memory one row after another, under a swizzle
    of so many bytes (0: none); the L2 cache fetches `promotion_bytes` at least."""

    buffer: str
    box: tuple[int, ...]
    swizzle_bytes: int = 0
    promotion_bytes: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box of the array of a tensor map with its corner there; `shared` is its first element in shared memory. `ranks`
    has a bit for each block of the cluster that gets it, 0 for one's own alone."""

    map: BoxMap
    corner: tuple[IndexExpr, ...]
    shared: View
    ranks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """An element of a register that goes to the blocks of these `ranks`, a bit for each."""

    source: View
    target: View
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentOne:
    """Elements of registers that go to the block of one `rank`, where they are neighbours from this one on."""

    sources: tuple[View, ...]
    target: View
    rank: IndexExpr


Form = Pieces | Run | Box | Sent | SentOne


class CopyNames(Protocol):
    """The C++ names of pipes and tensor maps."""

    rings: dict[str, str]
    maps: dict[BoxMap, str]


def copy_form(copy: Copy, planned: PlannedProgram, launch: Launch) -> Form:
    """How an asynchronous copy is made. Raises E0502 for one that no instruction makes."""
    if copy.within is not None and copy.completion is not Completion.CP_ASYNC:
        raise _refused(copy, "some elements of a box only")
    if copy.cache is not Cache.PLAIN:
        raise _refused(copy, "a cache hint")
    if copy.access is Access.FUNNEL:
        raise _refused(copy, "any address")
    if copy.source.dtype != copy.target.dtype:
        raise _refused(copy, "elements of two types")
    pipe = next((p for p in launch.pipes if p.name == copy.pipe), None)
    ranks = _ranks(copy, pipe) if copy.to_ranks else 0
    if ranks and planned.program.buffers[copy.source.buffer].memory is Memory.REG:
        return _sent(copy, ranks) if copy.rank is None else _sent_one(copy, copy.rank, planned)
    if copy.rank is not None:
        raise _refused(copy, "a box to one rank")
    in_box = ranks or copy.clipped
    match copy.completion:
        case Completion.CP_ASYNC:
            if copy.clipped:
                raise _refused(copy, "a box that leaves its array, by cp.async,")
            return _pieces(copy, planned)
        case Completion.TRANSACTION:
            return (None if in_box else _run(copy, planned)) or _box(copy, copy.source, copy.target, planned, ranks)
        case Completion.BULK:
            return (None if in_box else _run(copy, planned)) or _box(copy, copy.target, copy.source, planned, 0)
        case _:
            raise _refused(copy, f"completion {copy.completion.value}")


def _ranks(copy: Copy, pipe: Pipe | None) -> int:
    tables = {end.ranks for end in pipe.producers if end.ranks} if pipe is not None else set()
    if not tables:
        return 0
    rows = {row for table in tables for row in table}
    if len(rows) > 1:
        raise _refused(copy, "ranks that differ from block to block")
    return sum(1 << rank for rank in rows.pop())


def _sent(copy: Copy, ranks: int) -> Sent:
    if copy.over or copy.source.dtype.size_bytes not in SENT_BYTES:
        raise _refused(copy, f"no element of {' or '.join(map(str, SENT_BYTES))} bytes to other blocks")
    return Sent(source=copy.source, target=copy.target, ranks=ranks)


def _sent_one(copy: Copy, rank: IndexExpr, planned: PlannedProgram) -> SentOne:
    """All that a copy has lies together on both sides, in one access."""
    steps, count, near = _steps(copy.target, copy, planned), 1, True
    for name, extent in reversed(copy.over):
        near = near and steps[name] == count
        count *= constant_value(extent) or 0
    if copy.source.dtype.size_bytes != SENT_BYTES[0] or count not in SENT_COUNTS or not near:
        raise _refused(copy, "no 1, 2 or 4 neighbours of 4 bytes to another block")
    points = product(*(range(constant_value(extent) or 0) for _, extent in copy.over))
    names = [name for name, _ in copy.over]
    sources = tuple(copy.source.at(dict(zip(names, map(const, point), strict=True))) for point in points)
    return SentOne(sources=sources, target=copy.target.first(copy.over), rank=rank)


def _plain(view: View, copy: Copy) -> tuple[IndexExpr, ...]:
    """The subscripts of a view, none of which may be read from data."""
    if view.plain is None:
        raise _refused(copy, "subscripts that are read from data")
    return view.plain


def _steps(view: View, copy: Copy, planned: PlannedProgram, *, mixed: bool = False) -> dict[str, int | None]:
    """How far apart neighbours along each index lie in memory; None where it is no number. `mixed`: before the XOR."""
    layout = canonical(planned.addresses[view.buffer].layout)
    form = linear(coordinate(layout, Unit.ADDRESS, _plain(view, copy)))
    return {name: None if layout.xor and not mixed else form.coefficient(name) for name, _ in copy.over}


def _swizzle_bytes(tile: View, row: int, copy: Copy, planned: PlannedProgram) -> int:
    """The swizzle under which a box of rows of so many elements lies in shared memory."""
    xor, size = planned.addresses[tile.buffer].layout.xor, tile.dtype.size_bytes
    if xor is None:
        return 0
    bytes_ = next((b for b, bits in SWIZZLES.items() if bits == xor.bits), 0)
    if (row * size, xor.base, xor.shift) != (bytes_, (CHUNK_BYTES // size).bit_length() - 1, 3):
        raise _refused(copy, "an XOR that no box is written with")
    return bytes_


def is_cut(copy: Copy) -> bool:
    """Whether accesses may be wanted from any element on, or follow one another by number."""
    within = copy.within
    return within is not None and (within.part is not None or (within.begin != ZERO and not within.exact))


def _pieces(copy: Copy, planned: PlannedProgram) -> Pieces:
    size, over = copy.source.dtype.size_bytes, copy.over
    for view in (copy.source, copy.target):
        _plain(view, copy)
    count = 1
    if over:
        name, together = over[-1][0], constant_value(over[-1][1])
        near = all(_steps(view, copy, planned, mixed=True)[name] == 1 for view in (copy.source, copy.target))
        if near and together is not None and together * size in CP_ASYNC_BYTES:
            count, over = together, over[:-1]
    if count * size not in CP_ASYNC_BYTES:
        raise _refused(copy, f"accesses of {count * size} bytes by cp.async, which has 4, 8 and 16,")
    inner = copy.over[len(over) :]
    if not all(_stays_together(view.first(inner), count, copy, planned) for view in (copy.source, copy.target)):
        raise _refused(copy, "neighbours that a swizzle tears apart, by cp.async,")
    within, aligned = copy.within, planned.program.buffers[copy.source.buffer].align % CP_ASYNC_BYTES[0] == 0
    chunks = is_cut(copy) and count * size == CP_ASYNC_BYTES[0] and aligned
    return Pieces(
        count=count,
        over=over,
        source=copy.source.first(inner),
        target=copy.target.first(inner),
        wanted=None if within is None or chunks else _wanted(copy, within),
        chunks=chunks,
    )


def _stays_together(first: View, count: int, copy: Copy, planned: PlannedProgram) -> bool:
    """Whether so many elements from the first on are neighbours under the XOR of their layout, too."""
    layout = canonical(planned.addresses[first.buffer].layout)
    if layout.xor is None:
        return True
    form = linear(coordinate(layout, Unit.ADDRESS, _plain(first, copy)))
    return (1 << layout.xor.base) % count == 0 and form.is_multiple(count)


def _wanted(copy: Copy, within: Within) -> IndexExpr:
    """How many elements of an access are read where the rest is to be zeros."""
    zeros = within.other is not None and within.other.value == 0 and copysign(1, within.other.value) > 0
    if not zeros or within.begin != ZERO or within.part is not None:
        raise _refused(copy, "some elements of a box, and not the first ones before zeros, by cp.async,")
    return within.end


def _run(copy: Copy, planned: PlannedProgram) -> Run | None:
    """The copy as one run, None where its elements do not follow one another on both sides."""
    steps = [_steps(view, copy, planned) for view in (copy.source, copy.target)]
    count: IndexExpr = const(1)
    for name, extent in reversed(copy.over):
        if any(const(step[name] or 0) != count for step in steps):
            return None
        count = multiply(count, extent)
    bytes_ = multiply(count, const(copy.source.dtype.size_bytes))
    known = constant_value(bytes_)
    if known is None or known % BULK_BYTES:
        raise _refused(copy, f"a run of {'bytes that are no number' if known is None else f'{known} bytes'}")
    return Run(bytes=bytes_, source=copy.source.first(copy.over), target=copy.target.first(copy.over))


def _box(copy: Copy, array: View, tile: View, planned: PlannedProgram, ranks: int) -> Box:
    """The copy as a box of a tensor map."""
    if planned.program.buffers[array.buffer].memory is not Memory.GLOBAL:
        raise _refused(copy, "a box of what is no array")
    steps, extents = _steps(tile, copy, planned, mixed=True), dict(copy.over)
    box: list[int] = []
    step = 1
    for subscript in reversed(_plain(array, copy)):
        form = linear(subscript)
        along = [name for name, _ in copy.over if form.coefficient(name) != 0]
        extent = constant_value(extents[along[0]]) if along else 1
        if len(along) > 1 or extent is None or (along and (form.coefficient(along[0]), steps[along[0]]) != (1, step)):
            raise _refused(copy, "a box that does not lie in shared memory row after row")
        box.insert(0, extent)
        step *= extent
        for name in along:
            del extents[name]
    if extents:
        raise _refused(copy, f"a box of {len(box)} dimensions over {len(copy.over)} indices")
    swizzle = _swizzle_bytes(tile, box[-1], copy, planned)
    fault = box_fault(box, array.dtype.size_bytes, swizzle)
    if fault is not None:
        raise fail("E0502", f"{copy.id} copies by a tensor map: {fault}", copy.span)
    return Box(
        map=BoxMap(buffer=array.buffer, box=tuple(box), swizzle_bytes=swizzle),
        corner=_plain(array.first(copy.over), copy),
        shared=tile.first(copy.over),
        ranks=ranks,
    )


def check_plain(copy: Copy) -> None:
    """E0502 for a copy of single elements that asks something of the caches, or of a tensor map."""
    if copy.clipped:
        raise fail("E0502", f"{copy.id} copies each element of a clipped box, which is not emitted for CUDA", copy.span)
    if copy.cache is not Cache.PLAIN:
        raise fail(
            "E0502", f"{copy.id} copies each element with a cache hint, which is not emitted for CUDA", copy.span
        )


def copy_call(
    copy: Copy,
    form: Form,
    names: CopyNames,
    at: Callable[[View, bool, bool], str],
    corner: Callable[[View, bool], tuple[str, str]],
    number: Callable[[IndexExpr], ix.Term],
    value: Callable[[View], str],
) -> str:
    """The call of a form. `at` gives the place of an element that is read, or written (True), and may be outside
    (True); `corner` that of the first element of a box; `number` a term, `value` an element that is read."""
    full = f", {names.rings[copy.pipe]}.full()" if copy.completion is Completion.TRANSACTION else ""
    match form:
        case Pieces(count=count, source=source, target=target, wanted=wanted):
            size, some, outside = source.dtype.size_bytes, "", wanted is not None
            if wanted is not None:
                some = f", tx::bytes_of<{count * size}>({number(multiply(const(size), wanted)).text})"
            return f"tx::cp_async<{count * size}>({at(target, True, False)}, {at(source, False, outside)}{some});"
        case Run(bytes=size, source=source, target=target):
            verb = "load" if full else "store"
            return f"tx::{verb}_bulk({at(target, True, False)}, {at(source, False, False)}, {number(size).text}{full});"
        case Box(map=map_, ranks=ranks):
            at_corner = f"{{{', '.join(number(c).as_int().text for c in form.corner)}}}"
            own, tile = names.maps[map_], "{}.at({})".format(*corner(form.shared, bool(full)))
            if not full:
                return f"tx::store_box({own}, {tile}, {at_corner});"
            to = f"load_box_to({ranks}, " if ranks else "load_box("
            return f"tx::{to}{tile}, {own}{full}, {at_corner});"
        case Sent(source=source, target=target, ranks=ranks):
            return f"tx::store_to<{ranks}>({', '.join(corner(target, True))}, {value(source)}{full});"
        case SentOne(sources=sources, target=target, rank=rank):
            values = ", ".join(map(value, sources))
            return f"tx::send_to({', '.join(corner(target, True))}, {{{values}}}{full}, {number(rank).text});"
        case _:
            assert_never(form)


def _refused(copy: Copy, what: str) -> TExprError:
    return fail("E0502", f"{copy.id} copies with {what}, which is not emitted for CUDA", copy.span)
