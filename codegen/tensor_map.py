"""Tensor maps: what the copy engine of a GPU is told of an array, boxes of which it copies. Standard library only.

    TensorMap(address=…, dtype="bf16", shape=(M, K), strides_bytes=(2 * K, 2), box=(128, 64), swizzle_bytes=128, …)

Dimensions count from the slowest, as the program's do; the last one is contiguous. A box lies in shared memory one row
after another, under a swizzle of so many bytes (0: none); what a box has beyond the array is zeros. The hardware's
limits are sentences here: `box_fault` is asked where a map is written, `array_fault` where a call makes one.
"""

from collections.abc import Sequence
from math import prod

from texpr.grammar.records import dataclass

MAX_RANK = 5
MAX_BOX = 256  # along a dimension
EXTENT_BITS = 32
MAX_EXTENT = 1 << EXTENT_BITS
MAX_STRIDE_BYTES = 1 << 40
UNIT_BYTES = 16  # of addresses, of strides and of a box's rows

TYPES = {
    "u8": ("UINT8", 0), "i8": ("UINT8", 0), "bool": ("UINT8", 0), "f8e4m3": ("UINT8", 0), "f8e5m2": ("UINT8", 0),
    "i16": ("UINT16", 1), "u32": ("UINT32", 2), "i32": ("INT32", 3), "i64": ("INT64", 5),
    "f16": ("FLOAT16", 6), "f32": ("FLOAT32", 7), "f64": ("FLOAT64", 8), "bf16": ("BFLOAT16", 9),
}  # fmt: skip
"""Of each element type the driver's name behind CU_TENSOR_MAP_DATA_TYPE_, and its number."""
SWIZZLE_BYTES = {0: ("NONE", 0), 32: ("32B", 1), 64: ("64B", 2), 128: ("128B", 3)}
PROMOTION_BYTES = {0: ("NONE", 0), 64: ("L2_64B", 1), 128: ("L2_128B", 2), 256: ("L2_256B", 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """A tensor map of an array in memory: `promotion_bytes` is what the L2 cache fetches at least."""

    address: int
    dtype: str
    element_bytes: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int = 0
    promotion_bytes: int = 128


def box_fault(box: Sequence[int], element_bytes: int, swizzle_bytes: int) -> str | None:
    """Why no tensor map has such boxes; None where one does."""
    if not 1 <= len(box) <= MAX_RANK:
        return f"a tensor map has 1 to {MAX_RANK} dimensions, not {len(box)}"
    for dim, extent in enumerate(box):
        if not 1 <= extent <= MAX_BOX:
            return f"a box has 1 to {MAX_BOX} elements along a dimension, not {extent} along dimension {dim}"
    row = box[-1] * element_bytes
    if row % UNIT_BYTES:
        return f"the rows of a box have a multiple of {UNIT_BYTES} bytes, not {row}"
    if swizzle_bytes and row > swizzle_bytes:
        return f"the rows of a box have at most the {swizzle_bytes} bytes of its swizzle, not {row}"
    return None


def array_fault(shape: Sequence[int], strides_bytes: Sequence[int], element_bytes: int) -> str | None:
    """Why there is no tensor map of arrays of such shape and strides; None where there is one."""
    if prod(shape) == 0:
        return "a tensor map has elements, and the array has none"
    for dim, extent in enumerate(shape):
        if not 1 <= extent <= MAX_EXTENT:
            return (
                f"a tensor map has at most {MAX_EXTENT} elements along a dimension, not {extent} along dimension {dim}"
            )
    for dim, stride in enumerate(strides_bytes[:-1]):
        if stride % UNIT_BYTES or not 0 <= stride < MAX_STRIDE_BYTES:
            limits = f"a multiple of {UNIT_BYTES} bytes below {MAX_STRIDE_BYTES}"
            return f"the stride of a tensor map is {limits}, not {stride} bytes along dimension {dim}"
    if strides_bytes[-1] != element_bytes:
        return (
            f"the last dimension of a tensor map is contiguous; here its elements lie {strides_bytes[-1]} bytes apart"
        )
    return None


def address_fault(address: int) -> str | None:
    """Why no tensor map begins there; None where one does."""
    behind = address % UNIT_BYTES
    if behind:
        return f"a tensor map begins at a multiple of {UNIT_BYTES} bytes, and the array {behind} bytes behind one"
    return None
