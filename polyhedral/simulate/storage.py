"""The memory of a launch: the arrays and workspaces of the call, and its locals, fresh for each launch."""

import math
from collections.abc import Mapping, MutableMapping

import numpy as np

from texpr.grammar import numerics
from texpr.grammar.ast import Role
from texpr.grammar.index.value import index_value
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.walks import tree_buffers
from texpr.polyhedral.simulate.cells import Cells, Watch
from texpr.polyhedral.simulate.coordinates import Geometry


def launch_memory(
    mapped: MappedProgram,
    launch: Launch,
    values: Mapping[str, int],
    geometry: Geometry,
    watch: Watch,
    kept: MutableMapping[str, Cells],
) -> Mapping[str, Cells]:
    """The cells of every buffer by name. Those of arrays and workspaces are `kept`, where new workspaces go too."""
    stages = {name: pipe.stages for pipe in launch.pipes for name in pipe.buffers}
    own: dict[str, Cells] = {}
    for name in tree_buffers(launch.body):
        buffer = mapped.buffers[name]
        if buffer.role is not Role.LOCAL:
            continue
        workspace = buffer.memory is Memory.GLOBAL and buffer.scope is Scope.GRID
        if not workspace:
            own[name] = _fresh(buffer, values, geometry, stages.get(name, 1), watch)
        elif name not in kept:
            kept[name] = _fresh(buffer, values, geometry, 1, watch)
    return {**kept, **own}


def _fresh(buffer: MappedBuffer, values: Mapping[str, int], geometry: Geometry, stages: int, watch: Watch) -> Cells:
    """Undefined elements: a copy for each thread, or for each block and stage of a pipe, or one for all."""
    blocks = geometry.blocks * stages
    copies = {
        Memory.REG: geometry.blocks * geometry.threads,
        Memory.SHARED: blocks,
        Memory.CLUSTER: blocks,
        Memory.GLOBAL: 1,
    }[buffer.memory]
    extents = tuple(max(0, int(index_value(e, values))) for e in buffer.shape)
    elements = copies * math.prod(extents[buffer.memory is Memory.CLUSTER :])
    data = np.zeros(elements, dtype=numerics.storage(buffer.dtype))
    return Cells(buffer, extents, data, np.zeros(elements, dtype=np.bool_), watch.shadow(elements))
