"""Addresses in shared memory: byte offsets of the shared tensors of one launch.

Tensors are laid one after another, each at a multiple of its alignment; a tensor's bytes are those from its first to
its last element. Lifetimes are not shared yet: two tensors never overlap.

    a: f32[10] align 16, b: f16[8] align 128   ->   a at 0, b at 128, total 144
"""

from texpr.codegen.graph import BlockGraph, SharedPlan
from texpr.codegen.layout import span_elements
from texpr.grammar.diagnostics import InternalError, fail
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.target import Target

WORD_BYTES = 4  # the total is whole words: an indivisible update of a byte reads the word around it


def place_shared(graph: BlockGraph, strides: dict[str, tuple[int, ...]], target: Target) -> SharedPlan:
    """Offsets in bytes of every shared tensor. Raises E0403 when the sum is beyond `target.shared_bytes`."""
    offsets: dict[str, int] = {}
    end = 0
    for tensor in graph.tensors:
        if tensor.memory in (Memory.SHARED, Memory.CLUSTER):
            align = max(tensor.align, tensor.dtype.size_bytes)
            offsets[tensor.name] = -(-end // align) * align
            end = offsets[tensor.name] + span_elements(tensor.shape, strides[tensor.name]) * tensor.dtype.size_bytes
            if target.is_cuda and end > target.shared_bytes:
                raise fail(
                    "E0403",
                    f"the shared buffers of this kernel take at least {end} bytes; "
                    f"{target.name} has {target.shared_bytes} per block",
                    tensor.span,
                    f"{tensor.name} does not fit",
                    help="use smaller tiles, or place a buffer with `new global`",
                )
    return SharedPlan(offsets=offsets, total_bytes=-(-end // WORD_BYTES) * WORD_BYTES)


def check_shared(graph: BlockGraph, strides: dict[str, tuple[int, ...]], plan: SharedPlan) -> None:
    """Verify a plan pair by pair: InternalError for an overlap, a misaligned or missing tensor, or a wrong total."""
    shared = [t for t in graph.tensors if t.memory not in (Memory.REG, Memory.GLOBAL)]
    if {t.name for t in shared} != set(plan.offsets):
        raise InternalError(f"{graph.name}: the shared plan and the shared tensors differ")
    ranges: list[tuple[int, int, str]] = []
    for tensor in shared:
        start = plan.offsets[tensor.name]
        last = sum((e - 1) * s for e, s in zip(tensor.shape, strides[tensor.name], strict=True))
        size = 0 if 0 in tensor.shape else (last + 1) * (tensor.dtype.bits // 8)
        if start < 0 or start % tensor.align or start % (tensor.dtype.bits // 8) or start + size > plan.total_bytes:
            raise InternalError(f"{graph.name}: {tensor.name} is misplaced at byte {start}")
        ranges.append((start, start + size, tensor.name))
    for number, (start, stop, name) in enumerate(ranges):
        for other_start, other_stop, other in ranges[number + 1 :]:
            if max(start, other_start) < min(stop, other_stop):
                raise InternalError(f"{graph.name}: {name} and {other} overlap in shared memory")
