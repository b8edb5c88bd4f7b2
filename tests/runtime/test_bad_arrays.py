"""Arguments that are not what they say: a diagnostic, whatever a foreign object raises or claims."""

from typing import Any

import numpy as np
import pytest

import texpr

KERNEL = "kernel k(A: f32[N], s: f32) { par N i { A[i] = s } }"


class Claims:
    """An array-like with the given memory; its attributes are those of a plain f32 array otherwise."""

    dtype, flags, shape, strides = np.dtype("f4"), np.zeros(1).flags, (8,), (4,)

    def __init__(self, **claims: Any) -> None:
        self.__array_interface__ = {"data": (64, False)}
        for name, value in claims.items():
            setattr(self, name, value)


class Raises:
    dtype, flags, shape = np.dtype("f4"), np.zeros(1).flags, ()

    @property
    def __array_interface__(self) -> Any:
        raise RuntimeError("no")

    def item(self) -> float:
        raise ValueError("no")


class Pack:
    def __init__(self, device: Any, capsule: Any) -> None:
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule


ARRAYS = [
    None, 5, "A", [1.0] * 8, np.ndarray, np.float32(1), np.array(1, "f4"), np.zeros(8, ">f4"), np.zeros(8, object),
    np.zeros(8), np.zeros((8, 1), "f4"), np.zeros(16, "f4")[::2], np.zeros(8, "f4")[::-1], np.zeros(8, [("a", "f4")]),
    np.broadcast_to(np.float32(1), (8,)), np.frombuffer(bytes(33), np.uint8)[1:].view("f4"), Raises(),
    Claims(__array_interface__={"data": ("x", False)}), Claims(__array_interface__=None), Claims(shape=("a",)),
    Claims(strides=("b",)), Claims(__array_interface__={"data": (-64, False)}), Claims(shape=(-8,)), Claims(shape=None),
    Claims(strides=()), Pack((1, 0), None), Pack((1, 0), 5), Pack(None, None), Pack(("a", "b"), None), Pack((1,), None),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: type(a).__name__)
def test_what_is_no_array_of_the_type_is_refused(array: Any) -> None:
    kernel = texpr.parse(KERNEL).only
    for call in (kernel, kernel.interpret):
        with pytest.raises(texpr.TExprError):
            call(array, 1.0)


@pytest.mark.parametrize("scalar", [None, "1", 1j, True, 10**400, Raises(), np.zeros(2), float])
def test_what_is_no_scalar_is_refused(scalar: Any) -> None:
    with pytest.raises(texpr.TExprError):
        texpr.parse(KERNEL).only.interpret(np.zeros(8, "f4"), scalar)


@pytest.mark.parametrize("value", [None, 1.5, float("nan"), "8", 1j, [8], np.zeros(2)])
def test_what_is_no_size_is_refused(value: Any) -> None:
    kernel = texpr.parse(KERNEL).only
    for names in ({"N": value}, {"hints": {"N": value}}, {"target": value}):
        with pytest.raises(texpr.TExprError):
            kernel.compile(**names)
    with pytest.raises(texpr.TExprError):
        kernel.core(sizes={"N": value})
    with pytest.raises(texpr.TExprError):
        texpr.parse(value)
