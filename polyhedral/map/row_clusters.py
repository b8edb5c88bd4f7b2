"""A cluster of blocks for each iteration of a band: where one block has no room for the row that it goes over.

    softmax of 257 x 100003, bf16       i = block / 4, 4 blocks of 256 threads, 13 runs of a row in each thread
    j = 8192*j_serial + 2048*rank + 256*warp + 8*lane - lead

The blocks of a cluster share a row as the warps of a block do. Each warp sends what it has of a reduction to the
memory of every block, which combines the parts of all when their bytes have come. That no block writes to one that has
not begun, a barrier of the cluster says: blocks arrive at it as they begin, and wait for it before the first parts go
out. What one thread of a block would do is done by that of the first block.

Blocks that leave what they have in global memory, of which the last one of a row combines it, wait for none and have
any place: by hand, cross entropy of 257 x 100003 ran at .883 of a read so in f32, at .787 in bf16, in place of .918
and .857 in clusters.
"""

from collections.abc import Iterator
from dataclasses import replace

from texpr.grammar.ast import Always, Compare, CompareOp, IndexVar, Leaf, New, Par, Seq, Subscript
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ONE, ZERO, const, constant_value, multiply, names
from texpr.grammar.permissions import cluster_shape_of, persistent_of
from texpr.polyhedral.map.bands import Nest, asked_scope
from texpr.polyhedral.map.digits import is_power_of_two
from texpr.polyhedral.map.draft import Draft
from texpr.polyhedral.map.held import ROW, RowElement, along_row
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.raster import Grid
from texpr.polyhedral.map.vectors import arrays_of
from texpr.polyhedral.map.warp_each import Told
from texpr.polyhedral.mapped.candidate import Blocks
from texpr.polyhedral.mapped.operators import Unused
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.sync import Acquire, Action, Barrier, Fence, FenceKind, Wait
from texpr.polyhedral.mapped.tree import Define, Guard, Node
from texpr.polyhedral.mapped.walks import branches, of_kind
from texpr.polyhedral.walk import subscript_names, touched, written


def cluster_faults(problem: Problem, nest: Nest, choice: Blocks) -> Iterator[str]:
    """Why the blocks of a cluster cannot share the rows of an iteration."""
    kernel, target, ranks = problem.kernel, problem.target, choice.cluster
    if ranks > target.max_cluster:
        yield f"`cluster`: a cluster of {target.name} has at most {target.max_cluster} blocks"
    if not is_power_of_two(ranks) or choice.threads % target.warp_size or choice.threads < 2 * target.warp_size:
        yield "`cluster`: the blocks of a cluster are a power of two, and a block has two whole warps or more"
    if choice.together > 1:
        yield "`cluster`: an iteration that needs several blocks is not in one `together` with others"
    if any(where is not Memory.REG for where in choice.memory.values()):
        yield "`cluster`: locals that threads share would be apart in each block"
    indices = [index for row in choice.rows for index in row.indices]
    loops = {s.index for s in nest.body if isinstance(s, Par | Seq)}
    if not loops <= set(indices) or not all(isinstance(s, Par | Seq | Leaf | New) for s in nest.body):
        yield "`cluster`: an iteration does more than go over its rows"
    for name in _shared(problem, nest):
        yield f"`cluster`: blocks would have to wait for one another's accesses to {name}"
    known = [constant_value(s.extent) for s in nest.body if isinstance(s, Par | Seq)]
    if not all(known) or not _is_box(nest):
        yield "`cluster`: sizes leave the length of a row open, or it may be empty"
    asked = cluster_shape_of(kernel) or persistent_of(kernel)
    if asked is not None or any(asked_scope(par) is Scope.CLUSTER for par in nest.pars):
        yield "`cluster`: the author says which blocks there are"


def _shared(problem: Problem, nest: Nest) -> Iterator[str]:
    """The arrays that an iteration writes and touches in more than one way: in one block for all, in every block, or at
    one place of the row, which is always of one thread."""
    arrays, ways, changed = arrays_of(problem), dict[str, set[object]](), set[str]()
    for stmt in nest.body:
        for leaf in (s for s in statements((stmt,)) if isinstance(s, Leaf)):
            target = written(leaf)
            once = target is not None and target[0] in arrays and not isinstance(stmt, Par)
            for number, (name, subscripts) in enumerate(reversed([*touched(leaf)])):
                own = target is not None and number == 0
                changed |= {name} if own and name in arrays else set()
                along = isinstance(stmt, Par | Seq) and stmt.index in subscript_names(subscripts)
                if once and (own or not isinstance(stmt, Seq)):
                    way: object = "once"
                elif along and isinstance(stmt, Par | Seq):
                    way = _along(along_row((name, subscripts), stmt.index))
                else:
                    way = "everywhere"
                ways.setdefault(name, set()).add(way)
    return (name for name in sorted(changed) if len(ways[name]) > 1)


def _along(element: RowElement) -> tuple[tuple[int, Subscript], ...]:
    """The subscripts of an element that tell where it is along a row: that of another row is another one."""
    return tuple((n, s) for n, s in enumerate(element[1]) if ROW.name in subscript_names((s,)))


def _is_box(nest: Nest) -> bool:
    """Whether no extent of a band depends on another index of it, so that every block has an iteration."""
    return not any(names(par.extent) & set(nest.indices) for par in nest.pars)


def of_clusters(grid: Grid, ranks: int) -> Grid:
    """The digits of a grid that has a cluster in place of each block, its ranks fastest."""

    def spread(digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
        return tuple(
            replace(d, stride=multiply(d.stride, const(ranks))) if d.place is Place.GRID_X else d for d in digits
        )

    return replace(grid, digits=tuple(map(spread, grid.digits)), rows=spread(grid.rows))


def rank_of(draft: Draft, choice: Blocks) -> Define:
    """The number of a block in its cluster."""
    index = draft.names.fresh("rank")
    name, radix = draft.names.fresh(f"{index}_block"), const(choice.cluster)
    rank = Digit(name=name, index=index, weight=1, radix=radix, stride=ONE, place=Place.CLUSTER)
    draft.digits.append(rank)
    return Define(index=index, digits=(rank,))


def by_ranks(draft: Draft, launch: Launch, ranks: int, rank: Define) -> Launch:
    """The launch of a block for each iteration, run by so many; `rank` defines which one a block is."""
    body, span = tuple(_of_rank(node, rank.index) for node in launch.body), launch.span
    sends = next(n for n, node in enumerate(body) if isinstance(node, Guard) and any(of_kind(node.body, Acquire)))
    ready = Guard(condition=Always(value=True), body=(Fence(kind=FenceKind.BARRIER_INIT),), once=True, span=span)
    begun = Barrier(scope=Scope.CLUSTER, action=Action.ARRIVE, relaxed=True, span=span)
    wait = Barrier(scope=Scope.CLUSTER, action=Action.WAIT, span=span)
    x, y, z = launch.grid
    return replace(
        launch,
        grid=(multiply(x, const(ranks)), y, z),
        cluster=(ranks, 1, 1),
        body=(ready, begun, rank, *body[:sends], wait, *body[sends:]),
        pipes=tuple(draft.pipes),
        orders=tuple(order for node in of_kind(body, Wait) for order in node.orders),
    )


def _of_rank(node: Node, rank: str) -> Node:
    """The node as each block of a cluster runs it: what one thread does, that of the first one."""
    if isinstance(node, Guard) and not node.once:
        body, orelse = (tuple(_of_rank(n, rank) for n in inside) for inside in branches(node))
        return replace(node, body=body, orelse=orelse)
    if not isinstance(node, Guard | Told) or (isinstance(node, Told) and node.unused is not Unused.ONCE):
        return node
    first = Compare(op=CompareOp.EQ, left=IndexVar(name=rank), right=ZERO)
    return Guard(condition=first, body=(node,), uniform=Scope.BLOCK, span=node.span)
