"""The memory of a launch: the arrays and workspaces of the call, and its locals, fresh for each launch.

A mapped program gives every local elements of its own. A planned one says at which bytes of a block's shared memory a
buffer lies, and there it lies here: an overlap, or a layout that puts two elements in one place, is two accesses of the
same bytes.
"""

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np

from texpr.grammar import numerics
from texpr.grammar.ast import Role
from texpr.grammar.index.value import index_value
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.walks import tree_buffers
from texpr.polyhedral.simulate.cells import Cells, Watch
from texpr.polyhedral.simulate.coordinates import Geometry
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.target import WARPGROUP

WIDEST = 8  # bytes of an element


def launch_memory(
    program: MappedProgram | PlannedProgram,
    launch: Launch,
    values: Mapping[str, int],
    geometry: Geometry,
    watch: Watch,
    kept: MutableMapping[str, Cells],
) -> Mapping[str, Cells]:
    """The cells of every buffer by name. Those of arrays and workspaces are `kept`, where new workspaces go too."""
    mapped = program.program if isinstance(program, PlannedProgram) else program
    stages = launch.stages
    own: dict[str, Cells] = {}
    shared: list[MappedBuffer] = []
    for name in tree_buffers(launch.body):
        buffer = mapped.buffers[name]
        if buffer.role is not Role.LOCAL:
            continue
        match buffer.memory:
            case Memory.GLOBAL if buffer.scope is Scope.GRID:
                if name not in kept:
                    kept[name] = Cells.alone(buffer, values, 1, watch)
            case Memory.GLOBAL:
                own[name] = Cells.alone(buffer, values, 1, watch)
            case Memory.REG:
                team = _team(buffer, geometry)
                own[name] = Cells.alone(buffer, values, geometry.blocks * geometry.threads, watch, team=team)
            case Memory.SHARED | Memory.CLUSTER:
                shared.append(buffer)
    if isinstance(program, PlannedProgram):
        own |= _placed(program, launch, geometry, watch, shared)
    else:
        own |= {b.name: Cells.alone(b, values, geometry.blocks * stages.get(b.name, 1), watch) for b in shared}
    return {**kept, **own}


def _team(buffer: MappedBuffer, geometry: Geometry) -> int:
    """The threads that hold a tile in their registers together, 0 where each has a buffer of its own."""
    units = set(buffer.layout.units)
    if units <= {Unit.ADDRESS}:
        return 0
    lanes = int(index_value(extent(buffer.layout, Unit.LANE), {}))
    team = geometry.warp if lanes <= geometry.warp else geometry.warp * WARPGROUP
    if units != {Unit.LANE, Unit.REGISTER} or buffer.layout.copies or lanes > team or geometry.threads % team:
        what = f"{buffer.name} lies over {', '.join(sorted(units))} of {lanes} lanes"
        raise failure(
            f"{what}, and in a block of {geometry.threads} threads no warp or warpgroup holds it", buffer.span
        )
    return team


def _placed(
    program: PlannedProgram,
    launch: Launch,
    geometry: Geometry,
    watch: Watch,
    shared: Sequence[MappedBuffer],
) -> dict[str, Cells]:
    """Buffers in the shared memory of every block, at their addresses."""
    if not shared:
        return {}
    stages = launch.stages
    size = -(-program.shared_bytes[launch.name] // WIDEST) * WIDEST
    memory = np.zeros(geometry.blocks * size, dtype=np.uint8)
    unit = min(numerics.storage(buffer.dtype).itemsize for buffer in shared)
    defined = np.zeros(len(memory) // unit, dtype=np.bool_)
    shadow = watch.shadow(len(memory) // unit)
    found: dict[str, Cells] = {}
    for buffer in shared:
        address, dtype = program.addresses[buffer.name], numerics.storage(buffer.dtype)
        found[buffer.name] = Cells(
            buffer=buffer,
            layout=address.layout,
            step=size // dtype.itemsize,
            offset=int(index_value(address.offset_bytes, {})) // dtype.itemsize,
            stages=stages.get(buffer.name, 1),
            stage_step=address.stage_bytes // dtype.itemsize,
            data=memory.view(dtype),
            defined=defined,
            shadow=shadow,
            grain=dtype.itemsize // unit,
        )
    return found
