"""Remembered calls give what a full check gives, and still find what differs from call to call."""

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from texpr.codegen.manifest import Manifest, Parameter
from texpr.grammar.diagnostics import TExprError
from texpr.runtime.arguments import bind_arguments
from texpr.runtime.arrays import CPU
from texpr.runtime.looks import facts_of, looks_in, same_of
from texpr.runtime.recall import MAX_SEEN, Binder


def manifest() -> Manifest:
    shapes = {"A": ("N",), "B": ("N",)}
    parameters = [
        Parameter(name=name, dtype="f32", shape=shape, strides=(1,), mode="read" if name == "A" else "write")
        for name, shape in shapes.items()
    ]
    scalar = Parameter(name="s", dtype="i8", shape=(), strides=(), mode="read", scalar=True)
    return Manifest(
        name="k",
        target="cpu",
        arch="",
        loadable=False,
        parameters=(*parameters, scalar),
        sizes={"N": None},
        facts=(),
        workspace_bytes=0,
        workspace=(),
        host=(),
        files={},
        texpr="0",
    )


def test_a_remembered_call_is_bound_like_a_new_one() -> None:
    binder = Binder(manifest(), (CPU,))
    looks = []
    for value in (3, -4, 5):
        a, b = np.zeros(5, np.float32), np.zeros(5, np.float32)
        bound = bind_arguments(manifest(), (a, b, value), {}, (CPU,))
        call = binder((a, b, value), {})
        seen, addresses, scalars = call.seen, call.addresses, call.scalars
        assert addresses == [bound.arrays["A"].pointer, bound.arrays["B"].pointer]
        assert (seen.sizes, scalars) == (bound.sizes, [value])
        assert seen.reaches == ((0, 20), (0, 20))
        looks.append(seen)
    assert looks[0] is looks[1] is looks[2]


def test_arguments_by_name_in_any_order_are_the_same_call() -> None:
    binder = Binder(manifest(), (CPU,))
    a, b = np.zeros(5, np.float32), np.zeros(5, np.float32)
    positional = binder((a, b, 1), {})
    for named in (binder((), {"s": 1, "B": b, "A": a}), binder((a,), {"s": 1, "B": b})):
        assert named.seen is positional.seen
        assert (named.addresses, named.scalars) == (positional.addresses, positional.scalars)
    by_size = binder((a, b), {"s": 1, "N": 5})  # a size is checked, and such a call is not remembered
    assert by_size.seen.sizes == positional.seen.sizes and by_size.seen is not positional.seen
    for kwargs in ({"A": a, "s": 1}, {"B": b}, {"B": b, "s": 1, "N": 6}, {"B": b, "t": 1}):
        with pytest.raises(TExprError):
            binder((a,), kwargs)


class Derived(np.ndarray):
    """A class of whose meaning nobody here knows."""


def test_an_array_of_a_derived_class_is_never_one_that_looked_alike() -> None:
    binder = Binder(manifest(), (CPU,))
    a, b = np.zeros(5, np.float32), np.zeros(5, np.float32)
    for arrays in ((a, b.view(Derived)), (a.view(Derived), b)):
        plain = binder((a, b, 1), {}).seen
        first, second = binder((*arrays, 1), {}).seen, binder((*arrays, 1), {}).seen
        assert first is not plain and first is not second and first.sizes == {"N": 5}


def test_other_shapes_are_bound_anew() -> None:
    binder = Binder(manifest(), (CPU,))
    for n in range(MAX_SEEN + 10):
        arrays = np.zeros(n, np.float32), np.zeros(n, np.float32)
        seen = binder((*arrays, 1), {}).seen
        assert seen.sizes == {"N": n}
        assert binder((*arrays, 1), {}).seen is seen  # also beyond the number that is kept


def test_what_differs_from_call_to_call_is_still_checked() -> None:
    binder = Binder(manifest(), (CPU,))
    memory = np.zeros(64, np.float32)
    start = -memory.ctypes.data // 4 % 4
    a, b = memory[start : start + 8], memory[start + 16 : start + 24]
    binder((a, b, 1), {})
    frozen = b.copy()
    frozen.flags.writeable = False
    wrong = {
        "E0601": [(a, memory[start + 17 : start + 25], 1), (a, b, 200), (a, frozen, 1), (a, b[::-1], 1)],
        "E0603": [(a, a, 1), (a, memory[start + 4 : start + 12], 1)],
    }
    for code, calls in wrong.items():
        for call in calls:
            with pytest.raises(TExprError) as caught:
                binder(call, {})
            assert caught.value.diagnostics[0].code == code


def test_arrays_that_share_memory_for_reading_are_taken() -> None:
    both_read = manifest()
    parameters = tuple(
        Parameter(name=p.name, dtype=p.dtype, shape=p.shape, strides=p.strides, mode="read", scalar=p.scalar)
        for p in both_read.parameters
    )
    binder = Binder(Manifest(**{**_fields(both_read), "parameters": parameters}), (CPU,))
    a = np.zeros(4, np.float32)
    first, second = binder((a, a, 1), {}).seen, binder((a, a, 1), {}).seen
    assert first is second and first.sizes == {"N": 4}


def test_a_written_array_is_apart_from_every_other_whatever_lies_between() -> None:
    parameters = tuple(
        Parameter(name=name, dtype="f32", shape=shape, strides=(1,), mode="write" if name == "C" else "read")
        for name, shape in (("A", (16,)), ("B", (4,)), ("C", (4,)))
    )
    three = Manifest(**{**_fields(manifest()), "parameters": parameters, "sizes": {}})
    binder = Binder(three, (CPU,))
    memory = np.zeros(64, np.float32)
    memory = memory[-memory.ctypes.data // 4 % 4 :]
    seen = binder((memory[:16], memory[4:8], memory[20:24]), {}).seen
    assert binder((memory[:16], memory[4:8], memory[16:20]), {}).seen is seen
    for place in (0, 4, 8, 12):  # within A, before, at and behind B
        with pytest.raises(TExprError, match="share memory"):
            binder((memory[:16], memory[4:8], memory[place : place + 4]), {})


class Cupy:
    """An array of CuPy's, of which only the shape can be set."""

    def __init__(self, address: int) -> None:
        self.shape, self.strides, self.dtype = (4,), (4,), np.dtype("f4")
        self.data = SimpleNamespace(ptr=address, device_id=0)


def test_cupys_arrays_are_known_again_as_long_as_they_are_what_they_were() -> None:
    kind = type("ndarray", (Cupy,), {"__module__": "cupy"})
    a, b = kind(4096), kind(8192)
    same = same_of([a, b])
    assert same is not None and same([a, b]) and not same([b, a]) and not same([a, kind(8192)])
    a.shape = (2, 2)
    assert not same([a, b])
    a.shape = (4,)
    assert same([a, b])
    del a  # nothing keeps it
    assert not same([kind(4096), b])
    assert same_of([b, np.zeros(4, np.float32)]) is None


DEVICE = namedtuple("Device", "type index")("cpu", None)  # hashable, as torch's


class Tensorlike:
    """A tensor of torch's, as far as this package asks one."""

    def __init__(self, address: int, layout: str = "torch.strided", negative: bool = False) -> None:
        self.address, self.layout, self.negative = address, layout, negative
        self.shape, self.dtype, self.device = (4,), "torch.float32", DEVICE

    def stride(self) -> tuple[int, ...]:
        if self.layout != "torch.strided":
            raise RuntimeError("sparse tensors do not have strides")
        return (1,)

    def data_ptr(self) -> int:
        return self.address

    def is_neg(self) -> bool:
        return self.negative


def test_libraries_have_looks_of_their_own() -> None:
    cupy = type("ndarray", (), {"__module__": "cupy"})()
    cupy.shape, cupy.strides, cupy.dtype = (4,), (4,), np.dtype("f4")
    cupy.data = SimpleNamespace(ptr=4096, device_id=0)
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    found, other = facts_of([cupy]), facts_of([frozen])
    assert found is not None and other is not None
    assert looks_in(found) != looks_in(other)  # though device 0 == False
    assert found[0][-1] == 4096
    assert facts_of([cupy, frozen]) == [*found, *other]  # of several libraries


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": 0}, "no memory"),
        ({"layout": "torch.sparse_coo"}, "no plain memory"),
        ({"negative": True}, "resolve_neg"),
    ],
)
def test_tensors_that_lost_their_plain_memory_are_refused_after_others_like_them(
    change: dict[str, Any], message: str
) -> None:
    tensor = type("Tensor", (Tensorlike,), {"__module__": "torch"})
    binder = Binder(manifest(), (CPU,))
    store = np.zeros(16, np.float32)
    address, out = store.ctypes.data // 16 * 16 + 16, np.zeros(4, np.float32)
    seen = binder((tensor(address), out, 1), {}).seen
    assert binder((tensor(address), out, 1), {}).seen is seen
    with pytest.raises(TExprError, match=message) as caught:
        binder((tensor(**{"address": address, **change}), out, 1), {})
    assert caught.value.diagnostics[0].code == "E0601"


def _fields(value: Manifest) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
