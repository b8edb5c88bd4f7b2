"""NumPy arrays copied to a GPU for one call and back: for trials from the command line, not for deployment."""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from texpr.grammar.diagnostics import fail
from texpr.grammar.strides import reach
from texpr.runtime.arrays import CUDA, ArrayView, view_of


@contextmanager
def on_gpu(values: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Views of copies of `values` on the GPU, and the stream that copies them: pass it to the call. After the block
    their contents are copied back. E0503 without CuPy."""
    try:
        import cupy
    except ImportError:
        raise fail(
            "E0503",
            "running on a GPU from the command line copies arrays through CuPy, which is not installed",
            help="pip install cupy-cuda13x, or call the compiled kernel with arrays of your own",
        ) from None
    import numpy

    stream = cupy.cuda.Stream(non_blocking=True)  # nobody else's work
    moved: dict[str, Any] = {}
    copies: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, numpy.ndarray):
            raw = _bytes_of(value)
            with stream:
                # Whole words: an indivisible update of an 8-bit element reads the 16 bits around it.
                copies[name] = cupy.zeros(-(-raw.size // 4) * 4, numpy.uint8)
                copies[name][: raw.size] = cupy.asarray(raw)
            moved[name] = ArrayView(
                pointer=copies[name].data.ptr,
                shape=value.shape,
                strides=tuple(stride // value.dtype.itemsize for stride in value.strides),
                dtype=view_of(name, value).dtype,
                device=(CUDA, copies[name].device.id),
                readonly=False,
            )
        else:
            moved[name] = value
    yield moved, stream
    with stream:
        for name, copy in copies.items():
            raw = _bytes_of(values[name])
            raw[...] = cupy.asnumpy(copy[: raw.size])


def _bytes_of(array: Any) -> Any:
    """The bytes from an array's first to its last element."""
    import numpy

    if array.size == 0:
        return numpy.empty(0, numpy.uint8)
    low, high = reach((*array.shape, array.dtype.itemsize), (*array.strides, 1))
    raw = (ctypes.c_ubyte * (high - low)).from_address(array.__array_interface__["data"][0] + low)
    return numpy.frombuffer(memoryview(raw), numpy.uint8)
