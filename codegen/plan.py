"""The plan stage: where every buffer lies, each decision made by one pass and verified by its checker.

layouts -> bytes of workspace -> bytes of shared memory, those of synchronisation last
"""

from texpr.codegen.device_memory import check_workspace, place_workspace
from texpr.codegen.layout import check_layouts
from texpr.codegen.shared_memory import check_resident, check_shared, place_shared, stage_bytes
from texpr.codegen.sync_memory import check_syncs, place_syncs
from texpr.grammar.ast import Role
from texpr.grammar.index.expr import ZERO, const
from texpr.polyhedral.layout.value import Placed
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import block_buffers, case_buffers, device_buffers, launches


def plan(program: MappedProgram) -> PlannedProgram:
    """The program with the address of every buffer. Raises E0403 where a memory is too small, or an extent of what
    lies in a block is no number; InternalError is a defect of a pass."""
    blocks = {launch.name: block_buffers(program, launch) for launch in launches(program.host)}
    check_layouts([buffer for found in blocks.values() for buffer in found])

    spaces = [buffer for buffer in device_buffers(program) if buffer.role is Role.LOCAL]
    cases = {name: case for name, case in case_buffers(program).items() if any(name == b.name for b in spaces)}
    offsets, workspace_bytes = place_workspace(spaces, cases)
    check_workspace(spaces, offsets, workspace_bytes, tuple(size.name for size in program.kernel.sizes), cases)

    shared_bytes: dict[str, int] = {}
    slots: dict[str, int] = {}
    syncs: dict[str, dict[str, int]] = {}
    for launch in launches(program.host):
        name, found = launch.name, blocks[launch.name]
        places, shared_bytes[name] = place_shared(found, program.target, launch.stages)
        end = check_shared(name, found, places, shared_bytes[name], launch.stages)
        syncs[name], shared_bytes[name] = place_syncs(launch, shared_bytes[name], program.target)
        check_syncs(launch, end, syncs[name], shared_bytes[name])
        check_resident(program, launch, shared_bytes[name])
        offsets |= {buffer: const(place) for buffer, place in places.items()}
        slots |= {buffer.name: stage_bytes(buffer) for buffer in found if buffer.name in launch.stages}
    return PlannedProgram(
        program=program,
        addresses={
            name: Placed(layout=buffer.layout, offset_bytes=offsets.get(name, ZERO), stage_bytes=slots.get(name, 0))
            for name, buffer in program.buffers.items()
        },
        shared_bytes=shared_bytes,
        sync_offsets=syncs,
        workspace_bytes=workspace_bytes,
    )
