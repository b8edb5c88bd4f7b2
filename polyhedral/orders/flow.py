"""The check that synchronisation enforces every order, on the control flow graph of a launch.

Points are the slots of every list of nodes; steps lead from slot to slot through a node. A loop may be left before its
first iteration unless its extent is a positive constant, and a back step begins its next iteration. An order is
enforced iff no walk leads from behind its source to before its sink without crossing a barrier wide enough; an order in
one iteration walks no back step of the loops around both, a carried one walks at least as many of its loop as its
distance and none of the loops around that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import Condition, IndexConst, Read
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import names
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.access import Access
from texpr.polyhedral.mapped.between import GridBarrier
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import Combined, Copy, Operator
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import PLACES, Scope
from texpr.polyhedral.mapped.program import Launch, MappedBuffer
from texpr.polyhedral.mapped.sync import Action, Barrier
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node
from texpr.polyhedral.mapped.walks import (
    acting,
    after_waiting,
    counted_blocks,
    every_node,
    meets_at_whole_barriers,
    of_kind,
    operators,
)
from texpr.polyhedral.orders.tickets import miscounted, miscounts, orders_blocks
from texpr.polyhedral.walk import subscript_names

Path = tuple[int, ...]
_RANK = {scope: number for number, scope in enumerate(Scope)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step to a slot; `back` is the path of the loop whose next iteration it begins."""

    to: Path
    back: Path | None = None


@dataclass(slots=True, kw_only=True)
class _Graph:
    """Steps by slot, and where barriers and loops stand."""

    steps: dict[Path, list[_Step]]
    barriers: dict[Path, Scope]
    loops: dict[str, list[Path]]


def decides(launch: Launch, buffers: Mapping[str, MappedBuffer]) -> bool:
    """Whether this check speaks of the launch: threads of a block, which meet at whole barriers only, behind a wait at
    the launch's start, and touch no memory of other blocks of their cluster, and blocks that are counted once, at the
    outermost level."""
    narrow = all(_RANK[order.scope] <= _RANK[Scope.BLOCK] for order in launch.orders)
    return (narrow or bool(counted_blocks(launch))) and meets_at_whole_barriers(after_waiting(launch), buffers)


def decides_phases(launch: Launch, buffers: Mapping[str, MappedBuffer]) -> bool:
    """Whether this check speaks of a launch whose blocks meet at barriers of the grid, and else as `decides` says."""
    several = any(isinstance(node, GridBarrier) for node in every_node(launch.body))
    return several and meets_at_whole_barriers(after_waiting(launch), buffers, of_grid=True)


def check_enforced(launch: Launch) -> None:
    """InternalError where the launch has an order that no barrier enforces, or a barrier where threads diverge."""
    wrong = miscounted(launch)
    if wrong is not None:
        raise InternalError(f"{launch.name}: {wrong.counter} is not what so many blocks come to as it waits for")
    for order in unenforced(launch):
        raise InternalError(f"{launch.name}: no barrier orders {order.source} before {order.sink} on {order.buffer}")


def unenforced(launch: Launch) -> tuple[Order, ...]:
    """The orders that the barriers of the launch do not enforce. InternalError for one where threads diverge."""
    if not launch.orders and not any(
        isinstance(node, Barrier | GridBarrier | Combined | Last | LookBack) for node in every_node(launch.body)
    ):
        return ()
    launch = after_waiting(launch)
    graph = _Graph(steps={}, barriers={}, loops={})
    _build(launch, graph, launch.body, (), Scope.GRID, _Varying.of(launch))
    places = {name: place.path for name, place in acting(launch.body)}
    claims: tuple[Last | GridBarrier, ...] = (*counted_blocks(launch), *of_kind(launch.body, GridBarrier))
    claimed = (order for node in claims for order in node.orders)
    return tuple(o for o in (*launch.orders, *claimed) if not _enforced(launch, graph, o, places))


def _enforced(launch: Launch, graph: _Graph, order: Order, places: Mapping[str, Path]) -> bool:
    """Whether barriers, of a block or of the grid, or a count of blocks, order the source before the sink."""
    for name in (order.source, order.sink):
        if name not in places:
            raise InternalError(f"{launch.name}: {name} is ordered and is no operator")
    source, sink = places[order.source], places[order.sink]
    if _RANK[order.scope] <= _RANK[Scope.BLOCK]:
        return not _reaches(graph, order, source, sink)
    if orders_blocks(launch.body, order, source, sink):
        return True
    after = _reaches(replace(graph, barriers={}), order, source, sink)  # else other blocks may come to it at any time
    return after and not _reaches(graph, order, source, sink)


def _reaches(graph: _Graph, order: Order, source: Path, sink: Path) -> bool:
    """Whether the sink can begin after the source without a barrier of the order's scope between them."""
    around = [p for paths in graph.loops.values() for p in paths if source[: len(p)] == p and sink[: len(p)] == p]
    carrier = next((p for p in graph.loops.get(order.carried_by or "", ()) if p in around), None)
    if order.carried_by is not None and carrier is None:
        raise InternalError(f"the order {order.source} -> {order.sink} is carried by no loop around both")
    forbidden = {p for p in around if carrier is None or len(p) < len(carrier)}
    far = 0 if carrier is None else order.distance or 1
    open_states = [(step.to, 0) for step in graph.steps[source]]
    seen = set(open_states)
    while open_states:
        slot, walked = open_states.pop()
        if slot in graph.barriers and _RANK[graph.barriers[slot]] >= _RANK[order.scope]:
            continue
        if slot == sink and walked == far:
            return True
        for step in graph.steps[slot]:
            if step.back is not None and step.back in forbidden:
                continue
            state = (step.to, min(far, walked + (step.back is not None and step.back == carrier)))
            if state not in seen:
                seen.add(state)
                open_states.append(state)
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Varying:
    """Names that differ between the lanes of a warp, between threads of a block, and between blocks."""

    in_warp: frozenset[str]
    in_block: frozenset[str]
    in_grid: frozenset[str]

    @staticmethod
    def of(launch: Launch) -> "_Varying":
        ranks = [(digit.name, _RANK[PLACES[digit.place].alike]) for digit in launch.digits]
        return _Varying(
            in_warp=frozenset(name for name, rank in ranks if rank < _RANK[Scope.WARP]),
            in_block=frozenset(name for name, rank in ranks if rank < _RANK[Scope.BLOCK]),
            in_grid=frozenset(digit.name for digit in launch.hardware),
        )

    def with_index(self, index: str, used: frozenset[str]) -> "_Varying":
        return _Varying(
            in_warp=self.in_warp | {index} if used & self.in_warp else self.in_warp - {index},
            in_block=self.in_block | {index} if used & self.in_block else self.in_block - {index},
            in_grid=self.in_grid | {index} if used & self.in_grid else self.in_grid - {index},
        )

    def together(self, used: frozenset[str]) -> Scope:
        """The widest scope in which an expression of these names has one value."""
        if used & self.in_warp:
            return Scope.THREAD
        if used & self.in_block:
            return Scope.WARP
        return Scope.BLOCK if used & self.in_grid else Scope.GRID


def _build(launch: Launch, graph: _Graph, body: Sequence[Node], path: Path, scope: Scope, varying: _Varying) -> None:
    """Steps of one list; `scope` says which threads run it together."""
    for number, node in enumerate(body):
        here, behind = (*path, number), (*path, number + 1)
        match node:
            case Define(index=index):
                varying = varying.with_index(index, names(node.value))
                graph.steps[here] = [_Step(to=behind)]
            case Loop(index=index, extent=extent, body=inside):
                graph.loops.setdefault(index, []).append(here)
                first = _Step(to=(*here, 0, 0))
                some = isinstance(extent, IndexConst) and extent.value > 0
                graph.steps[here] = [first] if some else [first, _Step(to=behind)]
                used = names(extent)
                inner = varying.with_index(index, used)
                _build(launch, graph, inside, (*here, 0), _narrower(scope, varying.together(used)), inner)
                graph.steps[(*here, 0, len(inside))] = [_Step(to=(*here, 0, 0), back=here), _Step(to=behind)]
            case Guard(condition=condition, body=then, orelse=orelse):
                graph.steps[here] = [_Step(to=(*here, 0, 0)), _Step(to=(*here, 1, 0))]
                inside_scope = _narrower(scope, _condition_scope(launch, node, condition, varying))
                for branch, inside in enumerate((then, orelse)):
                    _build(launch, graph, inside, (*here, branch), inside_scope, varying)
                    graph.steps[(*here, branch, len(inside))] = [_Step(to=behind)]
            case Barrier(scope=own, parts=(), action=Action.BOTH, name=""):
                if _RANK[scope] < _RANK[own]:
                    raise InternalError(f"{launch.name}: a barrier of the {own} stands where threads diverge")
                graph.barriers[here] = own
                graph.steps[here] = [_Step(to=behind)]
            case GridBarrier():
                if _RANK[scope] < _RANK[Scope.GRID]:
                    raise InternalError(f"{launch.name}: a barrier of the grid stands where blocks diverge")
                graph.barriers[here] = Scope.GRID
                graph.steps[here] = [_Step(to=behind)]
            case Last(body=inside):
                graph.barriers[here] = Scope.BLOCK
                graph.steps[here] = [_Step(to=(*here, 0, 0)), _Step(to=behind)]
                _build(launch, graph, inside, (*here, 0), scope, varying)
                graph.steps[(*here, 0, len(inside))] = [_Step(to=behind)]
            case Lead(index=index, of=of):
                varying = varying.with_index(index, subscript_names(of.subscripts))
                graph.steps[here] = [_Step(to=behind)]
            case Combined(id=id, lanes=lanes) if lanes > 1 and _RANK[scope] < _RANK[Scope.WARP]:
                raise InternalError(f"{launch.name}: {id} combines lanes where they diverge")
            case Copy(id=id, access=Access.SHIFTED) if _RANK[scope] < _RANK[Scope.WARP]:
                raise InternalError(f"{launch.name}: {id} moves what lanes have side by side where they diverge")
            case LookBack(id=id) if len(path) or miscounts(launch, node):
                raise InternalError(f"{launch.name}: {id} does not have each part of a place in a block of its own")
            case _ if isinstance(node, Operator | Fresh):
                graph.steps[here] = [_Step(to=behind)]
            case _:
                raise InternalError(f"{launch.name}: orders around a {type(node).__name__} are not checked")
    graph.steps.setdefault((*path, len(body)), [])


def _narrower(a: Scope, b: Scope) -> Scope:
    return a if _RANK[a] < _RANK[b] else b


def _condition_scope(launch: Launch, node: Guard, condition: Condition | Read, varying: _Varying) -> Scope:
    if not isinstance(condition, Read):
        return varying.together(names(condition))
    if _RANK[node.uniform] >= _RANK[Scope.BLOCK] and _written_alike(launch.body, condition.buffer):
        return Scope.BLOCK
    return Scope.THREAD


def _written_alike(body: Sequence[Node], buffer: str) -> bool:
    """Whether every statement that writes the condition runs outside all bands, so that all threads see one value."""
    return not any(node.digits and any(name == buffer for name, _ in node.writes) for node in operators(body))
