"""Where buffers lie: registers of a thread, shared memory of a block, or global memory, each with the reason.

Without the author's word a local goes to registers where one thread alone uses it (or every thread keeps its own
equal copy), to shared memory where the threads of a block use it and it fits, and else to global memory, expanded by
the parallel indices around it so that no two of their iterations share a copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from texpr.grammar.ast import Attr, Buffer, IndexExpr, Role
from texpr.grammar.attributes import Construct, is_mapped
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.expr import ONE, add, constant_value, index_names
from texpr.grammar.index.interval import Ranges, bounds
from texpr.grammar.permissions import alignment_of
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.declared import declared_layout, shared_layout
from texpr.polyhedral.layout.extent import extent_bytes
from texpr.polyhedral.layout.make import copied
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.target import Target

MAX_REGISTER_BYTES = 1024  # the largest local of one thread that is kept in registers
MAX_THREAD_BYTES = 128 << 10  # of all locals of one thread: CUDA gives it 512 KiB, and spills and calls need some
ALIGNMENT_BYTES = {Memory.GLOBAL: 256, Memory.SHARED: 1024}  # of the memory's own start; a workspace begins at one


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalUse:
    """How a launch uses a local. `shared_by_threads`: it is declared at block level and some statement that the
    block's threads share out writes it. `indices`: the parallel indices on hardware places around its `new`. `bytes`:
    those of a local of constant shape, else None."""

    buffer: Buffer
    block_level: bool
    shared_by_threads: bool
    indices: tuple[str, ...]
    bytes: int | None


def memories(use: LocalUse, target: Target) -> tuple[Memory, ...]:
    """Where a local may lie, room apart: the author's word alone, if there is one."""
    pinned = use.buffer.memory if target.is_cuda else None
    if pinned is not None:
        return (Memory(pinned),)
    found = [Memory.GLOBAL]
    if use.block_level and use.bytes is not None and target.is_cuda:
        found.insert(0, Memory.SHARED)
    if not use.shared_by_threads and use.bytes is not None and use.bytes <= MAX_THREAD_BYTES:
        found.insert(0, Memory.REG)
    return tuple(found)


def size_bytes(buffer: Buffer) -> int | None:
    """Bytes of a buffer of constant shape, padding included, else None."""
    return constant_value(extent_bytes(declared_layout(buffer), buffer.dtype.size_bytes))


def place_parameter(buffer: Buffer, layout: Layout) -> MappedBuffer:
    """A parameter: where the caller has it, in the declared layout."""
    scalar = buffer.role is Role.SCALAR
    return MappedBuffer(
        name=buffer.name,
        dtype=buffer.dtype,
        memory=Memory.REG if scalar else Memory.GLOBAL,
        scope=Scope.GRID,
        layout=layout,
        role=buffer.role,
        align=buffer.align,
        reason="a scalar argument" if scalar else "a parameter",
        span=buffer.span,
    )


def place_workspace(buffer: Buffer, target: Target) -> MappedBuffer:
    """A local at kernel level: all launches share it. Raises E0401 where the author wants it elsewhere."""
    check_layout(buffer)
    _check_alignment(buffer, Memory.GLOBAL, copies=False)
    if target.is_cuda and buffer.memory in ("reg", "shared"):
        raise contradiction(buffer, "launches share a buffer of kernel level, so it lies in global memory")
    return MappedBuffer(
        name=buffer.name,
        dtype=buffer.dtype,
        memory=Memory.GLOBAL,
        scope=Scope.GRID,
        layout=declared_layout(buffer),
        role=Role.LOCAL,
        align=buffer.align,
        reason="a workspace: launches share it",
        span=buffer.span,
    )


def contradiction(buffer: Buffer, why: str) -> TExprError:
    """E0401 for a placement by the author that cannot be kept."""
    name = buffer.source_name or buffer.name
    return fail(
        "E0401",
        f"{name} cannot lie in {buffer.memory} memory: {why}",
        buffer.span,
        "placed here by the author",
        help=f"leave the word `{buffer.memory}` away and the compiler places the buffer",
    )


def check_layout(buffer: Buffer) -> None:
    """Raises E0402 for a layout attribute that is not mapped yet."""
    for attr in buffer.attrs:
        if not is_mapped(attr.name, Construct.NEW):
            raise unsupported(attr)


def _check_alignment(buffer: Buffer, memory: Memory, copies: bool) -> None:
    """Raises E0402 for an `#align(n)` beyond what the start of the memory is a multiple of, or of many copies."""
    attr = alignment_of(buffer.attrs)
    most = ALIGNMENT_BYTES.get(memory, buffer.align)
    if attr is None or (buffer.align <= most and not copies):
        return
    why = "the copies of one iteration each follow one another without a gap"
    if not copies:
        why = f"a buffer in {memory.value} memory begins at a multiple of {most} bytes"
    raise fail(
        "E0402", f"#align({buffer.align}) is not mapped here: {why}", attr.span, "this attribute",
        help="remove #align" if copies else f"write #align({most}) or less",
    )  # fmt: skip


def unsupported(attr: Attr) -> TExprError:
    """E0402 for an attribute that is understood but not mapped, with the reason."""
    help = f"remove #{attr.name}; the compiler then chooses by itself"
    return fail("E0402", f"#{attr.name} is not mapped yet", attr.span, "this attribute", help=help)


def choose_memory(uses: Sequence[LocalUse], target: Target) -> dict[str, tuple[Memory, str]]:
    """The memory of every local of one launch and the reason, in order of declaration.

    Raises E0401 for an author's placement that cannot be kept, E0402 for a layout not mapped, E0403 for size.
    """
    chosen: dict[str, tuple[Memory, str]] = {}
    shared = _pinned_bytes(uses, "shared", target.shared_bytes, f"a block of {target.name}", target)
    kept = _pinned_bytes(uses, "reg", MAX_THREAD_BYTES, "a thread", target)
    for use in uses:
        check_layout(use.buffer)
        memory, reason = _memory(use, shared, kept, target)
        if memory is Memory.SHARED and use.buffer.memory != "shared":
            shared += use.bytes or 0
        if memory is Memory.REG and use.buffer.memory != "reg":
            kept += use.bytes or 0
        chosen[use.buffer.name] = (memory, reason)
    return chosen


def place_locals(
    uses: Sequence[LocalUse], memory: Mapping[str, Memory], ranges: Ranges, target: Target, host: Ranges
) -> dict[str, MappedBuffer]:
    """Every local of one launch in its `memory`; `ranges` bounds the expansion indices, and `host` the indices of host
    loops in turn: one allocation serves all their iterations."""
    placed: dict[str, MappedBuffer] = {}
    for name, (usual, reason) in choose_memory(uses, target).items():
        use = next(u for u in uses if u.buffer.name == name)
        said = reason if memory[name] is usual else f"placed by the candidate; without it in {usual.value} memory"
        placed[name] = _placed(use, memory[name], said, ranges, host)
    return placed


def _pinned_bytes(uses: Sequence[LocalUse], memory: str, available: int, owner: str, target: Target) -> int:
    """The bytes that the author's word puts into a memory of a GPU. Raises E0403 for more than there are."""
    pinned = [u for u in uses if u.buffer.memory == memory] if target.is_cuda else []
    needed = sum(u.bytes or 0 for u in pinned)
    if needed > available:
        raise fail(
            "E0403",
            f"the {memory} buffers need {needed} bytes, and {owner} has {available}",
            max(pinned, key=lambda u: u.bytes or 0).buffer.span,
            f"placed in {memory} memory",
            help=f"make the tiles smaller, or leave the word `{memory}` away from some of them",
        )
    return needed


def _memory(use: LocalUse, shared: int, kept: int, target: Target) -> tuple[Memory, str]:
    buffer, size = use.buffer, use.bytes
    pinned = buffer.memory if target.is_cuda else None
    if pinned == "global":
        return Memory.GLOBAL, "placed by the author"
    if pinned == "shared":
        if not use.block_level:
            raise contradiction(buffer, "one thread runs the iteration that it lives in")
        if size is None:
            raise contradiction(buffer, "its size is not a constant")
        return Memory.SHARED, "placed by the author"
    if pinned == "reg":
        if use.shared_by_threads:
            raise contradiction(buffer, "the threads of a block share out the statements that write it")
        if size is None:
            raise contradiction(buffer, "its size is not a constant")
        return Memory.REG, "placed by the author"
    small = size is not None and size <= MAX_REGISTER_BYTES and kept + size <= MAX_THREAD_BYTES
    if not use.shared_by_threads and small:
        return Memory.REG, "every thread keeps an equal copy" if use.block_level else "one thread alone uses it"
    if use.block_level and size is not None and shared + size <= target.shared_bytes:
        return Memory.SHARED, "the threads of a block share it"
    if size is None:
        return Memory.GLOBAL, "its size is not a constant"
    if use.block_level:
        return Memory.GLOBAL, "it does not fit into shared memory beside the others"
    if use.shared_by_threads:
        return Memory.GLOBAL, "the statements that write it are shared out, and this target has no shared memory"
    if size > MAX_REGISTER_BYTES:
        return Memory.GLOBAL, f"{size} bytes are more than a thread keeps in registers ({MAX_REGISTER_BYTES})"
    return Memory.GLOBAL, f"the locals before it take what a thread has ({MAX_THREAD_BYTES} bytes)"


def _placed(use: LocalUse, memory: Memory, reason: str, ranges: Ranges, host: Ranges) -> MappedBuffer:
    buffer = use.buffer
    greatest = replace(buffer, shape=tuple(_greatest_extent(e, ranges, buffer) for e in buffer.shape))
    layout = shared_layout(greatest) if memory is Memory.SHARED else declared_layout(greatest)
    expanded = use.indices if memory is Memory.GLOBAL else ()
    if expanded:
        layout = copied(layout, [_copies(add(ranges[i][1], ONE), host, buffer) for i in expanded])
    _check_alignment(buffer, memory, copies=bool(expanded))
    return MappedBuffer(
        name=buffer.name,
        dtype=buffer.dtype,
        memory=memory,
        scope=Scope.THREAD if memory is Memory.REG or not use.block_level else Scope.BLOCK,
        layout=layout,
        role=Role.LOCAL,
        expanded=expanded,
        align=max(buffer.align, _swizzled_alignment(layout, buffer)),
        reason=reason,
        span=buffer.span,
    )


def _swizzled_alignment(layout: Layout, buffer: Buffer) -> int:
    """The bytes at whose multiples the bits of a tile's own addresses are those of the memory's, as far as it goes."""
    period = 1 if layout.xor is None else layout.xor.period
    return min(period * buffer.dtype.size_bytes, ALIGNMENT_BYTES[Memory.SHARED])


def _copies(extent: IndexExpr, host: Ranges, buffer: Buffer) -> IndexExpr:
    """The greatest value of an expansion index's extent in all iterations of the host loops around the launch."""
    found = bounds(extent, host)
    if found is None or index_names(found[1]):
        raise fail(
            "E0401",
            f"no bound is known for how many copies of {buffer.source_name or buffer.name} a launch needs",
            buffer.span,
            "one copy for each iteration of the `par`s around it, whose extents depend on an outer `seq`",
            help="give these `par`s their greatest extents and guard the body with `if`",
        )
    return found[1]


def _greatest_extent(extent: IndexExpr, ranges: Mapping[str, tuple[IndexExpr, IndexExpr]], buffer: Buffer) -> IndexExpr:
    found = bounds(extent, ranges)
    if found is None:
        raise fail(
            "E0401",
            f"no bound is known for an extent of {buffer.source_name or buffer.name}",
            buffer.span,
            "its shape depends on indices around it",
            help="give the buffer its greatest extent",
        )
    return found[1]
