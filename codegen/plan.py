"""The plan stage: every decision that emission needs, each made by one pass and verified by its checker.

layouts -> workspace addresses -> shared addresses
"""

from texpr.codegen.device_memory import check_workspace, place_workspace
from texpr.codegen.graph import KernelGraph, PlannedGraph
from texpr.codegen.layout import check_layouts, choose_layouts
from texpr.codegen.shared_memory import check_shared, place_shared
from texpr.polyhedral.mapped.program import MappedProgram


def plan(graph: KernelGraph, mapped: MappedProgram) -> PlannedGraph:
    """The graph with all its plans. Raises E0403 where a memory is too small; InternalError is a defect of a pass."""
    blocks = graph.launches()
    strides = {b.name: choose_layouts(b) for b in blocks}
    workspace = place_workspace(graph)
    shared = {b.name: place_shared(b, strides[b.name], mapped.target) for b in blocks}

    check_workspace(graph, workspace)
    for b in blocks:
        check_layouts(b, strides[b.name])
        check_shared(b, strides[b.name], shared[b.name])
    return PlannedGraph(
        graph=graph,
        strides=strides,
        workspace=workspace,
        shared=shared,
    )
