"""Arrays of all kinds as arguments: run alike by a call, a compiled kernel and the interpreter, or refused alike."""

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import texpr
from texpr.runtime.arrays import _DLDataType, _DLDevice, _DLTensor

KERNEL = texpr.parse("kernel k(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] + 1.0 } }").only
SUM = texpr.parse("kernel s(A: f32[N], B: f32[N], C: f32[N]) { par N i { C[i] = A[i] + B[i] } }").only
ROW = np.arange(64, dtype="f4")
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@cache
def ways(kernel: texpr.Kernel) -> list[Callable[..., Any]]:
    """A call, a compiled kernel twice (the second call may take a quicker way), and the interpreter."""
    compiled = kernel.compile("cpu")
    return [kernel, compiled, compiled, kernel.interpret]


def runs(a: Any, b: Any) -> None:
    for way in ways(KERNEL):
        np.asarray(b)[...] = 0
        way(a, b)
        assert np.array_equal(np.asarray(b), np.asarray(a) + 1)


def refused(a: Any, b: Any) -> None:
    for way in ways(KERNEL):
        with pytest.raises(texpr.TExprError) as caught:
            way(a, b)
        assert caught.value.diagnostics[0].code in ("E0601", "E0602", "E0603", "E0605")


def out() -> Any:
    return np.zeros(8, "f4")


def frozen() -> Any:
    array = np.ones(8, "f4")
    array.flags.writeable = False
    return array


def test_arrays_in_plain_memory_run(tmp_path: Path) -> None:
    record = np.zeros(8, [("a", "f4")]).view(np.recarray)
    mapped = np.memmap(tmp_path / "m", "f4", "w+", shape=(8,))
    for a in (
        ROW[:8],
        frozen(),
        record.a,
        mapped,
        np.memmap(tmp_path / "m", "f4", "r"),
        np.ones((8,), "f4", order="F"),
    ):
        runs(a, out())
    runs(ROW[:8], mapped)
    runs(np.ones(8, "f4"), record.a)
    runs(np.ones(0, "f4"), np.ones(0, "f4"))
    runs(np.ones(1, "f4"), np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (1,), (0,)))


def test_a_matrix_is_an_array_of_two_dimensions() -> None:
    kernel = texpr.parse("kernel k(A: f32[N, M], B: f32[N, M]) { par N i, M j { B[i, j] = A[i, j] } }").only
    for way in ways(kernel):
        result = np.zeros((4, 4), "f4")
        way(np.ones((4, 4), "f4").view(np.matrix), result)
        assert result.all()


def test_arrays_that_are_only_read_may_be_one() -> None:
    x = frozen()
    for way in ways(SUM):
        result = out()
        way(x, x, result)
        assert (result == 2).all()
        with pytest.raises(texpr.TExprError, match="E0603"):
            way(x, result, result)


NO_ARRAYS = {
    "memoryview": memoryview(np.ones(8, "f4")),
    "list": [1.0] * 8,
    "bytes": bytes(32),
    "ctypes": (ctypes.c_float * 8)(),
    "rank 0": np.array(1, "f4"),
    "scalar": np.float32(1),
    "records": np.zeros(8, [("a", "f4")]).view(np.recarray),
    "field among fields": np.zeros(8, [("a", "f4"), ("b", "f4")])["a"],
    "masked": np.ma.masked_array(np.ones(8, "f4"), mask=[True, False] * 4),
    "backwards": np.ones(8, "f4")[::-1],
    "every other": np.ones(16, "f4")[::2],
    "broadcast": np.broadcast_to(np.float32(1), (8,)),
    "a kernel": KERNEL,
}


@pytest.mark.parametrize("name", NO_ARRAYS)
def test_what_is_no_plain_array_is_refused(name: str) -> None:
    refused(NO_ARRAYS[name], out())
    refused(np.ones(8, "f4"), NO_ARRAYS[name])


def test_outputs_are_writable_and_apart() -> None:
    x = np.ones(16, "f4")
    refused(np.ones(8, "f4"), frozen())
    refused(x[:8], x[4:12])
    refused(x, x)
    runs(x[:8], x[8:])


class Interface:
    """An array by `__array_interface__` alone."""

    __array_interface__ = ROW.__array_interface__


class Torch:
    """What calls itself a tensor of torch and is none."""

    dtype = "torch.float32"

    def data_ptr(self) -> int:
        return 64


Torch.__module__ = "torch.fake"


def test_imitations_are_refused() -> None:
    refused(Interface(), out())
    refused(Torch(), out())


class Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Pack:
    """An object with a hand-made DLPack capsule: by default eight floats of ROW."""

    def __init__(self, **lies: Any) -> None:
        shape, strides = lies.get("shape", (8,)), lies.get("strides")
        dimensions = len(shape or ())
        self.shape = (ctypes.c_int64 * max(dimensions, 1))(*(shape or ()))
        self.strides = (ctypes.c_int64 * dimensions)(*strides) if strides else None
        self.device = lies.get("device", (1, 0))
        self.managed = Managed(
            _DLTensor(
                lies.get("data", ROW.ctypes.data),
                _DLDevice(*lies.get("inner", (1, 0))),
                lies.get("ndim", dimensions),
                _DLDataType(lies.get("code", 2), lies.get("bits", 32), lies.get("lanes", 1)),
                self.shape if shape is not None else None,
                self.strides,
                lies.get("offset", 0),
            ),
            None,
            None,
        )

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        return new_capsule(ctypes.addressof(self.managed), b"dltensor", None)


def test_a_capsule_without_lies_runs() -> None:
    for way in ways(KERNEL):
        result = out()
        way(Pack(), result)
        assert np.array_equal(result, ROW[:8] + 1)


LIES = [
    {"data": None}, {"shape": None, "ndim": 1}, {"ndim": -1}, {"ndim": 65}, {"ndim": 2**31 - 1}, {"shape": (-8,)},
    {"strides": (-1,)}, {"strides": (2,)}, {"lanes": 2}, {"code": 77}, {"bits": 64}, {"offset": 2**63},
    {"shape": (2**62,)}, {"shape": (2**62, 2**62)}, {"device": (2, 0)}, {"inner": (2, 0)}, {"inner": (1, 3)},
    {"device": (99, 0)}, {"device": ("a", 0)}, {"device": None}, {"device": (1.5, 0)}, {"device": (2**70, 0)},
]  # fmt: skip


@pytest.mark.parametrize("lies", LIES, ids=str)
def test_a_capsule_that_contradicts_itself_is_refused(lies: dict[str, Any]) -> None:
    refused(Pack(**lies), out())


def test_an_error_inside_an_export_is_a_diagnostic() -> None:
    class Raises(Pack):
        def __dlpack__(self, **options: Any) -> Any:
            raise SystemError("no")

    refused(Raises(), out())
