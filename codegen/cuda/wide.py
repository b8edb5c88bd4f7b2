"""Wide copies in CUDA: one call of a header function each.

copy v[8 * q + e] = X[i, c + e], wide    tx::put(v, 8 * q, tx::load_wanted<8>(X, …, {-c, N - c}));
the same beside a chunk that is wanted   tx::put(v, 8 * q, tx::load_or_sure<8>(X, …, …, {-c, N - c}));
the same of whole chunks or none         tx::put(v, 8 * q, tx::load_or_none<8>(X, …, …, {0, N - c}));
                                         tx::fill(v, 8 * q, {-c, N - c}, tx::bf16{0xff80});  after all loads
the same at any address                  v_chunks(8 * q) = tx::chunks_wanted<8>(X, …, {-c, N - c});
                                         tx::put(v, 8 * q, v_chunks(8 * q).shifted());       after all loads
copy t[157 * e + p] = v[8 * q + e]       tx::store_apart<157>(t, p, tx::take<8>(v, 8 * q));
copy Y[i, c + e] = o[8 * q + e], wide    tx::store_wanted(Y, …, tx::take<8>(o, 8 * q), {-c, N - c});
the same from f32                        tx::store_wanted(Y, …, tx::rounded<tx::bf16, 8>(o, 8 * q), {-c, N - c});
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import copysign, prod

from texpr.codegen.cuda.access import Access as Places
from texpr.codegen.cuda.facts import LaunchFacts
from texpr.codegen.cuda.literals import literal, value_type
from texpr.codegen.cuda.picked import picked
from texpr.grammar.ast import Compare, CompareOp, Gather, IndexExpr, IndexVar, SizeVar
from texpr.grammar.diagnostics import InternalError, TExprError, fail
from texpr.grammar.index.expr import ONE, ZERO, const, constant_value, multiply, substitute
from texpr.grammar.index.linear import linear, rejoined
from texpr.grammar.walk import walk
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.place import coordinate, variable
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped.access import Access, Cache, Completion
from texpr.polyhedral.mapped.operators import Combined, Copy, Elementwise, Reduce, Scan
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Lead, Loop, Node
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.walk import subscript_names

BYTES = (1, 2, 4, 8, 16)  # of a wide access
MAX_CHUNKS = 4  # pairs of chunks in registers at a time
FAR = 1 << 29  # elements; rows of unrolled accesses are shorter
UNWRITTEN = Cache.READ_ONLY, Cache.NO_ALLOCATE  # hints for loads of what nobody writes meanwhile
SURE = {"_wanted": "_or_sure", "_inside": "_inside_or_sure"}  # of threads that read something in any case
PLAIN_HEADER, WANTED_HEADER, SHIFTED_HEADER = "texpr/registers.cuh", "texpr/wanted.cuh", "texpr/shifted.cuh"
FOLDS_HEADER = "texpr/folds.cuh"


def wide_call(copy: Copy, access: Places, chunks: str = "") -> str:
    """The call that moves the elements of a copy's only index, into the row of `chunks` where it has one. Raises E0502
    for what no access moves."""
    if copy.access is Access.APART:
        return _apart_call(copy, access)
    inside, view, held = sides(copy, access)
    count = access_count(copy, view, access)
    if copy.access is Access.FUNNEL and not inside:
        raise refused(copy, "writes at any address; only loads may be shifted")
    if inside and copy.within is not None and copy.within.other is None:
        raise refused(copy, "fills registers and does not say what becomes of those that are not wanted")
    layout = access.tensors[view.buffer].layout
    mixed = copy.access is not Access.FUNNEL  # a funnel finds its two chunks by itself
    around = copy.within is not None and copy.within.around
    if copy.access is Access.ALIGNED and (copy.within is None or around):
        own, where = access.apart(view.first(copy.over), writes=not inside)
    else:
        own, where = access.number(view.buffer, view.first(copy.over).subscripts, writes=not inside, mixed=mixed)
    register, number = access.number(held.buffer, held.first(copy.over).subscripts, writes=inside)
    plain = copy.cache is Cache.PLAIN or (copy.cache in UNWRITTEN and not access.frame.stays(view.buffer))
    hint = "" if plain else f"tx::Cache::k{''.join(map(str.capitalize, copy.cache.split('_')))}"
    wanted = wanted_elements(copy, count, access)
    if not inside:
        same = held.dtype == view.dtype
        vector = f"take<{count}>" if same else f"rounded<{value_type(view.dtype)}, {count}>"
        given = listed(own, where, f"tx::{vector}({register}, {number})", wanted)
        which = _shifted_store(copy) if copy.access is Access.SHIFTED else "_wanted" if wanted else ""
        return f"tx::store{which}{f'<{hint}>' if hint else ''}({given});"
    xor = None if mixed else layout.xor
    place = "" if xor is None else f"tx::Swizzled<{xor.bits}, {xor.base}, {xor.shift}>"
    exact = copy.within is not None and copy.within.exact
    if exact and xor is not None:
        raise refused(copy, "reads chunks of a swizzled tile, and is to read no other byte than is wanted")
    cut = (
        mixed
        and not exact
        and not around
        and not (copy.within is not None and (copy.within.together or copy.within.inside))
    )
    outside = cut and _may_leave(view, count, access)  # chunks at the ends
    room = access.room(view.buffer) if (exact and not mixed) or (wanted and outside) else ""
    # A vector's end is asked in every block; rows have theirs in one turn of many, whose text may not cost registers.
    lined = not mixed and len(view.subscripts) == 1 and access.frame.buffer(view.buffer).align % BYTES[-1] == 0
    which = "" if not wanted else "_inside" if outside or (exact and lined) else "_exactly" if exact else "_wanted"
    together = copy.within is not None and copy.within.together
    sure = _sure_of_row(copy, view, access) if mixed and which in SURE and (together or not around) else ""
    if sure:
        which = "_or_none" if together else SURE[which]
    elif around:
        which = "_around"
    verb = f"tx::{'load' if mixed else 'chunks'}{which}<{listed(str(count), place, hint)}>"
    value = f"{verb}({listed(own, where, sure, wanted, room)})"
    if chunks:
        return f"{chunks}({number}) = {value};"
    return f"tx::put({register}, {number}, {value}{'' if mixed else access.shifted});"


def _shifted_store(copy: Copy) -> str:
    """Which of the stores whose lanes lie side by side: of a row's begin, or of a strip that begins in some lane."""
    if copy.within is None or copy.within.begin == ZERO:
        return "_shifted"
    return "_whole_strip" if copy.within.together else "_strip"


def _apart_call(copy: Copy, access: Places) -> str:
    """The call that puts registers apart from one address on, which NVRTC does not find in the sum of each."""
    inside, view, held = sides(copy, access)
    layout, count = access.frame.buffer(view.buffer).layout, _last(copy)
    step = linear(coordinate(layout, Unit.ADDRESS, view.plain or ())).coefficient(copy.over[-1][0])
    if inside or copy.within is not None or layout.xor is not None or len(copy.over) > 1 or not step:
        raise refused(copy, "puts elements to places that no number says")
    own, where = access.number(view.buffer, view.first(copy.over).subscripts, writes=True)
    register, number = access.number(held.buffer, held.first(copy.over).subscripts, writes=False)
    return f"tx::store_apart<{step}>({own}, {where}, tx::take<{count}>({register}, {number}));"


def chunk_call(copy: Copy, access: Places) -> str:
    """The call that begins to bring a chunk of an array, of which some elements are wanted, to a slot; zeros where none
    is, if anybody may see them."""
    which = "wanted" if copy.within is not None and copy.within.unseen else "or_none"
    own, where = access.number(copy.source.buffer, copy.source.first(copy.over).subscripts, writes=False, mixed=True)
    slot, count = access.spot(copy.target.first(copy.over), True), _last(copy)
    return f"tx::cp_async_{which}<{count}>({listed(slot, own, where, wanted_elements(copy, count, access))});"


def _last(copy: Copy) -> int:
    """The extent of a copy's last index."""
    found = constant_value(copy.over[-1][1])
    if found is None:
        raise InternalError(f"{copy.id} is of so many elements as no number says")
    return found


def _sure_of_row(copy: Copy, view: View, access: Places) -> str:
    """The number of an access that is surely made, of which all elements are wanted: one behind it, or before it, may
    make it in place of its own, where all are to be under way or a call decides whether there are any. '' where none
    is known."""
    within = copy.within
    if within is None or not isinstance(within.part, IndexVar):
        return ""
    decided = within.together and any(isinstance(node, SizeVar) for node in walk(within.end))
    sure = 0 if within.together else 1  # the first one may begin too early
    part, subscripts = within.part.name, view.first(copy.over).subscripts
    plain = tuple(s for s in subscripts if not isinstance(s, Gather))
    if not (within.ahead or decided) or within.whole <= sure:
        return ""
    if len(plain) < len(subscripts) or part not in subscript_names(plain):
        return ""
    start = tuple(substitute(s, lambda name: const(sure) if name.name == part else None) for s in plain)
    return access.number(view.buffer, start, writes=False)[1]


def _may_leave(view: View, count: int, access: Places) -> bool:
    """Whether an aligned chunk with an element of an array may have others that are not its own."""
    buffer = access.frame.buffer(view.buffer)
    room, whole = constant_value(extent(buffer.layout)), buffer.align % (count * view.dtype.size_bytes) == 0
    return buffer.memory is Memory.GLOBAL and (room is None or room % count != 0 or not whole)


def chunk_row(copy: Copy) -> str:
    """The type of registers for the chunks of a copy's accesses at any address, all of which are on their way
    before the first is shifted; '' where it is one access alone, they are too many, or each asks much before it."""
    gathers = any(isinstance(s, Gather) for s in copy.source.subscripts)  # and waits for what tells where it is
    asks = copy.within is not None and copy.within.exact and not gathers
    *several, count = (constant_value(extent) or 0 for _, extent in copy.over)
    if asks or copy.access is not Access.FUNNEL or not several or not 0 < prod(several) <= MAX_CHUNKS:
        return ""
    return f"tx::ChunkRow<{value_type(copy.source.dtype)}, {count}, {prod(several) * count}>"


def shift_call(copy: Copy, access: Places, chunks: str) -> str:
    """The call that gives the registers of a copy what its chunks hold."""
    _, _, held = sides(copy, access)
    register, number = access.number(held.buffer, held.first(copy.over).subscripts, writes=True)
    return f"tx::put({register}, {number}, {chunks}({number}){access.shifted});"


def fill_call(copy: Copy, access: Places) -> str:
    """The call that gives the registers of a copy what stands for elements that are not wanted."""
    _, view, held = sides(copy, access)
    if copy.within is None or copy.within.other is None:
        raise InternalError(f"{copy.id} has nothing for what is not wanted")
    register, number = access.number(held.buffer, held.first(copy.over).subscripts, writes=True)
    other = literal(copy.within.other.value, held.dtype)
    return (
        f"tx::fill({register}, {number}, {wanted_elements(copy, access_count(copy, view, access), access)}, {other});"
    )


def needs_fill(copy: Copy) -> bool:
    """Whether registers are to get what stands for elements that are not wanted: not where a load itself brings it."""
    within = copy.within
    if within is None or within.other is None or within.unseen:
        return False
    zero = within.other.value == 0 and copysign(1, within.other.value) > 0
    return copy.access in (Access.FUNNEL, Access.SHIFTED) or not (within.exact or within.together) or not zero


def listed(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def sides(copy: Copy, access: Places) -> tuple[bool, View, View]:
    """Whether a copy goes into registers, its view of memory, and that of registers."""
    inside, outside = (access.frame.buffer(v.buffer).memory is Memory.REG for v in (copy.target, copy.source))
    if inside == outside:
        raise refused(copy, "is between two memories and not of registers, which has no wide access")
    return (True, copy.source, copy.target) if inside else (False, copy.target, copy.source)


def wanted_elements(copy: Copy, count: int, access: Places) -> str:
    """Which elements are wanted, '' where all are. What unrolled indices add to both bounds stands apart: the rest is
    the same for all accesses."""
    if copy.within is None:
        return ""
    begin, end, shift = linear(copy.within.begin), linear(copy.within.end), linear(ZERO)
    for name in sorted(access.cursor.stand.unrolled):
        step = begin.coefficient(name)
        if step and step == end.coefficient(name):
            begin, end = begin.without(name), end.without(name)
            shift -= linear(multiply(const(step), IndexVar(name=name)))
    at, bounds = access.cursor.term(shift.expression()), (begin.expression(), end.expression())
    apart = bool(shift.terms) and max(-at.low, at.high) < FAR
    ends = [access.cursor.number(bound) for bound in (bounds if apart else (copy.within.begin, copy.within.end))]
    if any(term.wide for term in ends):
        ends = [term.as_wide() for term in ends]
    parts = listed(*(access.cursor.out.use(part) for part in ((*ends, at) if apart else ends)))
    return f"tx::Wanted<{count}>({parts}){_cut(copy.within, access)}"


def _cut(within: Within, access: Places) -> str:
    """Which accesses of those that follow one another may be cut, '' where any."""
    if within.part is None or (within.begin != ZERO and not within.whole):
        return ""
    ends = (
        Compare(op=CompareOp.LT, left=within.part, right=ONE),
        Compare(op=CompareOp.LE, left=const(within.whole), right=within.part),
    )
    before, behind = (access.cursor.out.use(access.cursor.term(end)) for end in ends)
    return f".cut({'false' if within.begin == ZERO else before}, {behind})"


def access_count(copy: Copy, view: View, access: Places) -> int:
    """The elements of an access, which must be neighbours on both sides."""
    ((name, extent),) = copy.over
    count, size, xor = constant_value(extent), view.dtype.size_bytes, access.tensors[view.buffer].layout.xor
    if count is None or count * size not in BYTES:
        raise refused(copy, "is no access of 1, 2, 4, 8 or 16 bytes")
    if copy.access in (Access.FUNNEL, Access.SHIFTED) and count * size != BYTES[-1]:
        raise refused(copy, "is at any address, and not of 16 bytes")
    for side in (copy.source, copy.target):
        at = [variable(n) if isinstance(s, Gather) else s for n, s in enumerate(side.subscripts)]
        address = coordinate(access.frame.buffer(side.buffer).layout, Unit.ADDRESS, at)
        apart = count > 1 and rejoined(linear(address)).coefficient(name) != 1
        if apart or (side is view and xor is not None and (1 << xor.base) % count):
            raise refused(copy, f"moves elements of {side.buffer} that are no neighbours")
    return count


def refused(node: Copy | Combined, why: str) -> TExprError:
    return fail(
        "E0502",
        f"{node.id} {why}, so it is not emitted for CUDA",
        node.span,
        help="move the elements one by one" if isinstance(node, Copy) else "combine them by statements",
    )


def headers(facts: LaunchFacts) -> Iterator[str]:
    """The headers of the calls of this file and of `folds.py`."""
    wide = [copy for copy in facts.of(Copy) if copy.access is not Access.EACH]
    wanted = any(copy.within is not None or copy.access is Access.FUNNEL for copy in wide)
    folds = facts.has(Reduce, Scan) or any(picked(loop) is not None for loop in facts.of(Loop))
    if wanted:
        yield WANTED_HEADER
    if folds:
        yield FOLDS_HEADER
    if not wanted and not folds and (wide or facts.has(Lead)):
        yield PLAIN_HEADER
    if any(copy.access is Access.SHIFTED for copy in facts.of(Copy)):
        yield SHIFTED_HEADER


def is_alone(copy: Copy) -> bool:
    """Whether a copy that is over at once is wide."""
    return copy.completion is Completion.NOW and copy.access is not Access.EACH


def rest_of(node: Elementwise, inner: Sequence[tuple[str, IndexExpr]]) -> tuple[Node, ...]:
    """What an elementwise operator does for one value of its first index."""
    return (replace(node, over=tuple(inner)),) if inner else node.each
