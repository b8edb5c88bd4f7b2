"""The check of a schedule: two programs, and where the instances of the second come from. It takes no part in making
schedules and shares no code with what does: it never asks what was moved.

    every old instance runs once           the origins are one to one onto the old domains
    it computes the same                   the leaf is the old one, the indices put in
    it computes it with the same           an element is the old one renamed, two of them never by one name
    it reads what it read                  whatever was in order on one element, or stood around an anchor, still is

What is unordered, as iterations of a `par` are, stays free. Updates of one element by one operator are in order where
they were. So each element gets the same values in the same order, and no proof of the old program is lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import reduce
from itertools import combinations, product

from texpr.grammar.ast import (
    Anchor,
    Buffer,
    If,
    IndexExpr,
    IndexVar,
    Intrinsic,
    Kernel,
    New,
    Par,
    Read,
    Role,
    Seq,
    Stmt,
)
from texpr.grammar.core import buffers_of
from texpr.grammar.index.expr import ONE, add, const, constant_value, multiply
from texpr.grammar.index.linear import linear
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.polyhedral import isl
from texpr.polyhedral.affine import Scope, relation
from texpr.polyhedral.program import Access, AccessMode, Program, ProgramBuffer, ProgramStatement
from texpr.polyhedral.schedule.alike import alike
from texpr.polyhedral.schedule.origins import Origins, origin_of

IN, OUT = isl.dim_type.in_, isl.dim_type.out
CHECK = "the check of this schedule"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fault:
    """Why the second program is not the first one in another order. A broken dependence has the two accesses of the
    first program and the pairs of its instances whose order is lost."""

    why: str
    span: Span = field(repr=False)
    source: Access | None = None
    sink: Access | None = None
    relation: isl.Map | None = None


def check(before: Program, after: Program, origins: Origins) -> Fault | None:
    """The first fault found, None where there is none. Both programs are of one compilation. E0307 past a limit."""
    return next(_faults(before, after, origins), None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pair:
    """A new statement, the old one, and the map from new to old instances; `unmoved` where nothing changed around."""

    old: ProgramStatement
    new: ProgramStatement
    back: isl.Map
    unmoved: bool


def _faults(before: Program, after: Program, origins: Origins) -> Iterator[Fault]:
    olds = {statement.id: statement for statement in before.statements}
    pairs: list[_Pair] = []
    for new in after.statements:
        old = olds.get(origin_of(origins, new.id).statement)
        if old is None:
            yield Fault(why=f"{new.id} is no statement of the program", span=new.leaf.span)
            return
        pairs.append(_Pair(old=old, new=new, back=_back(after, new, old, origins), unmoved=_unmoved(old, new, origins)))
    yield from _scopes(after.kernel)
    for old in before.statements:
        yield from _covered(after, old, [pair for pair in pairs if pair.old is old])
    for pair in pairs:
        yield from _same(pair, origins)
    yield from _renamed(before, after, pairs)
    yield from _order(after, pairs)


def _back(after: Program, new: ProgramStatement, old: ProgramStatement, origins: Origins) -> isl.Map:
    """The old instance of every new one."""
    origin = origin_of(origins, new.id)
    with after.work.limited(new.leaf.span, CHECK, len(new.loops) + len(old.loops), isl.BUILDING):
        scope = Scope(after.facts.sizes, (), after.work)
        for loop in new.loops:
            scope = scope.inner(loop.index, loop.extent)
        domain = new.domain.reset_tuple_id().align_params(scope.space)
        found = relation(domain, [scope.value(origin.value(loop.index)) for loop in old.loops])
        return found.set_tuple_name(IN, new.id).set_tuple_name(OUT, old.id)


def _unmoved(old: ProgramStatement, new: ProgramStatement, origins: Origins) -> bool:
    return new.id not in origins and old.loops == new.loops


def _scopes(kernel: Kernel) -> Iterator[Fault]:
    """Locals are used after their `new`, in its block."""
    locals = {b.name for b in kernel.buffers if b.role is Role.LOCAL}
    work: list[tuple[tuple[Stmt, ...], set[str]]] = [(kernel.body, set())]
    while work:
        block, known = work.pop()
        for stmt in block:
            used = set[str]()
            match stmt:
                case New(buffer=name):
                    known = known | {name}
                case Par(body=body) | Seq(body=body) | Intrinsic(reference=body):
                    work.append((body, known))
                case If(condition=condition, then=then, orelse=orelse):
                    used = {condition.buffer} if isinstance(condition, Read) else used
                    work += [(then, known), (orelse, known)]
                case _:
                    used = buffers_of(stmt)
            for name in sorted((used & locals) - known):
                yield Fault(why=f"{name} is used where it is not declared", span=stmt.span)


def _covered(after: Program, old: ProgramStatement, pairs: Sequence[_Pair]) -> Iterator[Fault]:
    """Every old instance is that of one new instance."""
    if len(pairs) == 1 and pairs[0].unmoved and _same_points(after, old, pairs[0].new):
        return
    width = isl.columns(old.domain) + sum(isl.columns(pair.back) for pair in pairs)
    with after.work.limited(old.leaf.span, CHECK, width):
        ranges = [pair.back.range() for pair in pairs]
        twice = any(not pair.back.is_injective() for pair in pairs)
        twice = twice or any(not a.is_disjoint(b) for a, b in combinations(ranges, 2))
        left = old.domain
        outside = any(not reached.is_subset(old.domain) for reached in ranges)
        for reached in ranges:
            left = left.subtract(reached)
        missing = not left.is_empty()
    if twice:
        yield Fault(why=f"iterations of {old.id} run twice", span=old.leaf.span)
    if outside:
        yield Fault(why=f"{old.id} runs in iterations that it does not have", span=old.leaf.span)
    if missing:
        yield Fault(why=f"iterations of {old.id} do not run", span=old.leaf.span)


def _same_points(after: Program, old: ProgramStatement, new: ProgramStatement) -> bool:
    with after.work.limited(old.leaf.span, CHECK, isl.columns(old.domain, new.domain)):
        return bool(old.domain.is_equal(new.domain))


def _same(pair: _Pair, origins: Origins) -> Iterator[Fault]:
    """The leaf, the conditions on data and the attributes around are the old ones."""
    old, new = pair.old, pair.new
    origin = origin_of(origins, new.id)
    if not alike(old.leaf, new.leaf, origin):
        yield Fault(why=f"{new.id} does not compute what {old.id} does", span=new.leaf.span)
    guards = list(zip(old.guards, new.guards, strict=False))
    known = len(old.guards) == len(new.guards) and all(
        a.value is b.value and alike(a.condition, b.condition, origin) for a, b in guards
    )
    if not known:
        yield Fault(why=f"{new.id} stands under other conditions than {old.id}", span=new.leaf.span)
    if any(new.write is not None and new.write.buffer == guard.condition.buffer for guard in new.guards):
        yield Fault(why=f"{new.id} changes a condition that it stands under", span=new.leaf.span)
    if _attributes(old) != _attributes(new):
        yield Fault(why=f"{new.id} stands in loops with other attributes than {old.id}", span=new.leaf.span)
    if [a.mode for a in old.accesses] != [a.mode for a in new.accesses]:
        yield Fault(why=f"{new.id} has other accesses than {old.id}", span=new.leaf.span)


def _attributes(statement: ProgramStatement) -> list[str]:
    return sorted(f"{type(loop.node).__name__} {attr}" for loop in statement.loops for attr in loop.node.attrs)


def _renamed(before: Program, after: Program, pairs: Sequence[_Pair]) -> Iterator[Fault]:
    """Elements keep their identity: a buffer is itself, or a local whose elements have other names, one each."""
    uses: dict[tuple[str, str], list[tuple[_Pair, Access, Access]]] = {}
    for pair in pairs:
        for old, new in zip(pair.old.accesses, pair.new.accesses, strict=True):
            homes = before.buffers[old.buffer], after.buffers[new.buffer]
            seen = homes[1].buffer.given is not None  # the model split it before as the schedule did
            split = not seen and homes[0].flat_strides != homes[1].flat_strides
            one, two = (_flat(before, old), _flat(after, new)) if split else (old, new)
            if one is None or two is None:
                yield Fault(why=f"{new.buffer} is split into other dimensions than {old.buffer}", span=new.span)
                return
            uses.setdefault((old.buffer, new.buffer), []).append((pair, one, two))
    found: dict[str, list[isl.Map]] = {}
    source: dict[str, str] = {}
    for (name, now), own in uses.items():
        span = own[0][2].span
        alone = sum(old == name for old, _ in uses) == 1
        if source.setdefault(now, name) != name:
            yield Fault(why=f"{now} stands for two buffers", span=span)
        yield from _declared(before.buffers[name], after.buffers[now].buffer, span)
        there = name == now and alone and before.buffers[name].outer == after.buffers[name].outer
        if there and all(_itself(after, *use) for use in own):
            continue
        if after.buffers[now].buffer.role is not Role.LOCAL:
            yield Fault(why=f"{now} has other elements", span=span)
            continue
        renaming = _renaming(after, own)
        with after.work.limited(span, CHECK, isl.columns(renaming)):
            exact = bool(renaming.is_single_valued()) and bool(renaming.is_injective())
            again = any(not renaming.domain().is_disjoint(other.domain()) for other in found.get(name, ()))
        if not exact or again:
            yield Fault(why=f"{name} and {now} have not the same elements", span=span)
        found.setdefault(name, []).append(renaming)


def _flat(program: Program, access: Access) -> Access | None:
    """The access at the author's subscript of a buffer whose one dimension was split; None where that is no affine
    function of the dimensions."""
    home = program.buffers[access.buffer]
    if not home.flat_strides:
        return access
    strides = [constant_value(stride) for stride in home.flat_strides]
    if None in strides:
        return None
    names = [f"d{k}" for k in range(access.relation.dim(OUT))]
    scope = Scope(program.facts.sizes, tuple(names), program.work)
    outer, split = names[: len(home.outer)], names[len(home.outer) :]
    with program.work.limited(access.span, CHECK, len(names)):
        parts = [multiply(const(s or 0), IndexVar(name=name)) for s, name in zip(strides, split, strict=True)]
        values = [*map(scope.index, outer), scope.value(reduce(add, parts))]
        joined = relation(scope.universe(), values).set_tuple_name(IN, access.buffer).set_tuple_name(OUT, access.buffer)
        return replace(access, relation=access.relation.apply_range(joined))


def _itself(after: Program, pair: _Pair, old: Access, new: Access) -> bool:
    """Whether the new access touches the elements of the old one."""
    if pair.unmoved and old.subscripts == new.subscripts:
        return True
    with after.work.limited(new.span, CHECK, isl.columns(pair.back, old.relation, new.relation)):
        return bool(pair.back.apply_range(old.relation).is_equal(new.relation))


def _renaming(after: Program, uses: Sequence[tuple[_Pair, Access, Access]]) -> isl.Map:
    """From the old elements that accesses touch to the new ones."""
    whole: isl.Map | None = None
    for pair, old, new in uses:
        with after.work.limited(new.span, CHECK, isl.columns(pair.back, old.relation, new.relation)):
            part = pair.back.apply_range(old.relation).reverse().apply_range(new.relation)
            whole = part if whole is None else whole.union(part)
    assert whole is not None, "a buffer of accesses"
    return whole


def _declared(home: ProgramBuffer, new: Buffer, span: Span) -> Iterator[Fault]:
    """What is said of a buffer stays: a local that the author placed, and every other buffer, as it is. A parameter may
    be seen with the dimensions that the model split it into, in whole rows."""
    old = home.buffer
    if new.given is not None and old.given is None:
        if old.role is not Role.PARAM or old.strides is not None or not _in_whole_rows(home, new):
            yield Fault(why=f"{new.name} is seen with other elements", span=span)
        new = new.as_given
    placed = old.memory is not None or old.attrs or old.strides is not None
    like = old if old.role is not Role.LOCAL else replace(old, name=new.name)
    if not placed and old.role is Role.LOCAL:
        like = replace(like, shape=new.shape)
    if like != new:
        yield Fault(why=f"{new.name} is declared otherwise than {old.name}", span=span)


def _in_whole_rows(home: ProgramBuffer, new: Buffer) -> bool:
    """Whether dense strides of the new shape are those of the split, and all rows together the old length."""
    strides: list[IndexExpr] = [ONE]
    for extent in reversed(new.shape):
        strides.append(multiply(strides[-1], extent))
    wanted = (*home.buffer.shape, *home.flat_strides)
    return len(wanted) == len(strides) and all(
        linear(one) == linear(other) for one, other in zip(wanted, reversed(strides), strict=True)
    )


def _order(after: Program, pairs: Sequence[_Pair]) -> Iterator[Fault]:
    """Whatever was in order on one element, or around an anchor, still is."""
    for one, two in product(pairs, pairs):
        if one.unmoved and two.unmoved and _places(one.old, two.old) == _places(one.new, two.new):
            continue
        before = list(_before(one.old, two.old))
        if not before:
            continue
        later = list(_not_before(one.new, two.new))
        for source, sink in _conflicts(one.old, two.old):
            with after.work.limited(sink.span, CHECK, 2 * isl.columns(source.relation, sink.relation)):
                met = source.relation.apply_range(sink.relation.reverse())
                found = _lost(one, two, met, before, later)
            if found is not None:
                yield Fault(why="a dependence is lost", span=sink.span, source=source, sink=sink, relation=found)
        if isinstance(one.old.leaf, Anchor) or isinstance(two.old.leaf, Anchor):
            with after.work.limited(two.new.leaf.span, CHECK, isl.columns(one.back, two.back)):
                found = _lost(one, two, _every(one.old, two.old), before, later)
            if found is not None:
                yield Fault(
                    why=f"{one.old.id} and {two.old.id} change places, of which one is an anchor",
                    span=two.new.leaf.span,
                )


def _conflicts(one: ProgramStatement, two: ProgramStatement) -> Iterator[tuple[Access, Access]]:
    """Accesses to one buffer, of which one writes."""
    for source, sink in product(one.accesses, two.accesses):
        if source.buffer == sink.buffer and {source.mode, sink.mode} != {AccessMode.READ}:
            yield source, sink


def _lost(
    one: _Pair,
    two: _Pair,
    met: isl.Map,
    before: Sequence["_Piece"],
    later: Sequence["_Piece"],
) -> isl.Map | None:
    """The old instances that were in order and are not."""
    for was in before:
        ordered = was.of(met)
        if ordered.is_empty():
            continue
        now = one.back.apply_range(ordered).apply_range(two.back.reverse())
        for piece in later:
            wrong = piece.of(now)
            if not wrong.is_empty():
                found: isl.Map = one.back.reverse().apply_range(wrong).apply_range(two.back)
                return found
    return None


def _every(one: ProgramStatement, two: ProgramStatement) -> isl.Map:
    return isl.Map.from_domain_and_range(one.domain, two.domain)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Pairs of instances at equal values of `equal` loops, whose next loop goes forward (1), back (-1) or is free."""

    equal: int
    step: int = 0

    def of(self, pairs: isl.Map) -> isl.Map:
        for level in range(self.equal):
            pairs = pairs.equate(IN, level, OUT, level)
        if self.step > 0:
            pairs = pairs.order_lt(IN, self.equal, OUT, self.equal)
        if self.step < 0:
            pairs = pairs.order_gt(IN, self.equal, OUT, self.equal)
        return pairs


def _places(one: ProgramStatement, two: ProgramStatement) -> tuple[int, bool]:
    """How many loops two statements share, and whether the first stands before the second in them."""
    shared = 0
    for a, b in zip(one.loops, two.loops, strict=False):
        if a.index != b.index:
            break
        shared += 1
    left, right = one.position[2 * shared], two.position[2 * shared]
    return shared, isinstance(left, int) and isinstance(right, int) and left < right


def _before(one: ProgramStatement, two: ProgramStatement) -> Iterator[_Piece]:
    """When an instance of one is surely over before one of the other begins."""
    shared, first = _places(one, two)
    if first:
        yield _Piece(shared)
    for level in range(shared):
        if not one.loops[level].parallel:
            yield _Piece(level, 1)


def _not_before(one: ProgramStatement, two: ProgramStatement) -> Iterator[_Piece]:
    """When it is not."""
    shared, first = _places(one, two)
    if not first:
        yield _Piece(shared)
    for level in range(shared):
        yield _Piece(level, -1)
        if one.loops[level].parallel:
            yield _Piece(level, 1)
