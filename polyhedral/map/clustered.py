"""Blocks in clusters of the shape that the author gives, `#cluster_shape(x, y, z)`: those of one run at the same time.

grid (ceildiv(N, 256), 1, 1), #cluster_shape(2)      grid (ceildiv(ceildiv(N, 256), 2) * 2, 1, 1)

A grid is whole clusters; blocks beyond those that the launch needs do nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Attr, Compare, CompareOp, IndexConst, IndexExpr, IndexVar, Kernel
from texpr.grammar.diagnostics import Diagnostic, error, fail
from texpr.grammar.index.expr import ONE, ceildiv, conjunction, const, constant_value, multiply
from texpr.grammar.permissions import cluster_shape_of
from texpr.polyhedral.mapped.places import GRID_PLACES, Digit, Scope
from texpr.polyhedral.mapped.program import Launch
from texpr.polyhedral.mapped.tree import Define, Guard, Last
from texpr.polyhedral.mapped.walks import of_kind
from texpr.polyhedral.names import Names
from texpr.polyhedral.target import Target

AXES = "xyz"


def cluster_faults(kernel: Kernel, target: Target) -> Iterator[Diagnostic]:
    """Why the `#cluster_shape` of a kernel cannot be on a target."""
    attr = cluster_shape_of(kernel)
    if attr is None or not target.is_cuda:
        return
    blocks = prod(_shape(attr))
    if blocks > target.max_cluster:
        has = f"clusters of at most {target.max_cluster} blocks" if target.max_cluster > 1 else "no clusters"
        help = "write a smaller shape, or compile for sm_90 or newer"
        yield error("E0401", f"{target.name} has {has}", attr.span, f"this asks for {blocks}", help=help)


def _shape(attr: Attr) -> tuple[int, int, int]:
    """The blocks along each axis. Raises E0401 for a number that is not known."""
    found = [arg.value for arg in attr.args if isinstance(arg, IndexConst)]
    if len(found) < len(attr.args):
        help = "bind the size, or write a number"
        raise fail("E0401", "the shape of a cluster is not known", attr.span, "a free size", help=help)
    x, y, z = (*found, 1, 1)[:3]
    return x, y, z


def clustered(launch: Launch, kernel: Kernel, target: Target, names: Names) -> Launch:
    """The launch in clusters, where the author asks for them. Raises E0401 for an axis with fewer blocks, E0402 where
    blocks are counted and some would have to do nothing."""
    attr = cluster_shape_of(kernel)
    if attr is None or not target.is_cuda or launch.threads == 1:
        return launch
    shape, grid, beyond = _shape(attr), list(launch.grid), list[tuple[Define, Compare]]()
    for axis, blocks in enumerate(shape):
        known = constant_value(launch.grid[axis])
        if known is not None and known < blocks:
            message = f"a cluster has {blocks} blocks along {AXES[axis]}, and the grid of {launch.name} has {known}"
            help = "write a smaller shape; the first dimension of a grid is x"
            raise fail("E0401", message, attr.span, "this attribute", help=help)
        if blocks > 1 and (known is None or known % blocks):
            grid[axis] = multiply(ceildiv(launch.grid[axis], blocks), const(blocks))
            beyond.append(_within(names, axis, grid[axis], launch))
    if beyond and any(of_kind(launch.body, Last)):
        why = f"the blocks of {launch.name} that share a reduction are counted, and are no whole clusters"
        help = "remove #cluster_shape; the compiler then chooses by itself"
        raise fail("E0402", f"#cluster_shape is not mapped here: {why}", attr.span, "this attribute", help=help)
    body = launch.body
    if beyond:
        inside = conjunction([condition for _, condition in beyond])
        guard = Guard(condition=inside, body=body, padding=True, uniform=Scope.BLOCK, span=launch.span)
        body = (*(define for define, _ in beyond), guard)
    digits = (*(digit for define, _ in beyond for digit in define.digits), *launch.digits)
    return replace(launch, cluster=shape, grid=(grid[0], grid[1], grid[2]), body=body, digits=digits)


def _within(names: Names, axis: int, extent: IndexExpr, launch: Launch) -> tuple[Define, Compare]:
    """The number of a block along an axis, and the condition that the launch needs it."""
    index = names.fresh(f"block_{AXES[axis]}")
    name, place = names.fresh(f"{index}_all"), GRID_PLACES[axis]
    digit = Digit(name=name, index=index, weight=1, radix=extent, stride=ONE, place=place)
    inside = Compare(op=CompareOp.LT, left=IndexVar(name=index), right=launch.grid[axis])
    return Define(index=index, digits=(digit,)), inside
