"""Coverage checked: every iteration of a statement runs once, every element that a kernel binds is stored once.

An iteration, or an element, is a tuple of expressions over digits and loop indices, under the conditions around it.
Coordinates of the tuple that share no digit, loop or condition are counted apart, so that `par 8192 i, 8192 j` takes
16384 values and not 67108864; what takes more than `POINTS` values is said not to be checked.

    C[i, j]     i = 4*i_block + i_warp under i < M      each value below M by one i_block and i_warp
                j = 32*j_block + j_lane under j < N     likewise
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from texpr.polyhedral.verify.certificates import RefutedError
from texpr.polyhedral.verify.integers import Tree, Values, compiled, compiled_condition, names_in

POINTS = 200_000


class OpenError(Exception):
    """Why something is not checked."""


@dataclass(frozen=True, slots=True)
class Points:
    """The tuples `at`, for all values of the variables below their extents (which may depend on those before) where the
    conditions hold. Sizes are in place. Of values of the `outer` ones that have equal `tickets` one counts, whichever:
    all must give the same."""

    variables: tuple[tuple[str, Tree], ...]
    where: tuple[Tree, ...]
    at: tuple[Tree, ...]
    tickets: tuple[Tree, ...] = ()
    outer: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a count: `beyond`, points that are none may be had too; `again`, a point more than once. At most
    `points` are counted."""

    beyond: bool = False
    again: bool = False
    points: int = POINTS


def check_points(wanted: Points, found: Sequence[Points], sizes: Values, asked: Asked) -> int:
    """How many points there are, each of which `found` has once. RefutedError with one that it has another number of
    times, or with one that is none, but for what `asked` allows; OpenError where there are too many to count."""
    wanted, found = _split(wanted), [points for points in map(_split, found) if _any(points, sizes)]
    if not _any(wanted, sizes):
        return 0
    if not found:
        raise OpenError("no node of its own runs at these sizes: others do its work")
    parts = [_joined(points) for points in (wanted, *found)]
    groups = _merged(len(wanted.at), parts)
    if len(found) > 1:
        groups = [tuple(range(len(wanted.at)))]
    total = 1
    for group in groups:
        goal = _count(wanted, group, sizes, asked.points)
        there: Counter[tuple[int, ...]] = Counter()
        for points in found:
            there.update(_count(points, group, sizes, asked.points))
        for point, times in goal.items():
            if times != 1:
                raise OpenError(f"{_shown(group, point)} is had {times} times by the program itself")
            if there[point] != 1 and not (asked.again and there[point] > 1):
                raise RefutedError(f"{_shown(group, point)} runs {there[point]} times")
        if not asked.beyond:
            more = next((point for point in there if point not in goal), None)
            if more is not None:
                raise RefutedError(f"{_shown(group, more)} runs, and is no iteration")
        total *= len(goal)
    return total


def _split(points: Points) -> Points:
    """The same, each part of a conjunction a condition of its own."""
    where, work = list[Tree](), list(points.where)
    while work:
        tree = work.pop()
        if isinstance(tree, list) and tree[0] == "and":
            work += tree[1:]
        else:
            where.append(tree)
    return replace(points, where=tuple(where))


def _shown(group: tuple[int, ...], point: tuple[int, ...]) -> str:
    return ", ".join(f"coordinate {dim} = {value}" for dim, value in zip(group, point, strict=True))


def _any(points: Points, sizes: Values) -> bool:
    """Whether conditions on sizes alone, and extents of 0, leave any point."""
    known = set(sizes)
    for tree in points.where:
        if names_in(tree) <= known and not compiled_condition(tree)(sizes):
            return False
    return all(not names_in(extent) <= known or compiled(extent)(sizes) > 0 for _, extent in points.variables)


def _joined(points: Points) -> list[set[int]]:
    """Which coordinates depend on one another."""
    own = {name for name, _ in points.variables}
    together: list[set[str]] = [{name} | (names_in(extent) & own) for name, extent in points.variables]
    together += [names_in(tree) & own for tree in points.where]
    together += [names_in(tree) & own for tree in points.tickets]
    marked = [{f"#{dim}"} | (names_in(tree) & own) for dim, tree in enumerate(points.at)]
    groups: list[set[str]] = []
    for cluster in (*together, *marked):
        hit = [g for g in groups if g & cluster]
        groups = [g for g in groups if not g & cluster] + [cluster.union(*hit)]
    return [{int(name[1:]) for name in group if name.startswith("#")} for group in groups]


def _merged(rank: int, parts: Sequence[list[set[int]]]) -> list[tuple[int, ...]]:
    groups: list[set[int]] = [{dim} for dim in range(rank)]
    for own in parts:
        for cluster in own:
            hit = [g for g in groups if g & cluster]
            if hit:
                groups = [g for g in groups if not g & cluster] + [set[int]().union(*hit)]
    return [tuple(sorted(group)) for group in groups]


def _count(points: Points, group: tuple[int, ...], sizes: Values, most: int) -> Counter[tuple[int, ...]]:
    """How often each value of some coordinates is had; the others may have any value that there is."""
    own = {name for name, _ in points.variables}
    needed = _decided_with(points, group, own)
    others = _others(points, own, needed)
    tickets = [ticket for ticket in points.tickets if (names_in(ticket) & own) - others]
    needed = _closed(points, needed.union(*(names_in(ticket) & own for ticket in tickets)), own)
    loose = {name for name, _ in points.variables} - needed - _others(points, own, needed)
    variables = [(name, compiled(extent)) for name, extent in points.variables if name in needed | loose]
    conditions = _placed(points, [name for name, _ in variables], needed | loose, own)
    at = [compiled(points.at[dim]) for dim in group]
    asked = [compiled(ticket) for ticket in tickets]
    inner = [name for name, _ in variables if name not in points.outer]
    found: Counter[tuple[int, ...]] = Counter()
    ended: dict[tuple[int, ...], tuple[int, ...]] = {}
    for number, values in enumerate(_every(variables, conditions, dict(sizes))):
        if number >= most:
            raise OpenError("there are too many to count: -D NAME=VALUE asks of smaller sizes")
        point = tuple(value(values) for value in at)
        if len(inner) < len(variables):
            key = (*(ticket(values) for ticket in asked), *(values[name] for name in inner))
            if key in ended:
                if ended[key] != point:
                    told = f"{_shown(group, ended[key])} or {_shown(group, point)}"
                    raise RefutedError(f"which block comes last decides whether {told} runs")
                continue
            ended[key] = point
        found[point] += 1
    return found


def _others(points: Points, own: set[str], needed: set[str]) -> set[str]:
    """The variables of the other coordinates: they are counted with those. A variable of no coordinate at all runs a
    point again, and is counted with each."""
    return _decided_with(points, range(len(points.at)), own) - needed


def _decided_with(points: Points, dims: Iterable[int], own: set[str]) -> set[str]:
    """The variables in some coordinates, and all that extents and conditions bring together with them."""
    return _closed(points, set[str]().union(*(names_in(points.at[dim]) for dim in dims)) & own, own)


def _closed(points: Points, some: set[str], own: set[str]) -> set[str]:
    reached, before = set(some), set[str]()
    while before != reached:
        before = set(reached)
        for name, extent in points.variables:
            with_it = {name} | (names_in(extent) & own)
            if with_it & reached:
                reached |= with_it
        for tree in points.where:
            if names_in(tree) & reached:
                reached |= names_in(tree) & own
    return reached


def _placed(points: Points, order: list[str], names: set[str], own: set[str]) -> list[list[Callable[[Values], bool]]]:
    """The conditions, each at the last of its variables in that order; those on none stand first."""
    found: list[list[Callable[[Values], bool]]] = [[] for _ in range(len(order) + 1)]
    for tree in points.where:
        asked = names_in(tree) & own
        if asked <= names:
            place = max((order.index(name) + 1 for name in asked), default=0)
            found[place].append(compiled_condition(tree))
    return found


def _every(
    variables: list[tuple[str, Callable[[Values], int]]],
    conditions: list[list[Callable[[Values], bool]]],
    values: dict[str, int],
    depth: int = 0,
) -> Iterator[Mapping[str, int]]:
    if not all(holds(values) for holds in conditions[depth]):
        return
    if depth == len(variables):
        yield values
        return
    name, extent = variables[depth]
    for value in range(extent(values)):
        values[name] = value
        yield from _every(variables, conditions, values, depth + 1)
    values.pop(name, None)
