"""Foreign arrays seen as pointers: NumPy by its array interface, everything else by DLPack, torch by a fast path.

No data is copied. DLPack's capsule is read and left unconsumed: its destructor releases what the producer took, while
the caller's array keeps the memory alive for the call. Standard library only.
"""

import ctypes
from collections.abc import Callable
from dataclasses import field
from typing import Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.records import dataclass
from texpr.grammar.strides import dense, reach
from texpr.grammar.types import ELEMENT_TYPES, DType
from texpr.runtime.streams import LEGACY, library_of

MAX_DIMENSIONS = 64  # as NumPy and torch have
MAX_ADDRESS = 1 << 63  # half of the address space belongs to the system
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayView:
    """An array argument: `strides` in elements, `device` is (DLDeviceType, number). `owner` is what keeps the memory of
    a GPU array whose library does not know our stream: it is let go when the stream has passed the call."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: tuple[int, int]
    readonly: bool
    owner: Any = field(default=None, compare=False, repr=False)

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape

    @property
    def byte_range(self) -> tuple[int, int]:
        """The half-open range of addresses that the array may touch."""
        low, high = reach(self.shape, self.strides)
        size = self.dtype.size_bytes
        return self.pointer + low * size, self.pointer + high * size

    def is_dense(self, strides: tuple[int, ...]) -> bool:
        """Whether the array lies in memory with the given strides; dimensions of extent 1 do not matter."""
        pairs = zip(self.shape, self.strides, strides, strict=True)
        return self.is_empty or all(n == 1 or have == want for n, have, want in pairs)


class _DLDevice(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_BY_DLPACK = {t.dlpack: t for t in ELEMENT_TYPES.values()}
NAMES_OF_NUMPY = {
    "float64": "f64", "float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint32": "u32", "uint8": "u8", "bool": "bool",
    "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def _refuse(name: str, why: str) -> TExprError:
    return fail("E0601", f"argument {name}: {why}", help="pass a NumPy array, or any array with DLPack")


def _element_type(name: str, type_name: str) -> DType:
    if type_name not in NAMES_OF_NUMPY:
        raise _refuse(name, f"its element type {type_name[:40]} is not one of TExpr's")
    return ELEMENT_TYPES[NAMES_OF_NUMPY[type_name]]


def _numpy_view(name: str, array: Any) -> ArrayView:
    dtype = _element_type(name, array.dtype.name)
    if hasattr(array, "mask"):  # a kernel would read what the mask hides
        raise fail("E0601", f"argument {name}: a masked array is not plain memory", help="pass its .data, or .filled()")
    if not array.dtype.isnative:
        raise _refuse(name, "its bytes are not in this machine's order")
    size = dtype.size_bytes
    if any(stride % size for stride in array.strides):
        raise _refuse(name, "its strides are not multiples of the element size")
    return ArrayView(
        pointer=array.__array_interface__["data"][0],
        shape=tuple(array.shape),
        strides=tuple(stride // size for stride in array.strides),
        dtype=dtype,
        device=(CPU, 0),
        readonly=not array.flags.writeable,
    )


def _torch_view(name: str, tensor: Any) -> ArrayView:
    dtype = _element_type(name, str(tensor.dtype).removeprefix("torch."))
    kind = {"cpu": CPU, "cuda": CUDA}.get(tensor.device.type)
    if kind is None or str(tensor.layout) != "torch.strided":
        raise _refuse(name, f"a {tensor.device.type} tensor of layout {tensor.layout} has no plain memory")
    if tensor.is_neg():  # its memory holds the numbers with the other sign
        raise fail("E0601", f"argument {name}: a tensor that torch negates lazily", help="pass its .resolve_neg()")
    return ArrayView(
        pointer=tensor.data_ptr(),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        dtype=dtype,
        device=(kind, tensor.device.index or 0),
        readonly=False,
    )


def _dlpack_view(name: str, array: Any, stream: Callable[[int], int]) -> ArrayView:
    try:
        device = array.__dlpack_device__()
        on_gpu = int(device[0]) in (CUDA, CUDA_MANAGED)
        own = library_of(array) is not None  # its current stream is the call's: -1 asks for no synchronisation
        capsule = array.__dlpack__(stream=-1 if own else stream(int(device[1]))) if on_gpu else array.__dlpack__()
    except TExprError:
        raise
    except Exception as why:  # a foreign library's own errors, of any class
        raise _refuse(name, f"its DLPack export failed: {str(why)[:200]}") from None
    readonly = type(array).__module__.startswith("jax")  # its arrays never change, which its capsules do not say
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _DLManagedTensorVersioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        tensor, readonly = managed.tensor, readonly or bool(managed.flags & 1)
        if managed.major != 1:
            raise _refuse(name, f"its DLPack version {managed.major} is not 1")
    elif _is_valid(capsule, b"dltensor"):
        tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    else:
        raise _refuse(name, "its DLPack capsule is not one")
    where = (tensor.device.type, tensor.device.id)
    if where != (device[0], device[1]):
        raise _refuse(name, f"its DLPack device is {where} in one place and {tuple(device)[:2]} in another")
    if not 0 <= tensor.ndim <= MAX_DIMENSIONS or (tensor.ndim > 0 and not tensor.shape):
        raise _refuse(name, f"it cannot have {tensor.ndim} dimensions")
    dtype = _BY_DLPACK.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise _refuse(name, "its element type is not one of TExpr's")
    shape = tuple(tensor.shape[d] for d in range(tensor.ndim))
    strides = tuple(tensor.strides[d] for d in range(tensor.ndim)) if tensor.strides else dense(shape)
    return ArrayView(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        strides=strides,
        dtype=dtype,
        device=where,
        readonly=readonly,
        owner=capsule if on_gpu and not own else None,
    )


def _legacy(device: int) -> int:
    return LEGACY


def view_of(name: str, array: Any, stream: Callable[[int], int] = _legacy) -> ArrayView:
    """The view of an array argument called `name`. Raises E0601 for anything that is not an array of our types.

    `stream` gives, for a device, the stream on which a GPU array of a library without current streams must be ready.
    """
    if isinstance(array, ArrayView):
        return array
    try:
        view = _foreign_view(name, array, stream)
        numbers = (view.pointer, *view.shape, *view.strides, *view.device)
        whole = all(isinstance(number, int) for number in numbers) and view.pointer >= 0
        whole = whole and len(view.shape) == len(view.strides) and min(view.shape, default=0) >= 0
        low, high = view.byte_range if whole and not view.is_empty else (1, 1)
        whole = whole and 0 < low <= high <= MAX_ADDRESS
    except TExprError:
        raise
    except Exception as why:  # a foreign object's own errors, of any class
        raise _refuse(name, f"it cannot be read as an array: {str(why)[:200]}") from None
    if not whole:
        raise _refuse(name, "it describes no memory")
    return view


def _foreign_view(name: str, array: Any, stream: Callable[[int], int]) -> ArrayView:
    module = type(array).__module__.partition(".")[0]
    if module == "torch" and hasattr(array, "data_ptr"):
        return _torch_view(name, array)
    if hasattr(array, "__array_interface__") and hasattr(array, "dtype") and hasattr(array, "flags"):
        return _numpy_view(name, array)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _dlpack_view(name, array, stream)
    raise _refuse(name, f"a {type(array).__name__[:40]} is not an array")
