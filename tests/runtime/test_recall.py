"""Remembered calls give what a full check gives, and still find what differs from call to call."""

import numpy as np
import pytest

from texpr.codegen.manifest import Manifest, Parameter
from texpr.grammar.diagnostics import TExprError
from texpr.runtime.arguments import bind_arguments
from texpr.runtime.arrays import CPU
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
        seen, addresses, scalars = binder((a, b, value), {})
        assert addresses == [bound.arrays["A"].pointer, bound.arrays["B"].pointer]
        assert (seen.sizes, scalars) == (bound.sizes, [value])
        assert seen.reaches == ((0, 20), (0, 20))
        looks.append(seen)
    assert looks[0] is looks[1] is looks[2]


def test_arguments_by_name_in_any_order_are_the_same_call() -> None:
    binder = Binder(manifest(), (CPU,))
    a, b = np.zeros(5, np.float32), np.zeros(5, np.float32)
    positional = binder((a, b, 1), {})
    assert binder((), {"s": 1, "B": b, "A": a}) == positional
    assert binder((a,), {"s": 1, "B": b}) == positional
    by_size = binder((a, b), {"s": 1, "N": 5})  # a size is checked, and such a call is not remembered
    assert by_size[0].sizes == positional[0].sizes and by_size[0] is not positional[0]
    for kwargs in ({"A": a, "s": 1}, {"B": b}, {"B": b, "s": 1, "N": 6}, {"B": b, "t": 1}):
        with pytest.raises(TExprError):
            binder((a,), kwargs)


def test_other_shapes_are_bound_anew() -> None:
    binder = Binder(manifest(), (CPU,))
    for n in range(MAX_SEEN + 10):
        arrays = np.zeros(n, np.float32), np.zeros(n, np.float32)
        assert binder((*arrays, 1), {})[0].sizes == {"N": n}


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
    for _ in range(2):
        assert binder((a, a, 1), {})[0].sizes == {"N": 4}


def _fields(value: Manifest) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
