"""Launches whose blocks repeat themselves, for a check that goes through every turn: the same with few turns.

    for turn < ceildiv(2048 - cluster, 66): for k < 128: …
    for turn < min(…, 3): for k < min(128, 9): …               of a pipe of 4 slots

The rules of pipes, groups and barriers look no further back than a pipe has slots, a thread groups on their way, or an
order turns between its ends, and loops repeat them: once every slot is used a third time, nothing new comes; a loop
around such loops goes on where they ended, and nothing new comes after its third turn, or the third of each kind where
conditions ask for its remainder. Turns in which blocks are counted stay (`counted.py`), and an unrolled loop whose
copies fill one turn is whole. What stands in a loop without syncs and wide operators has the same place among all
others in each iteration: one stands for all, with as many more as orders go from one to another. Of launches that
`flow.py` decides nothing is left but operators, each once, and waits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import IndexBinary, IndexConst, IndexOp, IndexVar, Read
from texpr.grammar.index.expr import ONE, const, minimum
from texpr.grammar.walk import walk
from texpr.polyhedral.mapped.access import Completion
from texpr.polyhedral.mapped.between import AfterLaunch, Await, GridBarrier, Publish, Turn
from texpr.polyhedral.mapped.operators import Copy, Generic
from texpr.polyhedral.mapped.program import Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.sync import Sync, WaitGroup
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Last, Loop, Node
from texpr.polyhedral.mapped.walks import branches, every_node, map_launches, map_nodes, of_kind, with_branches
from texpr.polyhedral.orders.flow import decides

OUTER_TURNS = 3


def shortened(program: MappedProgram) -> MappedProgram:
    """The program with few turns of loops around what pipes do."""
    return replace(program, host=map_launches(program.host, lambda one: _shortened(one, program.buffers)))


def _shortened(launch: Launch, buffers: Mapping[str, MappedBuffer]) -> Launch:
    if decides(launch, buffers):
        return replace(launch, body=_bare(launch.body), orders=())
    between = Await | GridBarrier | Publish | Turn
    behind = [node.behind + 2 for node in every_node(launch.body) if isinstance(node, WaitGroup)]
    apart = [order.distance or 0 for order in launch.orders]
    if not (launch.pipes or behind) or any(isinstance(node, between) for node in every_node(launch.body)):
        return launch
    counted = {loop.index for loop in of_kind(launch.body, Loop) if any(of_kind(loop.body, Last))}
    turns = 2 * max(*(pipe.stages for pipe in launch.pipes), *behind, *apart, 1) + 1

    def few(node: Node) -> Node:
        if not isinstance(node, Loop) or node.digit is not None or _fills(node) or node.index in counted:
            return node
        if all(map(_is_for_itself, every_node(node.body))):
            own = [order.distance or 1 for order in launch.orders if order.carried_by == node.index]
            return replace(node, extent=minimum(node.extent, const(1 + max(own, default=0))))
        outer = any(isinstance(inside, Loop) and not inside.unroll for inside in every_node(node.body))
        most = OUTER_TURNS * _kinds(launch, node.index) if outer else turns
        return replace(node, extent=minimum(node.extent, const(most)))

    return replace(launch, body=map_nodes(launch.body, few))


def _bare(body: Sequence[Node]) -> tuple[Node, ...]:
    """The operators, each for the first turn of the loops around it."""
    found = list[Node]()
    for node in body:
        match node:
            case Last():
                found += _bare(node.body)
            case Loop():
                found.append(replace(node, extent=minimum(node.extent, ONE), body=_bare(node.body)))
            case _ if isinstance(node, Sync) and not isinstance(node, AfterLaunch):
                pass
            case _:
                found.append(with_branches(node, [_bare(inside) for inside in branches(node)]))
    return tuple(found)


def _is_for_itself(node: Node) -> bool:
    """Whether threads run a node each for itself, and are done with it when they go on."""
    if isinstance(node, Copy):
        return node.completion is Completion.NOW
    return isinstance(node, Define | Fresh | Guard | Loop | Generic)


def _kinds(launch: Launch, index: str) -> int:
    """After how many turns of the loops of an index, one in each part, the conditions on it repeat themselves."""
    found = [1]
    for node in every_node(launch.body):
        if isinstance(node, Guard) and not isinstance(node.condition, Read):
            for part in walk(node.condition):
                if isinstance(part, IndexBinary) and part.op is IndexOp.MOD and part.left == IndexVar(name=index):
                    found += [part.right.value] if isinstance(part.right, IndexConst) else []
    return math.lcm(*found)


def _fills(loop: Loop) -> bool:
    """Whether its turns are parts of what is written in one turn of a pipe."""
    return loop.unroll and any(isinstance(node, Copy) and node.rank is not None for node in every_node(loop.body))
