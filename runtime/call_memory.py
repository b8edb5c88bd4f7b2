"""The memory of a call besides its arrays: workspaces and words, as one allocation, and words that calls restore.

0            256 * k                                   workspaces, as the manifest places them
256 * k      words of no or of fresh zeros             in the same allocation, zeroed in each call
another one  words that earlier calls left as zeros    of which no two calls at a time have one
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from texpr.codegen.manifest import ALIGNMENT_BYTES, INITS, MAX_WORKSPACE_BYTES, Manifest, Words, evaluate
from texpr.grammar.diagnostics import fail
from texpr.grammar.records import dataclass

if TYPE_CHECKING:
    from texpr.runtime.launch import Backend

SCRATCH, KEPT = 0, 1  # the allocations of a call, in this order behind its arrays

Where = tuple[int, int]
"""A place in a call's memory: which array or allocation, and bytes from its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMemory:
    """What a call allocates: `scratch_bytes`, of which `zeroed` (offset, bytes) are zeros, and `kept_bytes` of zeros
    that calls leave. `workspace` and `words` say where each is: (allocation, offset, bytes)."""

    scratch_bytes: int
    zeroed: tuple[int, int]
    kept_bytes: int
    workspace: Mapping[str, tuple[int, int, int]]
    words: Mapping[str, tuple[int, int, int]]

    @property
    def allocates(self) -> bool:
        return self.scratch_bytes > 0 or self.kept_bytes > 0


def call_memory(manifest: Manifest, sizes: Mapping[str, int], *, on_host: bool) -> CallMemory:
    """The memory of a call of these sizes. Raises E0403 for more than there is: the machine's memory where it is the
    host's, an address space otherwise."""
    words: dict[str, tuple[int, int, int]] = {}
    ends = {SCRATCH: evaluate(manifest.workspace_bytes, sizes), KEPT: 0}
    fresh = None
    for array in sorted(manifest.words, key=_place):
        which, size = KEPT if array.init == "once" else SCRATCH, evaluate(array.size_bytes, sizes)
        begin = _rounded(ends[which])
        if array.init == "each call" and fresh is None:
            fresh = begin
        words[array.name], ends[which] = (which, begin, size), begin + _rounded(size)
    limit = host_memory_bytes() if on_host else MAX_WORKSPACE_BYTES
    total, least = sum(ends.values()), min([*ends.values(), *(size for _, _, size in words.values())])
    if not 0 <= total <= limit or least < 0:
        needs = f"{total} bytes" if 0 <= total < 1 << 80 else "an impossible number of bytes"
        raise fail(
            "E0403",
            f"{manifest.name}: its workspaces need {needs}, and there are at most {limit}",
            help="bind smaller sizes, or declare smaller buffers",
        )
    return CallMemory(
        scratch_bytes=ends[SCRATCH],
        zeroed=(0, 0) if fresh is None else (fresh, ends[SCRATCH] - fresh),
        kept_bytes=ends[KEPT],
        workspace={
            t.name: (SCRATCH, evaluate(t.offset_bytes, sizes), evaluate(t.size_bytes, sizes))
            for t in manifest.workspace
        },
        words=words,
    )


def _place(array: Words) -> tuple[int, bool]:
    """By what words hold. Of those that calls leave, what has a fixed size comes first, so that calls of other sizes
    find it where it was: a barrier of the grid may leave the top bit of its word set, which is no counter's zero."""
    return INITS.index(array.init), array.init == "once" and not isinstance(array.size_bytes, int)


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def host_memory_bytes() -> int:
    """The memory of this machine, used or not."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def taken(memory: CallMemory, backend: "Backend", queue: Any) -> Iterator[tuple[int, int]]:
    """The addresses of the allocations of a call that has any, as long as it needs them; 0 for one without bytes."""
    if not memory.kept_bytes:
        with backend.scratch(memory.scratch_bytes, queue) as scratch:
            _clear(memory, scratch, backend, queue)
            yield scratch, 0
    elif not memory.scratch_bytes:
        with backend.zeros(memory.kept_bytes, queue, once=False) as kept:
            yield 0, kept
    else:  # a graph that allocates memory is instantiated once at a time
        with (
            backend.zeros(memory.kept_bytes, queue, once=True) as kept,
            backend.scratch(memory.scratch_bytes, queue) as scratch,
        ):
            _clear(memory, scratch, backend, queue)
            yield scratch, kept


def _clear(memory: CallMemory, scratch: int, backend: "Backend", queue: Any) -> None:
    offset, size = memory.zeroed
    if size:
        backend.zero(scratch + offset, size, queue)
