"""Host programs: loops unrolled with their indices, plans kept per look, what differs filled in, limits counted."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from texpr.codegen.manifest import IfStep, LaunchStep, LoopStep, Manifest, Parameter, WorkspaceTensor, questions
from texpr.codegen.manifest_io import read_manifest, write_manifest
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.types import DType
from texpr.runtime.arrays import CPU
from texpr.runtime.launch import MAX_KEPT, Launcher

STEP = LaunchStep(
    symbol="k_0",
    grid=(["-", ["-", "N", "t"], 1], 1, 1),
    cluster=(1, 1, 1),
    block=(32, 1, 1),
    shared_bytes=0,
    arguments=(("param", "A"), ("scalar", "s"), ("workspace", "W"), ("size", "N"), ("index", "t")),
)
PROGRAM = Manifest(
    name="k",
    target="test",
    arch="",
    loadable=False,
    parameters=(
        Parameter(name="s", dtype="i32", shape=(), strides=(), mode="read", scalar=True),
        Parameter(name="A", dtype="f32", shape=("N",), strides=(1,), mode="write"),
    ),
    sizes={"N": None},
    facts=(),
    workspace_bytes=["*", 4, ["+", "N", 64]],
    workspace=(WorkspaceTensor(name="W", offset_bytes=256, size_bytes=["*", 4, "N"]),),
    host=(LoopStep(index="t", extent="N", body=(STEP,)),),
    files={},
    texpr="0",
)


class Recorder:
    """A backend that writes down what it is told."""

    devices = (CPU,)

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.prepared = self.left = 0

    def kernel(self, step: LaunchStep, grid: tuple[int, int, int]) -> Any:
        self.prepared += 1
        return step.symbol, grid

    def pointer(self, address: int, size_bytes: int) -> Any:
        return "pointer", address, size_bytes

    def scalar(self, value: int | float | bool, dtype: DType) -> Any:
        return dtype.name, value

    def queue(self, device: int, stream: int | None) -> Any:
        return device, stream

    def leave(self, queue: Any, owners: Sequence[Any]) -> None:
        self.left += 1

    @contextmanager
    def scratch(self, size_bytes: int, queue: Any) -> Iterator[int]:
        self.started.append(("scratch", size_bytes))
        yield 1000

    def start(self, kernel: Any, arguments: Sequence[Any], queue: Any) -> None:
        self.started.append((*kernel, *arguments, queue))


def array(count: int) -> Any:
    return np.zeros(count, np.float32)


def test_host_programs_run_their_loops_with_indices() -> None:
    backend = Recorder()
    a = array(3)
    Launcher(PROGRAM, backend)(7, a, stream=77)
    common = (("pointer", a.ctypes.data, 12), ("i32", 7), ("pointer", 1256, 12), ("i64", 3))
    assert backend.started == [
        ("scratch", 268),
        ("k_0", (2, 1, 1), *common, ("i64", 0), (0, 77)),
        ("k_0", (1, 1, 1), *common, ("i64", 1), (0, 77)),
    ]  # at t = 2 the grid is empty
    assert backend.left == 1


def test_a_second_call_of_one_look_prepares_nothing_and_takes_its_own_arguments() -> None:
    backend = Recorder()
    launcher = Launcher(PROGRAM, backend)
    launcher(7, array(3))
    assert backend.prepared == 2
    backend.started.clear()
    other = array(3)
    launcher(A=other, s=-9)
    assert backend.prepared == 2
    assert [start[2:4] for start in backend.started[1:]] == [(("pointer", other.ctypes.data, 12), ("i32", -9))] * 2
    launcher(7, array(4))
    assert backend.prepared == 5


def test_long_host_programs_are_walked_again_instead_of_kept() -> None:
    backend = Recorder()
    launcher = Launcher(PROGRAM, backend)
    count = MAX_KEPT + 3
    for _ in range(2):
        backend.started.clear()
        launcher(1, array(count))
        assert [start[6] for start in backend.started[1:]] == [("i64", t) for t in range(count - 1)]


def test_too_long_host_programs_are_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("texpr.runtime.launch.MAX_LAUNCHES", 1000)
    twice = replace(PROGRAM, host=(LoopStep(index="t", extent="N", body=(STEP, STEP)),))
    for program, count, message in ((PROGRAM, 1001, "rounds of host loops"), (twice, 600, "launches in one call")):
        backend = Recorder()
        with pytest.raises(TExprError, match=f"more than 1000 {message}"):
            Launcher(program, backend)(1, array(count))
        assert not backend.started


def test_conditions_choose_for_the_calls_sizes() -> None:
    other = replace(STEP, symbol="k_1", grid=(1, 1, 1), arguments=())
    program = replace(PROGRAM, host=(IfStep(condition=["<", "N", 4], then=(other, other), orelse=(other,)),))
    backend = Recorder()
    launcher = Launcher(program, backend)
    for count, want in ((3, 2), (4, 1)):
        backend.started.clear()
        launcher(0, array(count))
        assert len(backend.started) == 1 + want


def test_an_error_while_starting_leaves_the_queue() -> None:
    class Failing(Recorder):
        def start(self, kernel: Any, arguments: Sequence[Any], queue: Any) -> None:
            raise RuntimeError("the driver says no")

    backend = Failing()
    with pytest.raises(RuntimeError):
        Launcher(PROGRAM, backend)(7, array(3))
    assert backend.left == 1


def test_an_unknown_argument_is_a_damaged_manifest_and_starts_nothing() -> None:
    step = replace(STEP, grid=(1, 1, 1), arguments=(("param", "B"),))
    backend = Recorder()
    with pytest.raises(TExprError, match="unknown param B") as caught:
        Launcher(replace(PROGRAM, host=(replace(STEP, grid=(1, 1, 1), arguments=()), step)), backend)(7, array(3))
    assert caught.value.diagnostics[0].code == "E0505"
    assert not backend.started


def aligned(count: int, bytes: int, off: int) -> Any:
    """An array that begins so many bytes behind a multiple of others."""
    memory = np.zeros(4 * count + 2 * bytes, np.uint8)
    start = (off - memory.ctypes.data) % bytes
    return memory[start : start + 4 * count].view(np.float32)


def test_conditions_on_addresses_are_asked_at_each_call_and_keep_their_plans() -> None:
    other = replace(STEP, symbol="k_1", grid=(1, 1, 1), arguments=())
    asked = ["==", ["%", "address(A)", 64], 0]
    program = replace(PROGRAM, host=(IfStep(condition=asked, then=(other, other), orelse=(other,)),))
    backend = Recorder()
    launcher = Launcher(program, backend)
    for count, (off, want) in enumerate([(0, 2), (16, 1), (0, 2), (16, 1), (48, 1)]):
        backend.started.clear()
        launcher(0, aligned(3, 64, off))
        assert len(backend.started) == 1 + want, count
    assert backend.prepared == 2 + 1 + 1


@pytest.mark.parametrize(
    "asked",
    [
        ["==", "address(A)", 0],
        ["==", ["%", "address(A)", "N"], 0],
        ["==", ["%", "address(A)", 0], 0],
        ["==", ["%", "address(s)", 16], 0],
        ["==", ["%", "address(Q)", 16], 0],
        ["and", ["not", ["<", ["+", 1, "address(A)"], 7]]],
    ],
)
def test_an_address_is_asked_for_by_its_remainder_only(asked: Any) -> None:
    other = replace(STEP, symbol="k_1", grid=(1, 1, 1), arguments=())
    program = replace(PROGRAM, host=(IfStep(condition=asked, then=(other,)),))
    with pytest.raises(TExprError, match="a condition asks for 'address") as caught:
        read_manifest(write_manifest(program))
    assert caught.value.diagnostics[0].code == "E0505"
    assert questions(replace(PROGRAM, host=(other,))) == ()


def test_a_grid_asks_for_no_address() -> None:
    step = replace(STEP, grid=(["%", "address(A)", 16], 1, 1))
    with pytest.raises(TExprError, match=r"unknown name 'address\(A\)'"):
        Launcher(replace(PROGRAM, host=(step,)), Recorder())(7, array(3))
