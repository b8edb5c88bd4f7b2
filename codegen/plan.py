"""The plan stage: every decision that emission needs, each made by one pass and verified by its checker.

chains -> layouts -> workspace addresses -> barriers -> swizzles -> shared addresses
"""

from texpr.codegen.device_memory import check_workspace, place_workspace
from texpr.codegen.fusion import check_chains, fuse
from texpr.codegen.graph import KernelGraph, PlannedGraph
from texpr.codegen.layout import check_layouts, choose_layouts
from texpr.codegen.schedule import check_barriers, place_barriers
from texpr.codegen.shared_memory import check_shared, place_shared
from texpr.codegen.swizzle import check_swizzles, choose_swizzles
from texpr.grammar.diagnostics import InternalError
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import launches


def plan(graph: KernelGraph, mapped: MappedProgram) -> PlannedGraph:
    """The graph with all its plans. Raises E0403 where a memory is too small; InternalError is a defect of a pass."""
    blocks = graph.launches()
    by_name = {launch.name: launch for launch in launches(mapped.host)}
    if len(blocks) != len({b.name for b in blocks}) or {b.name for b in blocks} != set(by_name):
        raise InternalError(f"{graph.name}: the launches of graph and mapping differ")

    chains = {b.name: fuse(b) for b in blocks}
    strides = {b.name: choose_layouts(b) for b in blocks}
    workspace = place_workspace(graph)
    barriers = {b.name: place_barriers(b, by_name[b.name]) for b in blocks}
    swizzles = {b.name: choose_swizzles(b) for b in blocks}
    shared = {b.name: place_shared(b, strides[b.name], mapped.target) for b in blocks}

    check_workspace(graph, workspace)
    for b in blocks:
        check_chains(b, chains[b.name])
        check_layouts(b, strides[b.name])
        check_barriers(b, by_name[b.name], barriers[b.name])
        check_swizzles(b, swizzles[b.name])
        check_shared(b, strides[b.name], shared[b.name])
    return PlannedGraph(
        graph=graph,
        chains=chains,
        strides=strides,
        workspace=workspace,
        barriers=barriers,
        swizzles=swizzles,
        shared=shared,
    )
