"""Proof that the iterations of every `par` are independent, or the least pair that is not (E0301).

Two instances conflict in `par P` when they agree on the loops outside P, differ in P, touch one element, and do not
commute there. Commuting are two reads; two accumulations by one operator at affine subscripts (a reduction over P,
which is legal unless anything else touches such an element, and that is a conflict of its own); two atomics by one
operator; and what `#unique` promises: the accesses of one statement at the same gathered subscripts. A conditional
access conflicts if it may happen. A local is new in each iteration of the loops around its `new`: no conflict there.
"""

from collections.abc import Iterable, Iterator, Mapping

from texpr.grammar.ast import IndexConst, IndexVar, Role, Seq, Subscript
from texpr.grammar.diagnostics import Diagnostic, Label, TExprError, error
from texpr.grammar.permissions import keeps_order, unique_of
from texpr.polyhedral import isl
from texpr.polyhedral.facts import size_names
from texpr.polyhedral.isl import least_point
from texpr.polyhedral.program import Access, AccessMode, Program, ProgramStatement
from texpr.polyhedral.prove.bounds import VERBS
from texpr.polyhedral.prove.ordering import (
    Use,
    Uses,
    candidates,
    carried,
    commute,
    exclusive,
    is_gathered,
    meetings,
    shared_loops,
    writes,
)
from texpr.polyhedral.prove.witness import (
    Pair,
    element_text,
    instance_mapping,
    instance_text,
    least_pair,
    sizes_mapping,
    sizes_text,
    touched,
)


def check_races(program: Program, by_buffer: Uses) -> Iterator[Diagnostic]:
    """A diagnostic for each pair of statements and buffer with a conflict, at the outermost `par` that has one. A
    statement that conflicts with itself is told once, and not again with others."""
    for name, uses in by_buffer.items():
        outer = len(program.buffers[name].outer)
        reported: set[tuple[str, str]] = set()
        for group in _by_loop(uses, outer):
            for first, second in sorted(candidates(group), key=_rank):
                key = (first.statement.id, second.statement.id)
                levels = _levels(first, second, outer)
                if not levels or key in reported or (key[0], key[0]) in reported or (key[1], key[1]) in reported:
                    continue
                try:
                    found = _conflict(program, first, second, levels)
                except TExprError as limit:
                    yield from limit.diagnostics
                    if program.work.exhausted:
                        return
                    reported.add(key)
                    continue
                if found is not None:
                    reported.add(key)
                    yield found


def _rank(pair: tuple[Use, Use]) -> tuple[bool, bool]:
    """One statement before two, and two writes before a read and a write."""
    first, second = pair
    return first.statement is not second.statement, not (writes(first.access) and writes(second.access))


def _by_loop(uses: list[Use], outer: int) -> Iterable[list[Use]]:
    """The uses by the first loop that could tell apart iterations: two uses in different loops there never conflict."""
    groups: dict[str, list[Use]] = {}
    for use in uses:
        if len(use.statement.loops) > outer:
            groups.setdefault(use.statement.loops[outer].index, []).append(use)
    return groups.values()


def _levels(first: Use, second: Use, outer: int) -> list[int]:
    """The shared `par` loops in which the two could conflict, outermost first."""
    s, t, a, b = first.statement, second.statement, first.access, second.access
    if s is t and unique_of(s.leaf.attrs) and is_gathered(a) and a.subscripts == b.subscripts:
        return []
    if any(isinstance(x, IndexConst) and isinstance(y, IndexConst) and x != y for x, y in _both(a, b)):
        return []
    apart = {x.name for x, y in _both(a, b) if isinstance(x, IndexVar) and x == y}  # a dimension is the loop's index
    loops = range(outer, shared_loops(s, t))
    levels = [level for level in loops if s.loops[level].parallel and s.loops[level].index not in apart]
    if _is_reduction(a, b):
        levels = [level for level in levels if _ordered(s, level)]
    return [level for level in levels if not exclusive(s, t, level)]


def _both(a: Access, b: Access) -> Iterator[tuple[Subscript, Subscript]]:
    """The subscripts of two accesses, dimension by dimension."""
    return zip(a.subscripts, b.subscripts, strict=True)


def _is_reduction(a: Access, b: Access) -> bool:
    return commute(a, b) and not (a.mode is AccessMode.ACCUMULATE and (is_gathered(a) or is_gathered(b)))


def _conflict(program: Program, first: Use, second: Use, levels: list[int]) -> Diagnostic | None:
    width = first.width + second.width
    with program.work.limited(second.access.span, "the proof that iterations are independent", width):
        met = meetings(first.access, second.access)
        for level in levels:
            found = _least(program, met, level, first, second)
            if found is None:
                continue
            if _is_reduction(first.access, second.access):
                return _unordered(first.statement, level, second.access)
            return _report(program, level, *found)
    return None


def _least(program: Program, met: isl.Map, level: int, first: Use, second: Use) -> tuple[Pair, Use, Use] | None:
    """The least conflicting pair at a level, with its uses in order of iteration."""
    found: list[tuple[Pair, Use, Use]] = []
    forward = carried(met, level)
    if not forward.is_empty():
        found.append((least_pair(program, forward, first.statement), first, second))
    if first.access is not second.access:
        backward = carried(met.reverse(), level)
        if not backward.is_empty():
            found.append((least_pair(program, backward, second.statement), second, first))
    return min(found, key=lambda c: c[0], default=None)


def _ordered(statement: ProgramStatement, level: int) -> bool:
    """Whether a `seq` outside the loop at `level` is `#ordered`."""
    return any(isinstance(loop.node, Seq) and keeps_order(loop.node) for loop in statement.loops[:level])


def _unordered(statement: ProgramStatement, level: int, access: Access) -> Diagnostic:
    index = statement.loops[level].node.source_name
    return error(
        "E0301",
        f"`#ordered` stands around `par {index}`, whose iterations accumulate in no order",
        access.span,
        "iterations of the `par` accumulate into one element",
        help="make the loop a `seq`, or leave out `#ordered`",
    )


def _report(program: Program, level: int, pair: Pair, one: Use, two: Use) -> Diagnostic:
    s, a, t, b = one.statement, one.access, two.statement, two.access
    home = program.buffers[a.buffer]
    name = home.buffer.source_name or home.buffer.name
    par = s.loops[level].node.source_name
    sizes = sizes_mapping(program, pair.sizes)
    element = _element(program, pair, one, two)
    what = element_text(home.buffer, element)
    may = "" if a.must and b.must else "may "
    prefix = sizes_text(program, pair.sizes)
    first = instance_text(program, s, pair.sizes, pair.first)
    second = instance_text(program, t, pair.sizes, pair.second)
    if len(s.loops) > 1 or len(t.loops) > 1:
        first, second = f"({first})", f"({second})"
    secondary: tuple[Label, ...] = ()
    if a is b:
        span = a.span
        label = f"{prefix}iterations {first} and {second} {may}both {_plural(a)} {what}"
    else:
        later, earlier = sorted(
            ((s, a, first), (t, b, second)), key=lambda u: (program.statements.index(u[0]), writes(u[1])), reverse=True
        )
        span = later[1].span
        label = f"{prefix}iteration {later[2]} {_said(later[1], may)} {what}"
        secondary = (Label(span=earlier[1].span, text=f"iteration {earlier[2]} {_said(earlier[1], may)} {what}"),)
    if writes(a) and writes(b):
        message = f"two iterations of `par {par}` write the same element of {name}"
    else:
        message = f"one iteration of `par {par}` reads an element of {name} that another writes"
    return error(
        "E0301",
        message,
        span,
        label,
        secondary=secondary,
        help=_mend(a, b, name, home.buffer.role is Role.LOCAL and not home.buffer.shape),
        witness={
            "sizes": sizes,
            "par": s.loops[level].index,
            "first_statement": s.id,
            "first": instance_mapping(s, pair.first),
            "second_statement": t.id,
            "second": instance_mapping(t, pair.second),
            "buffer": a.buffer,
            "element": list(element),
        },
    )


def _element(program: Program, pair: Pair, one: Use, two: Use) -> tuple[int, ...]:
    """The least element that both instances touch, in the author's subscripts."""
    s, a, b = one.statement, one.access, two.access
    home = program.buffers[a.buffer]
    sizes = sizes_mapping(program, pair.sizes)
    elements = _at(a.relation, sizes, pair.first).intersect(_at(b.relation, sizes, pair.second))
    point = least_point(elements)[elements.dim(isl.dim_type.param) :]
    environment = {**sizes, **instance_mapping(s, pair.first)}
    return touched(a, environment, point, len(home.outer), home.flat_strides)


def _at(relation: isl.Map, sizes: Mapping[str, int], values: tuple[int, ...]) -> isl.Set:
    for position, name in enumerate(size_names(relation)):
        relation = relation.fix_val(isl.dim_type.param, position, sizes[name])
    for position, value in enumerate(values):
        relation = relation.fix_val(isl.dim_type.in_, position, value)
    return relation.range()


def _said(access: Access, may: str) -> str:
    return f"may {_plural(access)}" if may else VERBS[access.mode]


def _plural(access: Access) -> str:
    return {AccessMode.READ: "read", AccessMode.WRITE: "write"}.get(access.mode, "update")


def _mend(a: Access, b: Access, name: str, scalar: bool) -> str:
    modes = {a.mode, b.mode}
    if AccessMode.ATOMIC in modes:
        return f"make every access to {name} in the loop `atomic` with one operator, or move the other one out"
    if modes == {AccessMode.ACCUMULATE} and (is_gathered(a) or is_gathered(b)):
        return "write `atomic` before the update, or promise distinct elements with `#unique`"
    if is_gathered(a) or is_gathered(b):
        return "make the loop a `seq`, or promise distinct elements with `#unique`"
    if modes == {AccessMode.ACCUMULATE}:
        return f"accumulate into {name} with one operator in this loop, or make the loop a `seq`"
    if scalar:
        return f"move `new {name}` into the loop, so that each iteration has its own, or make the loop a `seq`"
    if AccessMode.READ in modes:
        return "make the loop a `seq`, or write to another buffer"
    return f"make the loop a `seq`, or accumulate into {name}"
