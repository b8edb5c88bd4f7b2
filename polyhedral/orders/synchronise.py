"""Synchronisation is placed: where the threads of a block wait.

Barriers stand at first at every place in uniform control flow; what is not needed is taken away, so that none of the
rest can go. `flow.py`, which shares no code with this, checks the result.

    for k { S0 (0) ; S1 (1) }    S0 -> S1,  S1 -> S0 carried by k:   barriers before S1 and at the end of the body

A place is a path: (2,) is before child 2 of the body (after the last one where 2 is the length), (2, 0, 1) before child
1 of the body of child 2; branch 1 is a guard's `orelse`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import Read
from texpr.grammar.diagnostics import InternalError, TExprError, error
from texpr.grammar.index.expr import constant_value, names
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import PLACES, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.sync import Barrier
from texpr.polyhedral.mapped.tree import Define, Guard, Last, Loop, Node
from texpr.polyhedral.mapped.walks import Path, acting, branches, of_kind, operators, with_branches

_ROOT: Path = ()
_WIDTH = {scope: number for number, scope in enumerate(Scope)}


def synchronise(launch: Launch) -> Launch:
    """The launch with the barriers in its body that enforce every order, none of them superfluous.

    Each barrier tells which orders it enforces, those that no other one does first. E0307 for an order that was not
    computed where no barrier can stand; InternalError where others cannot be enforced, which the mapping excludes.
    """
    return replace(launch, body=_inserted(launch.body, _ROOT, _barriers(launch))) if launch.orders else launch


def _inserted(body: Sequence[Node], path: Path, barriers: Mapping[Path, Barrier]) -> tuple[Node, ...]:
    """The body, which is at `path`, with its barriers."""
    found: list[Node] = []
    for number, node in enumerate(body):
        here = (*path, number)
        found += [barriers[here]] if here in barriers else []
        inside = [_inserted(inner, (*here, branch), barriers) for branch, inner in enumerate(branches(node))]
        found.append(with_branches(node, inside))
    end = (*path, len(body))
    return (*found, barriers[end]) if end in barriers else tuple(found)


def _barriers(launch: Launch) -> dict[Path, Barrier]:
    """The barriers of a launch by their places."""
    between = _Separations(launch.body)
    kept = dict(_candidates(launch))
    enforcing = {
        order: frozenset(p for p in between(order) & kept.keys() if _WIDTH[kept[p]] >= _WIDTH[order.scope])
        for order in launch.orders
        if order.scope is not Scope.CLUSTER and not between.counted(order)
    }
    unmet = [o for o, places in enforcing.items() if not places]
    guessed = [order for order in unmet if not order.computed]
    if guessed:
        raise _too_hard(guessed[0])
    if unmet:
        raise InternalError(f"{launch.name}: no barrier can stand between {unmet[0].source} and {unmet[0].sink}")
    for path in sorted(kept, key=lambda p: (-_loops(launch.body, p), -len(p), p)):
        rest = kept.keys() - {path}
        if all(places & rest for places in enforcing.values()):
            del kept[path]
    left = {order: places & kept.keys() for order, places in enforcing.items()}
    for path in kept:
        if all(o.scope is Scope.WARP for o in _only(path, kept, left)):
            kept[path] = Scope.WARP
    return {path: Barrier(scope=scope, orders=_reasons(path, scope, kept, left)) for path, scope in kept.items()}


def _too_hard(order: Order) -> TExprError:
    """No barrier can stand where an order is required that took too many steps to find or to exclude."""
    message = f"the order of accesses to {order.buffer} by threads of one block takes too many steps"
    help = "bind the sizes, or write simpler subscripts and conditions"
    return TExprError([error("E0307", message, order.sink_span, help=help)])


def _only(path: Path, kept: dict[Path, Scope], left: dict[Order, frozenset[Path]]) -> list[Order]:
    """The orders that only this position enforces, counting scopes; `left` has the kept positions of each order."""
    return [
        order
        for order, places in left.items()
        if path in places and not any(p != path and _WIDTH[kept[p]] >= _WIDTH[order.scope] for p in places)
    ]


def _reasons(
    path: Path, scope: Scope, kept: dict[Path, Scope], left: dict[Order, frozenset[Path]]
) -> tuple[Order, ...]:
    first = dict.fromkeys(_only(path, kept, left))
    rest = [o for o, p in left.items() if path in p and o not in first and _WIDTH[scope] >= _WIDTH[o.scope]]
    return (*first, *rest)


class _Separations:
    """`_separating` by order, each pair of statements, carrying loop and distance worked out once."""

    def __init__(self, body: Sequence[Node]) -> None:
        self._body = body
        self._paths = {id: place.path for id, place in acting(body)}
        self._found: dict[tuple[str, str, str | None, bool], frozenset[Path]] = {}

    def counted(self, order: Order) -> bool:
        """Whether the source is over before its block is counted, in the same iteration, and the sink in what the last
        block does: to be counted is also a barrier of the block, so no other one is needed there."""
        source, sink = self._paths[order.source], self._paths[order.sink]
        return order.carried_by is None and isinstance(self._body[sink[0]], Last) and source[0] < sink[0]

    def __call__(self, order: Order) -> frozenset[Path]:
        far = (order.distance or 1) > 1
        key = (order.source, order.sink, order.carried_by, far)
        if key not in self._found:
            source, sink = self._paths[order.source], self._paths[order.sink]
            self._found[key] = frozenset(_separating(self._body, source, sink, order.carried_by, far))
        return self._found[key]


def _candidates(launch: Launch) -> Iterator[tuple[Path, Scope]]:
    """Every slot in control flow that is uniform over a block, or over a warp, and does not split a band or stand after
    a `Define` or `Fresh`."""
    in_block, in_warp = (_varying(launch, scope) for scope in (Scope.BLOCK, Scope.WARP))

    def within(body: Sequence[Node], path: Path, scope: Scope) -> Iterator[tuple[Path, Scope]]:
        for number in range(len(body) + 1):
            before = body[number - 1] if number > 0 else None
            after = body[number] if number < len(body) else None
            if not isinstance(before, Define) and not _one_band(before, after):
                yield (*path, number), scope
            if after is None or _band(after):
                continue
            alike = scope is Scope.BLOCK and _uniform(after, in_block, Scope.BLOCK)
            if alike or _uniform(after, in_warp, Scope.WARP):
                for branch, inside in enumerate(branches(after)):
                    yield from within(inside, (*path, number, branch), Scope.BLOCK if alike else Scope.WARP)

    yield from within(launch.body, (), Scope.BLOCK)


def _varying(launch: Launch, scope: Scope) -> frozenset[str]:
    """The names whose value is not the same in all threads of a block, or of a warp."""
    found = {d.name for d in launch.hardware if _WIDTH[PLACES[d.place].alike] < _WIDTH[scope]}
    for define in of_kind(launch.body, Define):
        if names(define.value) & found:
            found.add(define.index)
    return frozenset(found)


def _uniform(node: Node, varying: frozenset[str], scope: Scope) -> bool:
    """Whether all threads of a block, or of a warp, run the node's body alike."""
    match node:
        case Loop(extent=extent, digit=digit):
            return digit is None and not names(extent) & varying
        case Last():
            return True
        case Guard(condition=condition, uniform=uniform):
            if isinstance(condition, Read):
                return _WIDTH[uniform] >= _WIDTH[scope]
            return not names(condition) & varying
        case _:
            return False


def _asked_by_all(node: Node) -> bool:
    """Whether all threads of a warp or of a block read what a guard asks, whoever runs its body."""
    return isinstance(node, Guard) and isinstance(node.condition, Read) and node.uniform is not Scope.THREAD


def _band(node: Node | None) -> tuple[str, ...]:
    """The thread digits of a node that belongs to one band altogether, else ()."""
    if node is None or isinstance(node, Last) or _asked_by_all(node):
        return ()
    found = {operator.digits for operator in operators((node,))}
    if isinstance(node, Define):
        return tuple(d.name for d in node.digits if d.place in (Place.LANE, Place.WARP))
    defines = any(of_kind((node,), Define))
    return found.pop() if len(found) == 1 and not (defines and isinstance(node, Loop) and node.digit is None) else ()


def _one_band(before: Node | None, after: Node | None) -> bool:
    return bool(_band(before)) and _band(before) == _band(after)


def _loops(body: Sequence[Node], path: Path) -> int:
    """The number of loops around a slot."""
    count = 0
    for child, branch in zip(path[0:-1:2], path[1::2], strict=True):
        count += isinstance(body[child], Loop)
        body = branches(body[child])[branch]
    return count


def _separating(body: Sequence[Node], source: Path, sink: Path, carried_by: str | None, far: bool) -> Iterator[Path]:
    """The slots that every thread surely passes between an instance of the source and one of the sink after it: those
    of a whole iteration where a loop carries them `far`, with another iteration between theirs."""
    if carried_by is not None:
        nodes, path = body, _ROOT
        while True:
            node, path = nodes[source[len(path)]], source[: len(path) + 2]
            nodes = branches(node)[path[-1]]
            if isinstance(node, Loop) and node.index == carried_by:
                break
        if sink[: len(path)] != path:
            raise InternalError(f"an order is carried by {carried_by}, which is not around both of its statements")
        yield from _after(nodes, path, source)
        yield from _before(nodes, path, sink)
        if far:
            yield from _whole(nodes, path)
        return
    nodes, path = body, _ROOT
    while source[len(path)] == sink[len(path)] and len(source) > len(path) + 1:
        node, path = nodes[source[len(path)]], source[: len(path) + 2]
        nodes = branches(node)[path[-1]]
    first, last = source[len(path)], sink[len(path)]
    if len(source) > len(path) + 1:
        inner = source[: len(path) + 2]
        yield from _after(branches(nodes[first])[inner[-1]], inner, source)
    yield from ((*path, slot) for slot in range(first + 1, last + 1))
    for number in range(first + 1, last):
        yield from _inside(nodes[number], (*path, number))
    if len(sink) > len(path) + 1:
        inner = sink[: len(path) + 2]
        yield from _before(branches(nodes[last])[inner[-1]], inner, sink)


def _after(nodes: Sequence[Node], path: Path, target: Path) -> Iterator[Path]:
    """Slots surely passed from the target to the end of the list, which is at `path`."""
    child = target[len(path)]
    if len(target) > len(path) + 1:
        inner = target[: len(path) + 2]
        yield from _after(branches(nodes[child])[inner[-1]], inner, target)
    yield from ((*path, slot) for slot in range(child + 1, len(nodes) + 1))
    for number in range(child + 1, len(nodes)):
        yield from _inside(nodes[number], (*path, number))


def _before(nodes: Sequence[Node], path: Path, target: Path) -> Iterator[Path]:
    """Slots surely passed from the start of the list, which is at `path`, to the target."""
    child = target[len(path)]
    yield from ((*path, slot) for slot in range(child + 1))
    for number in range(child):
        yield from _inside(nodes[number], (*path, number))
    if len(target) > len(path) + 1:
        inner = target[: len(path) + 2]
        yield from _before(branches(nodes[child])[inner[-1]], inner, target)


def _inside(node: Node, path: Path) -> Iterator[Path]:
    """Slots inside a node that are surely passed when it is run: those of loops with at least one iteration."""
    if isinstance(node, Loop) and (constant_value(node.extent) or 0) > 0:
        yield from _whole(node.body, (*path, 0))


def _whole(nodes: Sequence[Node], path: Path) -> Iterator[Path]:
    """Slots surely passed when a list, which is at `path`, is run."""
    yield from ((*path, slot) for slot in range(len(nodes) + 1))
    for number, inner in enumerate(nodes):
        yield from _inside(inner, (*path, number))
