"""A call that gives what an earlier one gave starts the same again; any other has its own arguments."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from texpr.codegen.manifest import Parameter
from texpr.grammar.diagnostics import TExprError
from texpr.runtime.driver import Way
from texpr.runtime.launch import Launcher


class Counted:
    """A launcher of `C = s * A`, and how often it kept a launch."""

    def __init__(self, machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        backend, self.prepared = machine.backend(), 0
        keep = Way.kept

        def kept(*told: Any) -> Any:
            self.prepared += 1
            return keep(*told)

        monkeypatch.setattr(Way, "kept", kept)
        scalar = Parameter(name="s", dtype="f32", shape=(), strides=(), mode="read", scalar=True)
        manifest = machine.launcher().manifest
        step = replace(machine.step, arguments=(("scalar", "s"), ("param", "A"), ("param", "C")))
        machine.told = ["u"] * 3
        self.call = Launcher(replace(manifest, parameters=(scalar, *manifest.parameters), host=(step,)), backend)


@pytest.fixture
def counted(machine: Any, monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(machine, monkeypatch)


def test_what_a_call_gives_is_what_starts_though_an_earlier_one_was_like_it(machine: Any, counted: Counted) -> None:
    a, b, c = (machine.array("torch") for _ in range(3))
    calls = [(1.0, a), (1.0, b), (1.0, a), (2.0, a), (0.0, a), (-0.0, a), (1, a), (float("nan"), a)]
    for scalar, array in [*calls, calls[-1]]:
        counted.call(scalar, array, c)
    told = [launched[-3:] for launched in machine.driver_launches]
    bits = [struct.unpack("<I", struct.pack("<f", scalar))[0] for scalar, _ in [*calls, calls[-1]]]
    assert told == [(n, x.address, c.address) for n, (_, x) in zip(bits, [*calls, calls[-1]], strict=True)]
    assert counted.prepared == 1  # of what is given twice, one after the other


def test_a_call_on_another_stream_or_from_another_gpu_has_its_own(machine: Any, counted: Counted) -> None:
    a, c = machine.array("torch"), machine.array("torch")
    counted.call(1.0, a, c)
    machine.set_streams("torch", 71)
    counted.call(1.0, a, c)
    for _ in range(3):
        counted.call(1.0, a, c, stream=72)
    machine.current = 1
    counted.call(1.0, a, c)
    machine.current = 0
    counted.call(1.0, a, c)
    machine.set_streams("torch", 0)
    counted.call(1.0, a, c)
    assert [launched[3] for launched in machine.driver_launches] == [1, 71, 72, 72, 72, 71, 71, 1]
    assert counted.prepared == 1


def test_a_launch_that_the_driver_refuses_is_told_and_the_next_one_runs(machine: Any, counted: Counted) -> None:
    a, c = machine.array("torch"), machine.array("torch")
    for given in ((1.0, a, c), (1.0, a, c), (2.0, a, c), (1.0, a, c)):  # the long way, the short one, and what is kept
        counted.call(*given)
        machine.refuses = 700
        with pytest.raises(TExprError, match="the launch of k_0 failed: CUDA_ERROR_700"):
            counted.call(*given)
        machine.refuses = 0
        counted.call(*given)
    assert len(machine.driver_launches) == 8


def test_of_several_launches_the_second_is_not_made_twice(machine: Any) -> None:
    machine.told = ["u"] * 2
    call = machine.launcher(host=(machine.step, replace(machine.step, symbol="k_1")))
    a, c = machine.array("torch"), machine.array("torch")
    for _ in range(4):
        call(a, c)
        machine.fails_at = "k_1"
        before = len(machine.driver_launches)
        with pytest.raises(TExprError, match="E0601"):
            call(a, c)
        machine.fails_at = None
        assert len(machine.driver_launches) == before + 1


def test_arrays_that_share_memory_are_refused_after_others_like_them(machine: Any, counted: Counted) -> None:
    a, c = machine.array("torch"), machine.array("torch")
    for _ in range(2):
        counted.call(1.0, a, c)
        with pytest.raises(TExprError, match="E0603"):
            counted.call(1.0, c, c)
    assert len(machine.driver_launches) == 2


def test_memory_that_foreign_arrays_own_is_not_kept_by_what_may_start_again(machine: Any, counted: Counted) -> None:
    foreign, c = machine.array("stranger"), machine.array("torch")
    for _ in range(2):
        counted.call(1.0, foreign, c)
    assert counted.prepared == 0 and len(machine.events) == 2
