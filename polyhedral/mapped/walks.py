"""Walking mapped programs: the nodes of a launch's tree with their paths, the launches of a host program.

A path alternates child numbers and branches: (2, 0, 1) is child 1 of the first body of child 2; branch 1 of a guard is
its `orelse`, branch n of parts the body of part n.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar, assert_never

from texpr.grammar.ast import Condition, IndexExpr, Read, Role
from texpr.grammar.index.expr import names, negation
from texpr.grammar.records import dataclass
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier, Publish, TriggerNext, Turn
from texpr.polyhedral.mapped.candidate import Cases
from texpr.polyhedral.mapped.look_back import LookBack
from texpr.polyhedral.mapped.operators import Contract, Copy, Generic, Operator
from texpr.polyhedral.mapped.places import Digit, Memory, Scope
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.sync import Barrier, Sync
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Lead, Loop, Node, Parts
from texpr.polyhedral.walk import subscript_names, value_reads

Path = tuple[int, ...]
Kind = TypeVar("Kind", bound=Node)
_Leaf = Operator | Sync  # made once: these are asked of every node
_Waits = Sync | Last | Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """A node, its path, and the nodes around it, outermost first."""

    node: Node
    path: Path
    around: tuple[Node, ...]


def branches(node: Node) -> tuple[tuple[Node, ...], ...]:
    """The lists of nodes directly inside."""
    match node:
        case Loop(body=body):
            return (body,)
        case Guard(body=body, orelse=orelse):
            return (body, orelse)
        case Parts(parts=parts):
            return tuple(part.body for part in parts)
        case Last(body=body):
            return (body,)
        case Define() | Lead() | Fresh():
            return ()
        case _ if isinstance(node, _Leaf):
            return ()
        case _:
            assert_never(node)


def with_branches(node: Node, bodies: Sequence[tuple[Node, ...]]) -> Node:
    """The node with other lists inside, as many as `branches` gives."""
    match node:
        case Loop():
            return replace(node, body=bodies[0])
        case Guard():
            return replace(node, body=bodies[0], orelse=bodies[1])
        case Parts(parts=parts):
            return replace(node, parts=tuple(replace(p, body=b) for p, b in zip(parts, bodies, strict=True)))
        case Last():
            return replace(node, body=bodies[0])
        case Define() | Lead() | Fresh():
            return node
        case _ if isinstance(node, _Leaf):
            return node
        case _:
            assert_never(node)


def located(body: Sequence[Node], path: Path = (), around: tuple[Node, ...] = ()) -> Iterator[Located]:
    """Every node in execution order, outer before inner."""
    for number, node in enumerate(body):
        here = (*path, number)
        yield Located(node=node, path=here, around=around)
        for branch, inside in enumerate(branches(node)):
            yield from located(inside, (*here, branch), (*around, node))


def every_node(body: Sequence[Node]) -> Iterator[Node]:
    """Every node in execution order, outer before inner."""
    work = list(body[::-1])
    while work:
        node = work.pop()
        yield node
        for inside in reversed(branches(node)):
            work += inside[::-1]


def of_kind(body: Sequence[Node], kind: type[Kind]) -> Iterator[Kind]:
    """Every node of a kind in execution order."""
    return (node for node in every_node(body) if isinstance(node, kind))


def statements(body: Sequence[Node]) -> Iterator[Generic]:
    """Every statement in text order."""
    return of_kind(body, Generic)


def operators(body: Sequence[Node]) -> Iterator[Operator]:
    """Every operator in text order."""
    return (node for node in every_node(body) if isinstance(node, Operator))


def part_warps(launch: Launch) -> dict[str, int]:
    """The warps of every part by name."""
    return {part.name: part.warps for node in of_kind(launch.body, Parts) for part in node.parts}


def overlaps(launch: Launch) -> bool:
    """Whether the launch may begin before the one before it is over."""
    return any(of_kind(launch.body, AfterLaunch))


def waits_for_queue(launch: Launch) -> bool:
    """Whether the launch may begin before anything that is on the queue is over, and waits for all of it."""
    return any(node.queue for node in of_kind(launch.body, AfterLaunch))


def after_waiting(launch: Launch) -> Launch:
    """The launch without what stands at its start for the launches beside it, a wait for the one before and leave for
    the next one to begin: behind that it is like any other."""
    begins = next((k for k, node in enumerate(launch.body) if not isinstance(node, AfterLaunch | TriggerNext)), 0)
    return replace(launch, body=launch.body[begins:]) if begins else launch


def map_nodes(body: Sequence[Node], change: Callable[[Node], Node]) -> tuple[Node, ...]:
    """The tree with every node, those inside it first, put through `change`."""
    return tuple(change(with_branches(node, [map_nodes(b, change) for b in branches(node)])) for node in body)


def map_statements(body: Sequence[Node], change: Callable[[Generic], Generic]) -> tuple[Node, ...]:
    """The tree with every statement put through `change`."""
    return map_nodes(body, lambda node: change(node) if isinstance(node, Generic) else node)


def node_reads(node: Node) -> tuple[Read, ...]:
    """The reads of a guard's condition."""
    return value_reads(node.condition) if isinstance(node, Guard) and isinstance(node.condition, Read) else ()


def _read_by(node: Node) -> Iterator[str]:
    """The buffers that a node itself reads, those of conditions and gathered subscripts included."""
    match node:
        case Lead(of=of):
            yield of.buffer
        case Guard():
            yield from (read.buffer for read in node_reads(node))
        case _ if isinstance(node, Operator):
            yield from (read.buffer for read in node.reads)
        case _:
            pass


def tree_writes(body: Sequence[Node]) -> set[str]:
    """The buffers that a tree writes."""
    return {name for node in operators(body) for name, _ in node.writes}


def operator_buffers(node: Operator) -> set[str]:
    """The buffers that an operator touches."""
    return {name for name, _ in node.writes} | {read.buffer for read in node.reads}


def tree_buffers(body: Sequence[Node]) -> set[str]:
    """The buffers that a tree touches."""
    found: set[str] = set()
    for node in every_node(body):
        found.update(_read_by(node))
        if isinstance(node, Fresh):
            found.add(node.buffer)
        elif isinstance(node, Operator):
            found.update(name for name, _ in node.writes)
    return found


def launch_names(grid: Sequence[IndexExpr], digits: Sequence[Digit], body: Sequence[Node]) -> frozenset[str]:
    """Every index and size that a launch uses."""
    found = frozenset[str]().union(*(names(g) for g in grid))
    found = found.union(*(names(d.radix) | names(d.stride) for d in digits))
    for node in every_node(body):
        match node:
            case Define(offset=offset):
                found |= names(offset)
            case Loop(extent=extent, word=word):
                found |= names(extent) | (frozenset() if word is None else subscript_names(word.subscripts))
            case Lead(of=of):
                found |= subscript_names(of.subscripts)
            case _ if isinstance(node, Operator):
                found |= node.names
            case Publish(at=at) | Await(at=at):
                found |= subscript_names(at)
            case Last(at=at, n=n):
                found |= subscript_names(at) | names(n)
            case Guard(condition=Read(subscripts=subscripts)):
                found |= subscript_names(subscripts)
            case Guard(condition=condition):
                found |= frozenset() if isinstance(condition, Read) else names(condition)
            case _:
                pass
    return found


def launch_words(launch: Launch) -> frozenset[str]:
    """The counters and flags that a launch uses."""
    own = {launch.turns} if launch.turns else set[str]()
    return frozenset(own.union(name for node in every_node(launch.body) for name in word_names(node)))


def word_names(node: Node) -> tuple[str, ...]:
    """The counters and flags that a node of a tree uses."""
    match node:
        case (
            Turn(counter=name) | Last(counter=name) | GridBarrier(counter=name) | Publish(flag=name) | Await(flag=name)
        ):
            return (name,)
        case LookBack(flags=name):
            return (name,)
        case _:
            return ()


def acting(body: Sequence[Node]) -> Iterator[tuple[str, Located]]:
    """Every node that touches memory with its name in orders: an operator's id, `if@n` for the n-th condition on data
    of the launch, in text order."""
    asked = 0
    for place in located(body):
        match place.node:
            case node if isinstance(node, Operator):
                yield node.id, place
            case Guard(condition=Read()):
                yield f"if@{asked}", place
                asked += 1
            case _:
                pass


def launches(host: Sequence[HostNode]) -> Iterator[Launch]:
    """Every launch of a host program, in text order."""
    for node in host:
        match node:
            case Launch():
                yield node
            case HostLoop(body=body):
                yield from launches(body)
            case HostIf(then=then, orelse=orelse):
                yield from launches(then + orelse)
            case _:
                assert_never(node)


def conditions_of(host: Sequence[HostNode], around: tuple[Condition, ...] = ()) -> dict[str, tuple[Condition, ...]]:
    """What surely holds where each launch runs, by name: what the host was told on the way there."""
    found: dict[str, tuple[Condition, ...]] = {}
    for node in host:
        match node:
            case Launch(name=name):
                found[name] = around
            case HostLoop(body=body):
                found |= conditions_of(body, around)
            case HostIf(condition=condition, then=then, orelse=orelse):
                found |= conditions_of(then, (*around, condition))
                found |= conditions_of(orelse, (*around, negation(condition)))
            case _:
                assert_never(node)
    return found


def map_launches(host: Sequence[HostNode], change: Callable[[Launch], Launch]) -> tuple[HostNode, ...]:
    """The host program with every launch put through `change`."""
    found: list[HostNode] = []
    for node in host:
        match node:
            case Launch():
                found.append(change(node))
            case HostLoop(body=body):
                found.append(replace(node, body=map_launches(body, change)))
            case HostIf(then=then, orelse=orelse):
                found.append(replace(node, then=map_launches(then, change), orelse=map_launches(orelse, change)))
            case _:
                assert_never(node)
    return tuple(found)


def device_buffers(program: MappedProgram) -> tuple[MappedBuffer, ...]:
    """The buffers that launches share, in the order of the C ABI: parameters as declared, then workspaces."""
    spaces = (b for b in program.buffers.values() if b.role is Role.LOCAL and b.memory is Memory.GLOBAL)
    return (*(program.buffers[p.name] for p in program.kernel.params), *spaces)


def case_buffers(program: MappedProgram) -> dict[str, int]:
    """The buffers that one case alone of a mapping touches, by its number: no call has those of two cases."""
    if not isinstance(program.candidate, Cases):
        return {}
    arms, rest = list[tuple[HostNode, ...]](), program.host
    for _ in program.candidate.cases:
        (node,) = rest
        assert isinstance(node, HostIf), "a case is a condition of the host"
        arms.append(node.then)
        rest = node.orelse
    found: dict[str, set[int]] = {}
    for number, arm in enumerate((*arms, rest)):
        for name in {name for launch in launches(arm) for name in tree_buffers(launch.body)}:
            found.setdefault(name, set()).add(number)
    return {name: min(numbers) for name, numbers in found.items() if len(numbers) == 1}


def block_buffers(program: MappedProgram, launch: Launch) -> tuple[MappedBuffer, ...]:
    """The buffers that a block of the launch, or a thread of it, has for itself."""
    used = tree_buffers(launch.body)
    own = (b for b in program.buffers.values() if b.role is Role.LOCAL and b.memory is not Memory.GLOBAL)
    return tuple(b for b in own if b.name in used)


def goes_on_alone(node: object) -> bool:
    """Whether an operator is over some time after it was issued."""
    match node:
        case Contract(atom=atom):
            return atom.completion is not Completion.NOW
        case Copy(completion=completion):
            return completion is not Completion.NOW
        case _:
            return False


def meets_simply(node: Node) -> bool:
    """Whether at a node threads wait for one another, if at all, at a barrier of all of the block or of a whole warp,
    and nothing goes on behind their backs."""
    match node:
        case Barrier(scope=scope):
            return scope in (Scope.WARP, Scope.BLOCK) and node.is_whole
        case _:
            return not isinstance(node, _Waits) and not goes_on_alone(node)


def counted_blocks(launch: Launch) -> tuple[Last, ...]:
    """The nodes at which blocks are counted, where every block comes to each of them once, at the outermost level; none
    where one stands in a loop or under a condition, or where two count at one counter."""
    found = tuple(node for node in launch.body if isinstance(node, Last))
    apart = len({node.counter for node in found}) == len(found) == len(list(of_kind(launch.body, Last)))
    return found if apart else ()


def meets_at_whole_barriers(launch: Launch, buffers: Mapping[str, MappedBuffer], *, of_grid: bool = False) -> bool:
    """Whether this holds of every node of a launch, whose blocks, in clusters or not, share only global memory, and are
    counted, if at all, at the outermost level; barriers `of_grid` are whole, too, or not."""
    counted = bool(counted_blocks(launch))
    of_clusters = {buffer.name for buffer in buffers.values() if buffer.memory is Memory.CLUSTER}
    if launch.cluster != (1, 1, 1) and of_clusters & tree_buffers(launch.body):
        return False
    whole = (GridBarrier,) if of_grid else ()
    return all(
        meets_simply(n) or isinstance(n, whole) or (counted and isinstance(n, Last)) for n in every_node(launch.body)
    )
