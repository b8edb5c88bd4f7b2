"""Who touches memory in a launch: every access with its thread, and the loops and conditions around it, as isl text.

A thread is (lane, warp). Statements of a band give both as affine forms of the band's digits, `once` is thread 0, and
a replicated statement runs on every thread. Each thread digit is defined once in a launch, before all that uses it:
two statements with equal digits therefore belong to one par, and a thread runs both at equal values of its digits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from texpr.grammar.ast import AccOp, Accumulate, Anchor, Atomic, Condition, Read, Subscript
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.text import isl_name, isl_text
from texpr.grammar.source import Span
from texpr.polyhedral.mapped.operators import Generic, Origin, Unused
from texpr.polyhedral.mapped.places import Digit, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node
from texpr.polyhedral.mapped.walks import Path, branches, statements
from texpr.polyhedral.walk import read_accesses, value_reads, written

WARP_SIZE = 32
THREAD = ("lane", "warp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What encloses a node: nodes and path, each index as isl text over the dimensions `dims`, and constraints; and the
    thread digits that are defined before it."""

    nodes: tuple[Node, ...] = ()
    path: Path = ()
    env: Mapping[str, str]
    dims: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    digits: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """A statement, or the condition of a guard, on its threads. `band_depth` counts the nodes around the definition
    of its band's indices: loops further inside belong to one thread. `proved`: its accesses are those of the program,
    of which the proof of races speaks; the mapping's own exchange of partial results is not."""

    id: str
    span: Span
    around: Around
    digits: tuple[str, ...]
    lane: str
    warp: str
    band_depth: int
    proved: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Touch:
    """One access. `op` is the operator of an update; `atomic` says that it is indivisible."""

    actor: Actor
    buffer: str
    subscripts: tuple[Subscript, ...]
    writes: bool
    op: AccOp | None = None
    atomic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Actors:
    """Every access of a launch in text order; `entries` has the nodes around each local's `Fresh`."""

    touches: tuple[Touch, ...]
    entries: Mapping[str, tuple[Node, ...]]


def collect(launch: Launch) -> Actors:
    """The accesses of a launch."""
    collector = _Collector(launch)
    collector.visit(launch.body, Around(env={}))
    return Actors(touches=tuple(collector.touches), entries=collector.entries)


class _Collector:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.by_name = {d.name: d for d in launch.digits}
        self.touches: list[Touch] = []
        self.entries: dict[str, tuple[Node, ...]] = {}
        self.defined: dict[str, int] = {}  # thread digit -> number of nodes around its `Define`

    def visit(self, body: Sequence[Node], around: Around) -> None:
        known, digits_here = dict(around.env), around.digits
        for number, node in enumerate(body):
            here = replace(around, path=(*around.path, number), env=known, digits=digits_here)
            match node:
                case Define(index=index, digits=digits):
                    known = {**known, index: self._define(digits, len(around.nodes))}
                    digits_here |= {d.name for d in digits}
                case Loop(index=index, extent=extent, body=inside):
                    name, bound = isl_name(index), isl_text(extent, known)
                    limits = (f"0 <= {name}",) if bound is None else (f"0 <= {name}", f"{name} < {bound}")
                    self.visit(
                        inside,
                        Around(
                            nodes=(*around.nodes, node),
                            path=(*here.path, 0),
                            env={**known, index: name},
                            dims=(*around.dims, name),
                            constraints=around.constraints + limits,
                            digits=digits_here,
                        ),
                    )
                case Guard(condition=condition):
                    self._guard(node, condition, here)
                case Generic():
                    self._statement(node, here)
                case Fresh(buffer=buffer):
                    self.entries[buffer] = around.nodes

    def _define(self, digits: Sequence[Digit], depth: int) -> str:
        for digit in digits:
            if digit.place in (Place.LANE, Place.WARP):
                if digit.name in self.defined:
                    raise InternalError(f"{self.launch.name}: the thread digit {digit.name} is defined twice")
                self.defined[digit.name] = depth
        return f"({' + '.join(f'{d.weight}*{isl_name(d.name)}' for d in digits)})" if digits else "0"

    def _guard(self, node: Guard, condition: Condition | Read, here: Around) -> None:
        holds: str | None = None
        if isinstance(condition, Read):
            first = next(statements((node,)), None)
            every = node.uniform is not Scope.THREAD
            if first is not None:
                digits, unused = ((), Unused.REPLICATED) if every else (first.digits, first.unused)
                if node.once:
                    digits, unused = (), Unused.ONCE
                name = "if@" + ".".join(map(str, here.path))
                actor = self._actor(name, node.span, here, digits, unused)
                self._reads(actor, value_reads(condition))
        else:
            holds = isl_text(condition, here.env)
        for branch, inside in enumerate(branches(node)):
            more = () if holds is None else (f"({holds})",) if branch == 0 else (f"not ({holds})",)
            self.visit(
                inside,
                replace(
                    here,
                    nodes=(*here.nodes, node),
                    path=(*here.path, branch),
                    constraints=here.constraints + more,
                ),
            )

    def _statement(self, node: Generic, here: Around) -> None:
        leaf = node.leaf
        actor = self._actor(node.id, node.span, here, node.digits, node.unused)
        actor = replace(actor, proved=node.origin is not Origin.COMBINE)
        self._reads(actor, read_accesses(leaf))
        write = written(leaf)
        if write is not None and not isinstance(leaf, Anchor):
            op = leaf.op if isinstance(leaf, Accumulate | Atomic) else None
            buffer, subscripts = write
            self.touches.append(
                Touch(actor=actor, buffer=buffer, subscripts=subscripts, writes=True, op=op, atomic=node.atomic)
            )

    def _reads(self, actor: Actor, reads: Sequence[Read]) -> None:
        for read in reads:
            self.touches.append(Touch(actor=actor, buffer=read.buffer, subscripts=read.subscripts, writes=False))

    def _actor(self, id: str, span: Span, here: Around, digits: tuple[str, ...], unused: Unused | None) -> Actor:
        lane, warp = "0", "0"
        depth, dims, constraints = len(here.nodes), here.dims, here.constraints
        if not here.digits.issuperset(digits):
            raise InternalError(f"{self.launch.name}: {id} uses thread digits that mean nothing where it stands")
        if unused is Unused.REPLICATED:
            lane, warp = THREAD
            lanes, warps = min(WARP_SIZE, self.launch.threads), max(1, self.launch.threads // WARP_SIZE)
            constraints = (*constraints, f"0 <= lane < {lanes}", f"0 <= warp < {warps}")
        elif unused is None:
            used = [self.by_name[name] for name in digits]
            depth = min((self.defined[name] for name in digits), default=depth)
            lane, warp = (_coordinate(used, place) for place in (Place.LANE, Place.WARP))
            dims += tuple(isl_name(d.name) for d in used)
            constraints += tuple(f"0 <= {isl_name(d.name)} < {isl_text(d.radix, {})}" for d in used)
        around = replace(here, dims=dims, constraints=constraints)
        return Actor(id=id, span=span, around=around, digits=digits, lane=lane, warp=warp, band_depth=depth)


def _coordinate(digits: Sequence[Digit], place: Place) -> str:
    parts = [f"{isl_text(d.stride, {})}*{isl_name(d.name)}" for d in digits if d.place is place]
    return f"({' + '.join(parts)})" if parts else "0"
