"""Launches that begin early: their blocks come to the multiprocessors while the one before ends, and wait there for it
before anything else, so that a program of short launches does not pay for each of them as for the first.

    {"early": ["f_1"]}      f_1 is `after launch`, then what it was; f_0 lets it begin where all blocks of f_0 are there

It is always right, for the wait stands before every access: of a launch one of whose threads brings all that is read,
in that thread, so that what else begins a launch is over by then. What a launch reads may then be written while it
begins, so its loads are not those of read-only memory: that is for launches that are over before they are at full
speed, and for those whose copies go by boxes, which are no such loads; of these a long one gains nothing.

The first launch of a program begins so early behind whatever is on the queue, where boxes bring all that it reads: an
H200 makes products of 2048³ one after the other in 23.7 us each, which take 24.3 where each begins behind the last one.
It lets others begin when it has waited itself, so that what was before it is over for them, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import Leaf, Par, Seq, Stmt
from texpr.grammar.core import children
from texpr.grammar.index.expr import constant_value
from texpr.grammar.permissions import cooperative_of
from texpr.polyhedral.map.problem import Outline, Problem, Region
from texpr.polyhedral.mapped.between import AfterLaunch, TriggerNext
from texpr.polyhedral.mapped.candidate import Choice
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.piped import Piped
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedBuffer
from texpr.polyhedral.mapped.sync import Acquire, Barrier
from texpr.polyhedral.mapped.tree import Guard, Loop, Node, Parts
from texpr.polyhedral.mapped.walks import launches, map_launches, of_kind, operator_buffers, operators, tree_writes
from texpr.polyhedral.program import Hazard

SHORT = 1 << 18  # statements that a launch runs: a few microseconds
SHORT_PRODUCTS = 1 << 34  # the same on tensor cores: some tens


def able(problem: Problem, chosen: Mapping[str, Choice]) -> tuple[str, ...]:
    """The launches that may follow another one of the program, and those in boxes that may be the first; none where
    launches do not begin early, or are phases of one."""
    if not problem.target.is_cuda or problem.target.max_cluster == 1:  # the GPUs that have clusters have both
        return ()
    if cooperative_of(problem.kernel) is not None:
        return ()
    found = {region.name for region in _followers(problem.outline, looped=False)}
    return tuple(r.name for r in problem.regions() if r.name in found or isinstance(chosen[r.name], Piped))


def _followers(outline: Outline, *, looped: bool, first: bool = True) -> Iterator[Region]:
    for node in outline:
        match node:
            case Region():
                if looped or not first:
                    yield node
            case HostLoop(body=body):
                yield from _followers(body, looped=True, first=first)
            case HostIf(then=then, orelse=orelse):
                yield from _followers(then, looped=looped, first=first)
                yield from _followers(orelse, looped=looped, first=first)
        first = False


def choose_early(problem: Problem, chosen: Mapping[str, Choice]) -> frozenset[str]:
    """All launches that may, and are known to be short in the form that they have, whatever is before them."""
    found = able(problem, chosen)
    regions = [(region, _most(chosen[region.name])) for region in problem.regions() if region.name in found]
    return frozenset(region.name for region, most in regions if _runs(region.stmts, most) <= most)


def _most(choice: Choice) -> int:
    """The statements of a launch that is short."""
    return SHORT_PRODUCTS if isinstance(choice, Piped) else SHORT


def _runs(stmts: Sequence[Stmt], most: int) -> int:
    """How many statements run, more than `most` where that is not known."""
    total = 0
    for stmt in stmts:
        inside = 1 if isinstance(stmt, Leaf) else _runs(children(stmt), most)
        if isinstance(stmt, Par | Seq):
            extent = constant_value(stmt.extent)
            inside = most + 1 if extent is None else extent * inside
        total += min(inside, most + 1)
    return total


def begun_early(
    host: Sequence[HostNode],
    early: frozenset[str],
    buffers: Mapping[str, MappedBuffer],
    rests: Mapping[str, str] | None = None,
) -> tuple[HostNode, ...]:
    """The program whose launches of these names wait for the one before at their start, and may begin as soon as all
    blocks of that one have begun and it is alone. So do `rests`, which touch nothing that the launch does whose rest
    they are."""
    rests = rests or {}
    early = early | rests.keys()
    every = tuple(launches(host)) if early else ()
    pairs = _pairs(host, last=frozenset())[0] if early else set[tuple[str, str]]()
    followed, follow = {before for before, after in pairs if after in early}, {after for _, after in pairs}

    def change(launch: Launch) -> Launch:
        lets = (TriggerNext(),) if launch.name in followed else ()
        if launch.name in early:
            before = [one for one in every if one.name not in (launch.name, rests.get(launch.name))]
            first = launch.name not in follow
            wait = AfterLaunch(queue=first, orders=tuple(_orders(before, launch, buffers)))
            inside = _before_copies(launch.body, (wait, TriggerNext()) if first or lets else (wait,), buffers)
            if inside is not None:
                return replace(launch, body=inside)
            if not first:
                return replace(launch, body=(wait, *lets, *launch.body))
        return replace(launch, body=(*lets, *launch.body)) if lets else launch

    return map_launches(host, change)


def _before_copies(
    body: Sequence[Node], wait: tuple[Node, ...], buffers: Mapping[str, MappedBuffer]
) -> tuple[Node, ...] | None:
    """The body of a launch, one of whose threads brings all that it reads of global memory: that thread alone waits,
    and others for what it brings, before they write anything. None for any other launch."""
    for place, node in enumerate(body):
        if isinstance(node, Parts):
            first, *others = node.parts
            begin = 1 if first.body and isinstance(first.body[0], Barrier) else 0  # at which it waits for nobody
            brings = first.body[begin] if len(first.body) > begin else None
            reads = {read.buffer for one in operators(others[0].body if others else ()) for read in one.reads}
            if len(others) != 1 or not isinstance(brings, Guard) or not brings.once:
                return None
            if any(buffers[name].memory is Memory.GLOBAL for name in reads) or not _always(brings.body):
                return None
            inside = replace(brings, body=(*wait, *brings.body))
            part = replace(first, body=(*first.body[:begin], inside, *first.body[begin + 1 :]))
            return (*body[:place], replace(node, parts=(part, *others)), *body[place + 1 :])
    return None


def _always(body: Sequence[Node]) -> bool:
    """Whether there are copies for all that is written: whoever waits for none may be too soon."""
    steps = (loop for loop in of_kind(body, Loop) if any(isinstance(node, Acquire) for node in loop.body))
    return all((constant_value(loop.extent) or 0) > 0 for loop in steps)


def _pairs(host: Sequence[HostNode], last: frozenset[str]) -> tuple[set[tuple[str, str]], frozenset[str]]:
    """Launches that may be directly before others, after one of the `last` ones, and those that may be the last now."""
    found = set[tuple[str, str]]()
    for node in host:
        match node:
            case Launch(name=name):
                found |= {(one, name) for one in last}
                last = frozenset({name})
            case HostLoop(body=body):
                _, again = _pairs(body, last)
                inside, after = _pairs(body, last | again)
                found, last = found | inside, last | after
            case HostIf(then=then, orelse=orelse):
                sides = [_pairs(side, last) for side in (then, orelse)]
                found, last = found.union(*(pairs for pairs, _ in sides)), frozenset().union(*(end for _, end in sides))
    return found, last


def _orders(before: Sequence[Launch], launch: Launch, buffers: Mapping[str, MappedBuffer]) -> Iterator[Order]:
    """What of other launches is over before an operator of this one, where both touch memory that one of them
    writes."""
    for source in (operator for one in before for operator in operators(one.body)):
        for sink in operators(launch.body):
            for name in sorted(operator_buffers(source) & operator_buffers(sink)):
                hazard = _hazard(name in tree_writes((source,)), name in tree_writes((sink,)))
                if hazard is not None and buffers[name].memory is Memory.GLOBAL:
                    yield Order(
                        source=source.id,
                        sink=sink.id,
                        buffer=name,
                        hazard=hazard,
                        scope=Scope.GRID,
                        carried_by=None,
                        source_span=source.span,
                        sink_span=sink.span,
                    )


def _hazard(first: bool, then: bool) -> Hazard | None:
    """What two accesses have against each other, each of which writes or reads."""
    if not first:
        return Hazard.ANTI if then else None
    return Hazard.OUTPUT if then else Hazard.FLOW
