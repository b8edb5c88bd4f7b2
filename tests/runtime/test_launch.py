"""Host programs: loops unrolled with their indices, plans kept per look, what differs filled in, limits counted."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from texpr.codegen.manifest import (
    IfStep,
    LaunchStep,
    LoopStep,
    Manifest,
    MapArgument,
    Parameter,
    Words,
    WorkspaceTensor,
    questions,
)
from texpr.codegen.manifest_io import read_manifest, write_manifest
from texpr.codegen.tensor_map import TensorMap
from texpr.grammar.bits import scalar_bytes
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.types import I32, DType
from texpr.runtime.arrays import CPU
from texpr.runtime.call_memory import call_memory
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
        self.steps: list[LaunchStep] = []
        self.prepared = self.left = self.encoded = 0

    def kernel(self, step: LaunchStep, grid: tuple[int, int, int], lengths: Mapping[int, int]) -> Any:
        self.prepared += 1
        self.steps.append(step)
        return Recorded(self, step, grid, lengths)

    def tensor_map(self, described: TensorMap) -> Any:
        self.encoded += 1
        return described

    def scalar(self, value: int | float | bool, dtype: DType) -> Any:
        return scalar_bytes(value, dtype)

    def is_current(self, device: int) -> bool:
        return True

    def queue(self, device: int, stream: int | None) -> Any:
        return device, stream

    def leave(self, queue: Any, owners: Sequence[Any]) -> None:
        self.left += 1

    @contextmanager
    def scratch(self, size_bytes: int, queue: Any) -> Iterator[int]:
        self.started.append(("scratch", size_bytes))
        yield 1024

    def zero(self, address: int, size_bytes: int, queue: Any) -> None:
        self.started.append(("zero", address, size_bytes))

    @contextmanager
    def zeros(self, size_bytes: int, queue: Any, *, once: bool) -> Iterator[int]:
        self.started.append(("zeros", size_bytes))
        yield 5000


class Recorded:
    def __init__(self, backend: "Recorder", step: LaunchStep, grid: tuple[int, int, int], lengths: Any) -> None:
        self.backend, self.step, self.grid, self.lengths = backend, step, grid, lengths

    def once(self, stream: int | None, arguments: list[Any]) -> int:
        told = [("pointer", each, self.lengths[k]) if k in self.lengths else each for k, each in enumerate(arguments)]
        self.backend.started.append((self.step.symbol, self.grid, *told, (0, stream)))
        return 0

    def kept(self, stream: int | None, arguments: list[Any]) -> Any:
        return lambda: self.once(stream, arguments)

    def refuse(self, answer: int) -> None:
        raise AssertionError(answer)


def array(count: int) -> Any:
    return np.zeros(count, np.float32)


def test_host_programs_run_their_loops_with_indices() -> None:
    backend = Recorder()
    a = array(3)
    Launcher(PROGRAM, backend)(7, a, stream=77)
    common = (("pointer", a.ctypes.data, 12), scalar_bytes(7, I32), ("pointer", 1280, 12), 3)
    assert backend.started == [
        ("scratch", 268),
        ("k_0", (2, 1, 1), *common, 0, (0, 77)),
        ("k_0", (1, 1, 1), *common, 1, (0, 77)),
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
    assert [start[2:4] for start in backend.started[1:]] == [
        (("pointer", other.ctypes.data, 12), scalar_bytes(-9, I32))
    ] * 2
    launcher(7, array(4))
    assert backend.prepared == 5


def test_long_host_programs_are_walked_again_instead_of_kept() -> None:
    backend = Recorder()
    launcher = Launcher(PROGRAM, backend)
    count = MAX_KEPT + 3
    for _ in range(2):
        backend.started.clear()
        launcher(1, array(count))
        assert [start[6] for start in backend.started[1:]] == list(range(count - 1))


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
        def kernel(self, step: LaunchStep, grid: tuple[int, int, int], lengths: Mapping[int, int]) -> Any:
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


WORDS = (
    Words(name="left", size_bytes=["*", 4, "N"], init="once"),
    Words(name="some", size_bytes=4, init="none"),
    Words(name="fresh", size_bytes=["*", 4, "N"], init="each call"),
    Words(name="more", size_bytes=4, init="each call"),
)


def test_workspaces_of_no_bytes_are_null_and_allocate_nothing() -> None:
    step = replace(STEP, grid=(1, 1, 1), arguments=(("workspace", "W"),))
    empty = WorkspaceTensor(name="W", offset_bytes=0, size_bytes=["-", "N", 3])
    backend, a = Recorder(), array(3)
    launcher = Launcher(replace(PROGRAM, workspace_bytes=["-", "N", 3], workspace=(empty,), host=(step,)), backend)
    for _ in range(3):
        launcher(7, a, stream=77)
    assert backend.started == [("k_0", (1, 1, 1), ("pointer", 0, 0), (0, 77))] * 3


def test_words_are_zeros_of_the_call_or_those_that_calls_leave() -> None:
    names = ("left", "some", "fresh", "more")
    step = replace(STEP, grid=(1, 1, 1), arguments=(("workspace", "W"), *(("words", name) for name in names)))
    backend = Recorder()
    Launcher(replace(PROGRAM, words=WORDS, host=(step,)), backend)(7, array(3))
    scratch, zero, start = backend.started[1:]
    assert backend.started[0] == ("zeros", 256)
    assert scratch == ("scratch", 512 + 3 * 256)
    assert zero == ("zero", 1024 + 768, 512)
    places = [(1280, 12), (5000, 12), (1024 + 512, 4), (1024 + 768, 12), (1024 + 1024, 4)]
    assert start[2:7] == tuple(("pointer", *place) for place in places)


def test_words_that_calls_leave_are_where_calls_of_other_sizes_left_them() -> None:
    program = replace(PROGRAM, words=(WORDS[0], Words(name="met", size_bytes=4, init="once")))
    memories = [call_memory(program, {"N": n}, on_host=False) for n in (1, 1000)]
    assert [m.words["met"] for m in memories] == [(1, 0, 4)] * 2
    assert [m.words["left"] for m in memories] == [(1, 256, 4), (1, 256, 4000)]


def test_words_of_a_negative_size_are_refused() -> None:
    wrong = replace(PROGRAM, words=(replace(WORDS[0], size_bytes=["-", 0, "N"]),))
    with pytest.raises(TExprError, match="E0403"):
        Launcher(wrong, Recorder())(7, array(3))


MAP = MapArgument(
    name="A_box",
    array="A",
    dtype="f32",
    shape=("M", "N"),
    strides=("N", 1),
    box=(8, 4),
    swizzle_bytes=0,
    promotion_bytes=128,
)
BOXED = replace(
    PROGRAM,
    parameters=(Parameter(name="A", dtype="f32", shape=("M", "N"), strides=("N", 1), mode="write", align=4),),
    sizes={"M": None, "N": None},
    workspace_bytes=0,
    workspace=(),
    host=(replace(STEP, grid=(1, 1, 1), arguments=(("map", "A_box"), ("size", "M")), maps=(MAP,)),),
)


def test_a_tensor_map_is_made_once_for_an_address() -> None:
    backend = Recorder()
    launcher = Launcher(BOXED, backend)
    a, b = aligned(24, 16, 0).reshape(3, 8), aligned(24, 16, 0).reshape(3, 8)
    for each in (a, b, a, b):
        launcher(each)
    assert backend.encoded == 2
    told = backend.started[0][2]
    assert (told.address, told.shape, told.strides_bytes, told.box) == (a.ctypes.data, (3, 8), (32, 4), (8, 4))
    launcher(aligned(12, 16, 0).reshape(3, 4))
    assert backend.encoded == 3


@pytest.mark.parametrize(
    ("shape", "off", "said"),
    [
        ((3, 6), 0, "a multiple of 16 bytes below 1099511627776, not 24 bytes along dimension 0"),
        ((3, 8), 4, "begins at a multiple of 16 bytes, and the array 4 bytes behind one"),
        ((0, 8), 0, "has elements, and the array has none"),
    ],
)
def test_an_array_without_a_tensor_map_is_refused_with_the_limit(shape: tuple[int, ...], off: int, said: str) -> None:
    backend = Recorder()
    with pytest.raises(TExprError, match=f"A is copied by a tensor map: a tensor map {said}|{said}") as caught:
        Launcher(BOXED, backend)(aligned(shape[0] * shape[1], 16, off).reshape(shape))
    assert caught.value.diagnostics[0].code == "E0601" and said in caught.value.diagnostics[0].message
    assert not backend.started


def test_an_array_that_begins_where_no_tensor_map_does_is_refused_before_the_launches_in_front_of_it() -> None:
    backend = Recorder()
    first = replace(STEP, symbol="k_1", grid=(1, 1, 1), arguments=())
    launcher = Launcher(replace(BOXED, host=(first, *BOXED.host)), backend)
    launcher(aligned(24, 16, 0).reshape(3, 8))
    backend.started.clear()
    with pytest.raises(TExprError, match="the array 4 bytes behind one"):
        launcher(aligned(24, 16, 4).reshape(3, 8))
    assert not backend.started


def test_a_map_of_a_workspace_lies_in_the_call_s_memory() -> None:
    own = replace(MAP, name="W_box", array="W", shape=(4, "N"))
    step = replace(BOXED.host[0], arguments=(("map", "W_box"),), maps=(own,))  # type: ignore[type-var]  # a launch
    space = WorkspaceTensor(name="W", offset_bytes=32, size_bytes=["*", 16, "N"])
    backend = Recorder()
    Launcher(replace(BOXED, workspace_bytes=1024, workspace=(space,), host=(step,)), backend)(np.zeros((2, 8), "f4"))
    assert backend.started[1][2].address == 1056


def test_a_step_overlaps_only_what_the_call_has_started() -> None:
    step = replace(STEP, grid=(1, 1, 1), arguments=(), overlaps=True)
    empty = replace(step, symbol="k_1", grid=(["-", "N", 3], 1, 1))
    backend = Recorder()
    Launcher(replace(PROGRAM, host=(step, step, empty, step, step)), backend)(7, array(3))
    assert [step.overlaps for step in backend.steps] == [False, True, False, True]


def test_a_step_that_touches_arrays_in_boxes_alone_overlaps_what_was_before_the_call() -> None:
    step = replace(BOXED.host[0], overlaps=True)  # type: ignore[type-var]  # a launch
    backend = Recorder()
    Launcher(replace(BOXED, host=(step, step)), backend)(np.zeros((2, 8), "f4"))
    assert [step.overlaps for step in backend.steps] == [True, True]
    other = replace(step, arguments=(*step.arguments, ("param", "A")))
    Launcher(replace(BOXED, host=(other, other)), backend := Recorder())(np.zeros((2, 8), "f4"))
    assert [step.overlaps for step in backend.steps] == [False, True]


def test_blocks_that_are_no_clusters_are_refused() -> None:
    step = replace(STEP, grid=("N", 1, 1), cluster=(2, 1, 1), arguments=())
    Launcher(replace(PROGRAM, host=(step,)), Recorder())(7, array(4))
    with pytest.raises(TExprError, match="k_0 has 3 blocks, which are no clusters of 2"):
        Launcher(replace(PROGRAM, host=(step,)), Recorder())(7, array(3))


@pytest.mark.parametrize("argument", [("map", "A_box"), ("words", "left")])
def test_unknown_maps_and_words_are_a_damaged_manifest(argument: tuple[str, str]) -> None:
    step = replace(STEP, grid=(1, 1, 1), arguments=(argument,))
    with pytest.raises(TExprError, match=f"unknown {argument[0]} {argument[1]}"):
        Launcher(replace(PROGRAM, host=(step,)), Recorder())(7, array(3))
    of_nothing = replace(step, arguments=(("map", "A_box"),), maps=(replace(MAP, array="Q"),))
    with pytest.raises(TExprError, match="unknown map A_box"):
        Launcher(replace(BOXED, host=(of_nothing,)), Recorder())(np.zeros((4, 4), "f4"))


def test_words_maps_and_ways_to_launch_go_through_json() -> None:
    step = replace(BOXED.host[0], overlaps=True, cooperative=True)  # type: ignore[type-var]  # a launch
    program = replace(BOXED, words=WORDS, host=(step,))
    assert read_manifest(write_manifest(program)) == program
