"""What is known of the free sizes: each is at least 0, and the facts of `where` hold.

A kernel with many sizes has groups of them that no fact connects. A proof takes the groups of the sizes that it names
and leaves the other sizes out, which is exact: every group has values that satisfy its facts.

    where M <= N, N % 8 == 0, K != 7       groups {M, N}, {K}
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeVar

from texpr.grammar.ast import (
    And,
    Compare,
    CompareOp,
    Condition,
    IndexBinary,
    IndexConst,
    IndexOp,
    IndexVar,
    Kernel,
    Node,
    SizeVar,
)
from texpr.grammar.diagnostics import TExprError, error
from texpr.grammar.index.expr import const
from texpr.grammar.index.interval import Ranges
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.walk import walk
from texpr.polyhedral import isl
from texpr.polyhedral.affine import NotAffineError, Scope

MAX_TOGETHER = 8  # sizes that are one group in any case: to leave some of them out costs more than it saves
MAX_ALTERNATIVES = 32  # of the facts of one group
Points = TypeVar("Points", isl.Set, isl.Map)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`groups` has the values of the sizes of each group, as sets without dimensions; `group_of` their numbers."""

    sizes: tuple[str, ...]
    groups: tuple[isl.Set, ...]
    group_of: Mapping[str, int] = field(repr=False)
    span: Span = field(compare=False, repr=False)

    @property
    def context(self) -> isl.Set:
        """Everything that is known of all sizes."""
        context = self.groups[0]
        for group in self.groups[1:]:
            context = context.intersect(group)
        return context

    @property
    def together(self) -> bool:
        """Whether all sizes are one group, which domains have from the start."""
        return len(self.groups) == 1

    def connected(self, names: Iterable[str]) -> tuple[str, ...]:
        """The sizes of the groups of some sizes, in the kernel's order; all of them where there is one group."""
        used = {self.group_of[name] for name in names}
        return tuple(name for name in self.sizes if self.together or self.group_of[name] in used)

    def around(self, points: Points) -> Points:
        """`points` of a scope, within what is known where that is one group; else see `known`."""
        return points.intersect_params(self.groups[0]) if self.together else points

    def known(self, points: Points, names: Iterable[str] = ()) -> Points:
        """`points` within what is known of the sizes that they and `names` name, and without all other sizes."""
        if self.together:
            return points
        used = {self.group_of[name] for name in names}
        for position in reversed(range(points.dim(isl.dim_type.param))):
            number = self.group_of.get(str(points.get_dim_name(isl.dim_type.param, position)))
            if number is None:
                continue
            if points.involves_dims(isl.dim_type.param, position, 1):
                used.add(number)
            else:
                points = points.project_out(isl.dim_type.param, position, 1)
        groups = [self.groups[number] for number in sorted(used)]
        if math.prod(group.n_basic_set() for group in groups) > MAX_ALTERNATIVES:
            raise _too_many(self.span)
        for group in groups:
            points = points.intersect_params(group)
        return points

    def within(self, points: Points) -> Points:
        """`points` within what is known of the sizes that they name."""
        return self.known(self.around(points))

    def names(self, points: isl.Set | isl.Map) -> tuple[str, ...]:
        """The sizes that are parameters of a set or relation, in the kernel's order."""
        named = set(size_names(points))
        return tuple(name for name in self.sizes if name in named)

    def ordered(self, points: isl.Set) -> isl.Set:
        """A set with its parameters in the kernel's order."""
        if self.together:
            return points
        return points.align_params(
            isl.Space.create_from_names(points.get_ctx(), set=[], params=list(self.names(points)))
        )

    def joined(self, points: Points, other: isl.Set | isl.Map) -> Points:
        """`points` within what is known of the sizes of `other`, too."""
        if self.together:
            return points
        return self.known(points, self.names(other))


def size_names(points: isl.Set | isl.Map) -> tuple[str, ...]:
    """The sizes that are parameters of a set or relation."""
    count = points.dim(isl.dim_type.param)
    return tuple(str(points.get_dim_name(isl.dim_type.param, position)) for position in range(count))


def sizes_in(nodes: Iterable[Node]) -> set[str]:
    """The sizes that expressions or statements name."""
    return {below.name for node in nodes for below in walk(node) if isinstance(below, SizeVar)}


def _single(kernel: Kernel) -> Iterator[Condition]:
    """The facts of a kernel, those that stand together one by one."""
    for fact in kernel.facts:
        yield from fact.parts if isinstance(fact, And) else (fact,)


def build_facts(kernel: Kernel, work: isl.Work) -> Facts:
    """What a kernel says of its free sizes. A fact that is not affine only leaves less known, which is sound. E0307 for
    facts with too many alternatives."""
    sizes = tuple(size.name for size in kernel.sizes)
    facts = [(part, sizes_in([part])) for part in _single(kernel)]
    groups = [sizes] if len(sizes) <= MAX_TOGETHER else _groups(sizes, [names for _, names in facts])
    found = [_values(group, facts, work) for group in groups]
    with work.limited(kernel.span, "the facts", isl.WIDTH, isl.BUILDING):
        contradicted = len(groups) > 1 and any(values.is_empty() for values in found)
    if contradicted:
        groups, found = [sizes], [_values(sizes, facts, work)]  # no sizes at all: nothing may be left out
    group_of = {name: number for number, group in enumerate(groups) for name in group}
    return Facts(sizes=sizes, groups=tuple(found), group_of=group_of, span=kernel.span)


def _groups(sizes: Sequence[str], links: Sequence[Collection[str]]) -> list[tuple[str, ...]]:
    """The sizes in groups that no link connects, in order."""
    group = {name: name for name in sizes}
    for link in links:
        joined = {group[name] for name in link}
        first = min(joined, key=sizes.index, default="")
        group = {name: first if own in joined else own for name, own in group.items()}
    return [tuple(n for n in sizes if group[n] == first) for first in dict.fromkeys(group.values())]


def _values(sizes: tuple[str, ...], facts: Sequence[tuple[Condition, set[str]]], work: isl.Work) -> isl.Set:
    """The values of some sizes that satisfy the facts about them."""
    scope = Scope(sizes, (), work)
    values = isl.Set.universe(isl.Space.params_alloc(work.context, 0).align_params(scope.space))
    for position in range(len(sizes)):
        values = values.lower_bound_val(isl.dim_type.param, position, 0)
    own = set(sizes)
    for fact, names in facts:
        if not names <= own:
            continue
        with work.limited(fact.span, "this fact", scope.width, isl.BUILDING):
            try:
                values = values.intersect(scope.holds(fact).params())
            except NotAffineError:
                continue
        if values.n_basic_set() > MAX_ALTERNATIVES:
            raise _too_many(fact.span)
    return values


def _too_many(span: Span) -> TExprError:
    message = f"the facts about these sizes have more than {MAX_ALTERNATIVES} alternatives together"
    help = "leave out facts with `!=` or `or`, state a range such as `N >= 8` instead, or bind the sizes"
    return TExprError([error("E0307", message, span, help=help)])


def size_ranges(kernel: Kernel) -> Ranges:
    """The ranges of free sizes that `where` bounds by a number."""
    least, most = dict[str, int](), dict[str, int]()
    for fact in _single(kernel):
        match fact:
            case Compare(op=CompareOp.LT | CompareOp.LE, left=SizeVar(name=name), right=IndexConst(value=value)):
                bound = value - (fact.op is CompareOp.LT)
                most[name] = min(most.get(name, bound), bound)
            case Compare(op=CompareOp.GT | CompareOp.GE, left=SizeVar(name=name), right=IndexConst(value=value)):
                bound = value + (fact.op is CompareOp.GT)
                least[name] = max(least.get(name, 0), bound)
            case Compare(op=CompareOp.EQ, left=SizeVar(name=name), right=IndexConst(value=value)):
                least[name] = max(least.get(name, 0), value)
                most[name] = min(most.get(name, value), value)
            case _:
                pass
    return {name: (const(least.get(name, 0)), const(bound)) for name, bound in most.items()}


def size_least(kernel: Kernel) -> dict[str, int]:
    """What the free sizes are at least, as `where` says: 0 without it."""
    found = dict.fromkeys((size.name for size in kernel.sizes), 0)
    for fact in _single(kernel):
        match fact:
            case Compare(op=CompareOp.GT | CompareOp.GE, left=SizeVar(name=name), right=IndexConst(value=value)):
                found[name] = max(found.get(name, 0), value + (fact.op is CompareOp.GT))
            case Compare(op=CompareOp.LT | CompareOp.LE, left=IndexConst(value=value), right=SizeVar(name=name)):
                found[name] = max(found.get(name, 0), value + (fact.op is CompareOp.LT))
            case Compare(op=CompareOp.EQ, left=SizeVar(name=name), right=IndexConst(value=value)):
                found[name] = max(found.get(name, 0), value)
            case _:
                pass
    return found


def size_divisors(kernel: Kernel) -> dict[str, int]:
    """By what the free sizes are divisible, as `where` says; and addresses, as a case of a mapping does."""
    found: dict[str, int] = {}
    for fact in _single(kernel):
        match fact:
            case Compare(
                op=CompareOp.EQ,
                left=IndexBinary(
                    op=IndexOp.MOD, left=SizeVar(name=name) | IndexVar(name=name), right=IndexConst(value=by)
                ),
                right=IndexConst(value=0),
            ) if by > 0:
                found[name] = math.lcm(found.get(name, 1), by)
            case _:
                pass
    return found
