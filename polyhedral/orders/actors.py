"""Who touches memory in a launch: every access with its thread, and the loops and conditions around it.

A thread is (lane, warp). Statements of a band give both as affine forms of the band's digits, `once` is thread 0, and
a replicated statement runs on every thread. Each thread digit is defined once in a launch, before all that uses it:
two statements with equal digits therefore belong to one par, and a thread runs both at equal values of its digits.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from texpr.grammar.ast import (
    AccOp,
    Compare,
    CompareOp,
    Condition,
    IndexExpr,
    IndexVar,
    Not,
    Read,
    SizeVar,
    Subscript,
)
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import ZERO, add, const, multiply, names
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.walk import rewrite
from texpr.polyhedral.mapped.expand import expand, unfolded
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import (
    Contract,
    Generic,
    Operator,
    Origin,
    Reduce,
    Scan,
    Unload,
    Unused,
)
from texpr.polyhedral.mapped.places import Digit, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.sync import Acquire, Barrier, Close, Commit, Drain, Fence, Skip, Wait, WaitGroup
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node
from texpr.polyhedral.mapped.views import Box
from texpr.polyhedral.mapped.walks import Path, acting, branches, operator_buffers, statements
from texpr.polyhedral.walk import value_reads

LANE, WARP = IndexVar(name="@lane"), IndexVar(name="@warp")
Env = Mapping[str, IndexExpr]
Tree = TypeVar("Tree", IndexExpr, Condition, Subscript)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What encloses a node: nodes and path, each defined index over digits and `dims`, and constraints on those; and
    the thread digits that are defined before it. `leads`: indices that an address decides, which may have any value in
    every iteration of the loops."""

    nodes: tuple[Node, ...] = ()
    path: Path = ()
    env: Env
    dims: tuple[str, ...] = ()
    constraints: tuple[Condition, ...] = ()
    digits: frozenset[str] = frozenset()
    leads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A statement, or the condition of a guard, on its threads: `dims` are its loops and then its digits, `constraints`
    are on those, `LANE` and `WARP`. `band_depth` counts the nodes around the definition of its band's indices: loops
    further inside belong to one thread. `proved`: its accesses are those of the program, of which the proof of races
    speaks; the mapping's own exchange of partial results is not."""

    id: str
    span: Span
    around: Around
    digits: tuple[str, ...]
    dims: tuple[str, ...]
    constraints: tuple[Condition, ...]
    band_depth: int
    proved: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """One access; `subscripts` are over the dims of the actor and what is fixed in a launch. `op` is the operator of an
    update; `atomic` says that it is indivisible."""

    actor: Actor
    buffer: str
    subscripts: tuple[Subscript, ...]
    writes: bool
    op: AccOp | None = None
    atomic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Actors:
    """Accesses of a launch in text order; `entries` has the nodes around each local's `Fresh`, `alike` the indices that
    an address decides and that are one value for a block."""

    touches: tuple[Touch, ...]
    alike: tuple[str, ...]
    entries: Mapping[str, tuple[Node, ...]]


def collect(launch: Launch, warp_size: int, buffers: Set[str]) -> Actors:
    """The accesses of a launch to some buffers."""
    collector = _Collector(launch, warp_size, buffers)
    collector.visit(launch.body, Around(env={}))
    return Actors(touches=tuple(collector.touches), alike=tuple(collector.alike), entries=collector.entries)


class _Collector:
    def __init__(self, launch: Launch, warp_size: int, buffers: Set[str]) -> None:
        self.launch, self.warp_size, self.buffers = launch, warp_size, buffers
        self.by_name = {d.name: d for d in launch.digits}
        self.touches: list[Touch] = []
        self.alike: list[str] = []
        self.entries: dict[str, tuple[Node, ...]] = {}
        self.defined: dict[str, int] = {}  # thread digit -> number of nodes around its `Define`

    @cached_property
    def names(self) -> Mapping[Path, str]:
        """What the nodes that touch memory are called, by their paths."""
        return {place.path: name for name, place in acting(self.launch.body)}

    def visit(self, body: Sequence[Node], around: Around) -> None:
        """The accesses of nodes that stand in a row, with what those before them define."""
        for number, node in enumerate(body):
            path = (*around.path, number)
            match node:
                case Define(index=index, digits=digits):
                    self._define(digits, len(around.nodes))
                    env = {**around.env, index: put(node.value, around.env)}
                    around = replace(around, env=env, digits=around.digits | {d.name for d in digits})
                case Loop(index=index, extent=extent, body=inside):
                    limits = below(IndexVar(name=index), put(extent, around.env))
                    here = Around(
                        nodes=(*around.nodes, node),
                        path=(*path, 0),
                        env={name: value for name, value in around.env.items() if name != index},
                        dims=(*around.dims, index),
                        constraints=around.constraints + limits,
                        digits=around.digits,
                        leads=around.leads,
                    )
                    self.visit(inside, here)
                case Lead(index=index, of=of, bytes=bytes_):
                    reached = (names(put(s, around.env)) for s in of.subscripts)
                    alike = frozenset[str]().union(*reached).isdisjoint({*around.dims, *around.digits})
                    self.alike += [index] if alike else []
                    limits = below(IndexVar(name=index), const(bytes_ // of.dtype.size_bytes))
                    around = replace(
                        around,
                        constraints=around.constraints + limits,
                        leads=around.leads if alike else (*around.leads, index),
                    )
                case Guard(condition=condition):
                    self._guard(node, condition, replace(around, path=path))
                case _ if isinstance(node, Operator) and not isinstance(node, Contract | Unload):
                    if not self.buffers.isdisjoint(operator_buffers(node)):
                        self._operator(node, replace(around, path=path))
                case Fresh(buffer=buffer):
                    self.entries[buffer] = around.nodes
                case Last(body=inside):
                    self.visit(inside, replace(around, nodes=(*around.nodes, node), path=(*path, 0)))
                case Barrier() | Fence() | Acquire() | Drain() | Commit() | Wait() | Skip() | Close() | WaitGroup():
                    pass
                case _:
                    raise InternalError(f"{self.launch.name}: the accesses of a {type(node).__name__} are not ordered")

    def _define(self, digits: Sequence[Digit], depth: int) -> None:
        for digit in digits:
            if digit.place in (Place.LANE, Place.WARP):
                if digit.name in self.defined:
                    raise InternalError(f"{self.launch.name}: the thread digit {digit.name} is defined twice")
                self.defined[digit.name] = depth

    def _guard(self, node: Guard, condition: Condition | Read, here: Around) -> None:
        holds: Condition | None = None
        if isinstance(condition, Read):
            first = next(statements((node,)), None)
            every = node.uniform is not Scope.THREAD
            if first is not None:
                own = self._warps(here) if node.uniform is Scope.WARP else ()
                digits, unused = (own, Unused.REPLICATED) if every else (first.digits, first.unused)
                if node.once:
                    digits, unused = (), Unused.ONCE
                actor = self._actor(self.names[here.path], node.span, here, digits, unused)
                self._reads(actor, value_reads(condition))
        else:
            holds = put(condition, here.env)
        for branch, inside in enumerate(branches(node)):
            more = () if holds is None else (holds,) if branch == 0 else (Not(part=holds),)
            self.visit(
                inside,
                replace(
                    here,
                    nodes=(*here.nodes, node),
                    path=(*here.path, branch),
                    constraints=here.constraints + more,
                ),
            )

    def _warps(self, here: Around) -> tuple[str, ...]:
        """The digits by which warps differ there."""
        return tuple(sorted(name for name in here.digits if self.by_name[name].place is Place.WARP))

    def _operator(self, node: Operator, here: Around) -> None:
        """What an operator touches, for every value of its own indices."""
        actor = self._actor(node.id, node.span, here, node.digits, node.unused)
        match node:
            case Generic():
                self._statement(node, replace(actor, proved=node.origin is not Origin.COMBINE))
            case Reduce(over=over) | Scan(over=over):
                actor = replace(_over(actor, over), proved=False)
                self._reads(actor, node.reads)
                for buffer, subscripts in node.writes:
                    self._touch(actor, buffer, subscripts, writes=True)
            case LookBack():  # registers of a thread, and memory of its own, with the barriers that it needs
                pass
            case _:
                for each, over, inside in unfolded(expand(node)):
                    self._statement(each, _over(actor, over, inside))

    def _statement(self, node: Generic, actor: Actor) -> None:
        self._reads(actor, node.reads)
        store = node.store
        if store is not None:
            self._touch(actor, store.buffer, store.subscripts, writes=True, op=store.op, atomic=store.atomic)

    def _reads(self, actor: Actor, reads: Sequence[Read]) -> None:
        for read in reads:
            self._touch(actor, read.buffer, read.subscripts, writes=False)

    def _touch(self, actor: Actor, buffer: str, subscripts: Sequence[Subscript], **access: Any) -> None:
        if buffer not in self.buffers:
            return
        reached = tuple(put(s, actor.around.env) for s in subscripts)
        self.touches.append(Touch(actor=actor, buffer=buffer, subscripts=reached, **access))

    def _actor(self, id: str, span: Span, here: Around, digits: tuple[str, ...], unused: Unused | None) -> Actor:
        if not here.digits.issuperset(digits):
            raise InternalError(f"{self.launch.name}: {id} uses thread digits that mean nothing where it stands")
        depth, used = len(here.nodes), [] if unused is Unused.ONCE else [self.by_name[name] for name in digits]
        if unused is None:
            depth = min((self.defined[name] for name in digits), default=depth)
        thread = tuple(limit for d in used for limit in below(IndexVar(name=d.name), d.radix))
        lanes = min(self.warp_size, self.launch.threads)
        for coordinate, place, count in ((LANE, Place.LANE, lanes), (WARP, Place.WARP, self.launch.threads // lanes)):
            mine = [(d.stride, d) for d in used if d.place is place]
            if unused is Unused.REPLICATED and not mine:
                thread += below(coordinate, const(count))
            else:
                thread += (Compare(op=CompareOp.EQ, left=coordinate, right=_sum(mine)),)
        return Actor(
            id=id,
            span=span,
            around=here,
            digits=digits,
            dims=here.dims + here.leads + tuple(d.name for d in used),
            constraints=here.constraints + thread,
            band_depth=depth,
        )


def _over(actor: Actor, over: Box, inside: tuple[Condition, ...] = ()) -> Actor:
    """The actor for every value of an operator's indices, which no two threads share."""
    env = {name: value for name, value in actor.around.env.items() if name not in dict(over)}
    limits = [limit for name, extent in over for limit in below(IndexVar(name=name), put(extent, env))]
    return replace(
        actor,
        around=replace(actor.around, env=env),
        dims=actor.dims + tuple(name for name, _ in over),
        constraints=(*actor.constraints, *limits, *(put(condition, env) for condition in inside)),
    )


def put(tree: Tree, env: Env) -> Tree:
    """The expression or condition with what `env` defines."""
    return rewrite(tree, lambda node: env.get(node.name, node) if isinstance(node, IndexVar | SizeVar) else node)


def below(index: IndexExpr, limit: IndexExpr) -> tuple[Condition, ...]:
    """`0 <= index < limit`."""
    return Compare(op=CompareOp.GE, left=index, right=ZERO), Compare(op=CompareOp.LT, left=index, right=limit)


def _sum(terms: Iterable[tuple[IndexExpr, Digit]]) -> IndexExpr:
    total: IndexExpr = ZERO
    for factor, digit in terms:
        total = add(total, multiply(factor, IndexVar(name=digit.name)))
    return total
