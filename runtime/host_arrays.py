"""Host memory as NumPy arrays: views of foreign CPU arrays, and flat spans for generated code. NumPy comes lazily."""

import ctypes
from typing import Any

from texpr.grammar.types import DType
from texpr.runtime.arrays import ArrayView

_PLAIN = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16",
    "i8": "int8", "u32": "uint32", "u8": "uint8", "bool": "bool",
}  # fmt: skip
_EXTENDED = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
NUMPY_NAMES = frozenset((*_PLAIN.values(), *_EXTENDED.values()))  # what NumPy calls the element types


def numpy_dtype(dtype: DType) -> Any:
    """The NumPy type of an element type; ml_dtypes' for bf16 and f8."""
    import numpy

    if dtype.name in _PLAIN:
        return numpy.dtype(_PLAIN[dtype.name])
    import ml_dtypes

    return numpy.dtype(getattr(ml_dtypes, _EXTENDED[dtype.name]))


def storable(array: Any) -> Any:
    """An array as NumPy's files can hold it: bf16 and f8 as raw bytes of their width (void), others as they are."""
    extended = type(array.dtype.type(0)).__module__ != "numpy" and array.dtype.kind != "V"
    return array.view(f"V{array.dtype.itemsize}") if extended else array


def as_numpy(view: ArrayView, owner: Any) -> Any:
    """A NumPy array on the memory of a CPU array; `owner` is returned itself if it is one. It must stay alive."""
    import numpy

    if isinstance(owner, numpy.ndarray):
        return owner
    dtype = numpy_dtype(view.dtype)
    if view.is_empty:
        return numpy.empty(view.shape, dtype)
    low, high = view.byte_range
    memory: Any = (ctypes.c_char * (high - low)).from_address(low)
    strides = tuple(stride * dtype.itemsize for stride in view.strides)
    return numpy.ndarray(view.shape, dtype, memory, view.pointer - low, strides)
