"""Torch's own guards know a call's tensors again; whatever they do not know, and whatever changed, is still found."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.recall import MAX_GUARDS


class TensorGuards:
    """As far as this package asks torch's: what it notes of tensors, and whether others, of which no two are one, have
    the same. `mode` is what it also compares, and no look says."""

    made = 0
    mode = "grad"

    def __init__(self, *tensors: Any, dynamic_dims_sizes: Any, dynamic_dims_strides: Any) -> None:
        assert dynamic_dims_sizes == [[*tensor.shape] for tensor in tensors]
        assert dynamic_dims_strides == [[*tensor.stride()] for tensor in tensors]
        TensorGuards.made += 1
        self.noted = [self.note(tensor) for tensor in tensors]

    def note(self, tensor: Any) -> Any:
        own = type(tensor), tensor.shape, tensor.layout, tensor.dtype, tensor.device, tensor.is_neg()
        return *own, None if tensor.layout != "torch.strided" else tensor.stride(), TensorGuards.mode

    def check(self, *tensors: Any) -> bool:
        if len(tensors) != len(self.noted):
            raise TypeError("wrong length")
        return len({*map(id, tensors)}) == len(tensors) and [*map(self.note, tensors)] == self.noted


@pytest.fixture
def torch(machine: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("torch._C", "torch._C._dynamo"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch._C._dynamo.guards", SimpleNamespace(TensorGuards=TensorGuards))
    monkeypatch.setattr(TensorGuards, "made", 0)
    monkeypatch.setattr(TensorGuards, "mode", "grad")
    return machine


def called(machine: Any) -> list[Any]:
    """The arguments of each launch so far, which are forgotten."""
    machine.driver_launches, found = [], machine.driver_launches
    return [launched[-2:] for launched in found]


@pytest.fixture
def call(torch: Any) -> Any:
    torch.told = ["u", "u"]
    return torch.launcher()


def test_tensors_that_a_guard_knows_are_not_asked_for_their_looks(
    torch: Any, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = (torch.array("torch") for _ in range(3))
    for _ in range(3):
        call(a, c)
    monkeypatch.setattr("texpr.runtime.recall.facts_of", None)
    for array in (a, b, b, a):
        call(array, c)
    told = called(torch)
    assert told[-4:] == [(each.address, c.address) for each in (a, b, b, a)] and len(told) == 7
    assert TensorGuards.made == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": 0}, "no memory"),
        ({"address": 4098}, "not aligned"),
        ({"layout": "torch.sparse_coo", "stride": None}, "no plain memory"),
        ({"is_neg": lambda: True}, "resolve_neg"),
        ({"dtype": "torch.float64"}, "has type f64"),
        ({"shape": (5,)}, "cannot be|needs"),
        ({"stride": lambda: (2,)}, "strides"),
    ],
)
def test_a_tensor_that_changed_in_place_is_seen_anew(torch: Any, call: Any, change: Any, message: str) -> None:
    a, c = torch.array("torch"), torch.array("torch")
    for _ in range(3):
        call(a, c)
    vars(c).update(change)
    for _ in range(2):
        with pytest.raises(TExprError, match=message):
            call(a, c)
    assert len(called(torch)) == 3


def test_a_tensor_that_moved_to_another_gpu_is_seen_anew(torch: Any, call: Any) -> None:
    a, c = torch.array("torch"), torch.array("torch")
    for _ in range(3):
        call(a, c)
    c.device = torch.array("torch", 1).device
    with pytest.raises(TExprError, match="E0605"):
        call(a, c)
    a.device = c.device
    call(a, c)
    assert (torch.current, len(called(torch))) == (0, 4)


def test_tensors_that_share_memory_are_refused_though_a_guard_knows_them(torch: Any, call: Any) -> None:
    a, c, other = (torch.array("torch") for _ in range(3))
    for _ in range(3):
        call(a, c)
    other.address = a.address
    for wrong in (a, other):
        with pytest.raises(TExprError, match="E0603"):
            call(a, wrong)


def test_what_a_guard_does_not_know_is_known_by_its_looks_and_guards_are_not_made_for_ever(
    torch: Any, call: Any
) -> None:
    a, c = torch.array("torch"), torch.array("torch")
    for turn in range(4 * MAX_GUARDS):
        TensorGuards.mode = "inference" if turn % 4 < 2 else "grad"
        call(a, c)
    assert called(torch) == [(a.address, c.address)] * 4 * MAX_GUARDS
    assert TensorGuards.made == MAX_GUARDS


class OtherGuards:
    """Of a torch that makes its guards in another way."""

    def __init__(self, *tensors: Any, sizes: Any) -> None:
        raise AssertionError("nobody gives that")


class SilentGuards(TensorGuards):
    """Of a torch whose guards are asked in another way."""

    check: Any = None


class WrongGuards(TensorGuards):
    """Of a torch whose guards do not know what they were made of."""

    def check(self, *tensors: Any) -> bool:
        return False


@pytest.mark.parametrize("guards", [None, OtherGuards, SilentGuards, WrongGuards])
def test_a_torch_without_guards_or_with_others_is_asked_for_looks(
    torch: Any, call: Any, guards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = SimpleNamespace() if guards is None else SimpleNamespace(TensorGuards=guards)
    monkeypatch.setitem(sys.modules, "torch._C._dynamo.guards", module)
    a, c = torch.array("torch"), torch.array("torch")
    for _ in range(4):
        call(a, c)
    assert called(torch) == [(a.address, c.address)] * 4
