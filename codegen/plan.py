"""The plan stage: where every buffer lies, each decision made by one pass and verified by its checker.

strides -> bytes of workspace -> bytes of shared memory, those of synchronisation last
"""

from texpr.codegen.device_memory import check_workspace, place_workspace
from texpr.codegen.layout import check_strides, choose_strides
from texpr.codegen.shared_memory import check_shared, place_shared, stage_bytes
from texpr.codegen.sync_memory import place_syncs
from texpr.grammar.ast import Role
from texpr.grammar.index.expr import ZERO, const
from texpr.polyhedral.mapped.planned import Address, PlannedProgram
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import block_buffers, device_buffers, launches


def plan(program: MappedProgram) -> PlannedProgram:
    """The program with the address of every buffer. Raises E0403 where a memory is too small, or an extent of what
    lies in a block is no number; InternalError is a defect of a pass."""
    buffers = program.buffers.values()
    blocks = {launch.name: block_buffers(program, launch) for launch in launches(program.host)}
    own = [buffer for found in blocks.values() for buffer in found]
    strides = choose_strides(buffers, own)
    check_strides(own, strides)

    spaces = [buffer for buffer in device_buffers(program) if buffer.role is Role.LOCAL]
    offsets, workspace_bytes = place_workspace(spaces, strides)
    check_workspace(spaces, strides, offsets, workspace_bytes, tuple(size.name for size in program.kernel.sizes))

    shared_bytes: dict[str, int] = {}
    slots: dict[str, int] = {}
    syncs: dict[str, dict[str, int]] = {}
    for launch in launches(program.host):
        name, found = launch.name, blocks[launch.name]
        stages = {buffer: pipe.stages for pipe in launch.pipes for buffer in pipe.buffers}
        places, shared_bytes[name] = place_shared(found, strides, program.target, stages)
        check_shared(name, found, strides, places, shared_bytes[name], stages)
        syncs[name], shared_bytes[name] = place_syncs(launch, shared_bytes[name], program.target)
        offsets |= {buffer: const(place) for buffer, place in places.items()}
        slots |= {buffer.name: stage_bytes(buffer, strides) for buffer in found if buffer.name in stages}
    return PlannedProgram(
        program=program,
        addresses={
            b.name: Address(
                strides=strides[b.name],
                offset_bytes=offsets.get(b.name, ZERO),
                stage_bytes=slots.get(b.name, 0),
            )
            for b in buffers
        },
        shared_bytes=shared_bytes,
        sync_offsets=syncs,
        workspace_bytes=workspace_bytes,
    )
