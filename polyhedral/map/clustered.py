"""Blocks in clusters of the shape that the author gives, `#cluster_shape(x, y, z)` on the kernel, or a `par` of one
cluster's blocks: those of one run at the same time.

grid (ceildiv(N, 256), 1, 1), #cluster_shape(2)      grid (ceildiv(ceildiv(N, 256), 2) * 2, 1, 1)
par M b { par 4 c #cluster { … } }                   c on grid.x, in clusters of 4 blocks

A grid is whole clusters; blocks beyond those that the launch needs do nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from texpr.grammar.ast import Attr, Compare, CompareOp, IndexConst, IndexExpr, IndexVar, Kernel, Par
from texpr.grammar.diagnostics import Diagnostic, TExprError, error, fail
from texpr.grammar.index.expr import ONE, ceildiv, conjunction, const, constant_value, multiply
from texpr.grammar.permissions import cluster_shape_of, raster_of
from texpr.polyhedral.map.bands import asked_scope
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
    fault = _beyond(target, attr, prod(_shape(attr)))
    if fault is not None:
        yield fault


def cluster_band(pars: Sequence[Par], kernel: Kernel, target: Target) -> dict[str, int]:
    """The blocks of one cluster along the indices of an outermost band that are said to run on them. Raises E0401 for a
    number that is not known or more than there are, E0402 beside another shape or order of the blocks."""
    found, attr = dict[str, int](), None
    for par in pars:
        if asked_scope(par) is not Scope.CLUSTER or not target.is_cuda:
            continue
        attr, extent = next(attr for attr in par.attrs if attr.name == "cluster"), constant_value(par.extent)
        if extent is None:
            help = "bind the size, or write a number"
            raise fail("E0401", "the number of a cluster's blocks is not known", attr.span, "a free size", help=help)
        found[par.index] = max(extent, 1)
    if attr is None:
        return found
    fault = _beyond(target, attr, prod(found.values()))
    if fault is not None:
        raise TExprError((fault,))
    for other in (cluster_shape_of(kernel), raster_of(kernel)):
        if other is not None:
            why = f"`#{other.name}` on the kernel says otherwise where its blocks are"
            message = f"#cluster is not mapped here: {why}"
            raise fail("E0402", message, attr.span, "this attribute", help="remove one of the two")
    return found


def _beyond(target: Target, attr: Attr, blocks: int) -> Diagnostic | None:
    if blocks <= target.max_cluster:
        return None
    has = f"clusters of at most {target.max_cluster} blocks" if target.max_cluster > 1 else "no clusters"
    help = "write a smaller shape, or compile for sm_90 or newer"
    return error("E0401", f"{target.name} has {has}", attr.span, f"this asks for {blocks}", help=help)


def _shape(attr: Attr) -> tuple[int, int, int]:
    """The blocks along each axis. Raises E0401 for a number that is not known."""
    found = [arg.value for arg in attr.args if isinstance(arg, IndexConst)]
    if len(found) < len(attr.args):
        help = "bind the size, or write a number"
        raise fail("E0401", "the shape of a cluster is not known", attr.span, "a free size", help=help)
    x, y, z = (*found, 1, 1)[:3]
    return x, y, z


def clustered(launch: Launch, band: Sequence[Par], kernel: Kernel, target: Target, names: Names) -> Launch:
    """The launch of a band in clusters, where the author asks for them. Raises E0401 for an axis with fewer blocks,
    E0402 where blocks are counted or numbered and some would have to do nothing."""
    own = cluster_band(band, kernel, target)
    if own:
        x, y, z = (prod(own.get(d.index, 1) for d in launch.digits if d.place is place) for place in GRID_PLACES)
        return replace(launch, cluster=(x, y, z))
    attr = cluster_shape_of(kernel)
    if attr is None or not target.is_cuda or launch.is_one_thread:
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
    if beyond and (launch.turns or any(of_kind(launch.body, Last))):
        why = f"the blocks of {launch.name} that share a reduction or a scan are counted, and are no whole clusters"
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
