"""How instructions move elements: when they are over, how many move together, what they ask of the caches."""

from enum import StrEnum


class Completion(StrEnum):
    """When an instruction is over: with its node, or when a `Wait` of its pipe or a `WaitGroup` of its thread says."""

    NOW = "now"
    CP_ASYNC = "cp_async"  # the committing thread's pipe of that kind, or group
    TRANSACTION = "transaction"  # the pipe, by the bytes that arrive in the block
    BULK = "bulk"  # the thread's group, from shared memory
    WGMMA = "wgmma"  # the warpgroup's group of products


class Access(StrEnum):
    """How a copy moves the elements of its last index, which are neighbours on both sides, or in registers alone."""

    EACH = "each"  # one by one
    ALIGNED = "aligned"  # together, in memory at an address that is a multiple of their bytes
    APART = "apart"  # one by one, from registers to places that lie apart in memory by a number of elements
    FUNNEL = "funnel"  # 16 bytes from any address in global memory: two aligned chunks, shifted together
    SHIFTED = (
        "shifted"  # 16 bytes of each lane of a warp, one behind the other, from or to any address in global memory
    )


class Cache(StrEnum):
    """What a wide access asks of the caches; those of the headers."""

    PLAIN = "plain"
    STREAM = "stream"
    BYPASS = "bypass"
    READ_ONLY = "read_only"
    NO_ALLOCATE = "no_allocate"
    KEEP = "keep"
