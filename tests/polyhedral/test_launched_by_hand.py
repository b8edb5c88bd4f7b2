"""Programs by hand are planned, emitted, saved and launched as all others: with words, tensor maps, clusters."""

import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from gemm_by_hand import Shape, gemm
from hand_built import GRAPHS
from memory_by_hand import cluster_softmax, ticket_sum
from rings import multicast

from texpr.codegen.host_run import HostBackend, HostModule, pack_map
from texpr.codegen.manifest import LaunchStep, Manifest
from texpr.codegen.tensor_map import TensorMap, array_fault, box_fault
from texpr.grammar.diagnostics import TExprError
from texpr.kernels import Compiled
from texpr.pipeline import build_mapped
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.target import parse_target
from texpr.runtime.load import read_artifact


def compiled(mapped: MappedProgram, target: str = "cuda-host:sm_90a") -> Compiled:
    return Compiled(build_mapped(replace(mapped, target=parse_target(target))), ())


@cache
def by_hand(name: str) -> Compiled:
    return compiled({"sum": ticket_sum(2, 2, 3), "dynamic": multicast(2, "N")}[name])


def only_step(manifest: Manifest) -> LaunchStep:
    (step,) = manifest.host
    assert isinstance(step, LaunchStep)
    return step


def test_an_artifact_says_all_that_a_launch_needs(tmp_path: Path) -> None:
    made = compiled(gemm(Shape(136, 264, 72, 2)), "cuda:sm_90a")
    made.save(tmp_path / "gemm", source_only=True)
    manifest, files = read_artifact(tmp_path / "gemm")
    step = only_step(manifest)
    assert manifest == replace(made.manifest, files=manifest.files) and {"gemm.cu", "gemm.h"} <= files.keys()
    assert step.cluster == (2, 1, 1) and step.arguments == (("map", "A_box"), ("map", "B_box"), ("map", "C_box"))
    told = {m.name: (m.array, m.dtype, m.shape, m.strides, m.box, m.swizzle_bytes) for m in step.maps}
    assert told["A_box"] == ("A", "bf16", (136, 72), (72, 1), (128, 64), 128)
    assert told["C_box"] == ("C", "bf16", (136, 264), (264, 1), (16, 64), 128)


def test_words_and_ways_to_launch_are_in_the_manifest() -> None:
    (words,) = by_hand("sum").manifest.words
    assert (words.name, words.size_bytes, words.init) == ("tickets", 4, "once")
    back = compiled(GRAPHS["look-back"].program).manifest
    assert {w.init for w in back.words} == {"each call"} and all(
        isinstance(w.size_bytes, list | int) for w in back.words
    )
    first, second = compiled(GRAPHS["overlapping"].program).manifest.host
    assert isinstance(first, LaunchStep) and isinstance(second, LaunchStep)
    assert (first.overlaps, second.overlaps) == (False, True)
    assert only_step(compiled(cluster_softmax(4, 1, 1)).manifest).cluster == (4, 1, 1)


def summed(n: int) -> None:
    a, b = np.random.default_rng(n).random(n, np.float32), np.full(1, np.nan, np.float32)
    by_hand("sum")(a, b)
    np.testing.assert_allclose(b, a.astype(np.float64).sum(), rtol=1e-5)


@pytest.mark.gxx
def test_calls_in_a_row_and_at_once_have_their_own_words() -> None:
    for n in (5000, 1, 4099):
        summed(n)
    failed: list[BaseException] = []

    def try_it(n: int) -> None:
        try:
            summed(n)
        except BaseException as wrong:
            failed.append(wrong)

    threads = [threading.Thread(target=try_it, args=(n,)) for n in (100, 2000, 700)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.gxx
def test_zeros_stay_for_the_next_call_of_a_thread_and_a_failed_call_leaves_none() -> None:
    backend = HostBackend(HostModule("// nothing"))

    def place(size: int) -> int:
        with backend.zeros(size, None, once=False) as address:
            return address

    first = place(512)
    assert place(256) == first and first % 256 == 0
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.append(place(512)))
    thread.start()
    thread.join()
    assert others != [first]
    with pytest.raises(ZeroDivisionError), backend.zeros(256, None, once=False) as address:
        np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 256).from_address(address))[:] = 1
        raise ZeroDivisionError
    with backend.zeros(256, None, once=False) as address:
        assert not np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 256).from_address(address)).any()


@pytest.mark.gxx
@pytest.mark.parametrize("width", [64, 68])
def test_tensor_maps_of_dynamic_sizes_are_made_at_the_call(width: int) -> None:
    a = np.random.default_rng(width).integers(-99, 99, (5, width)).astype(np.int32)
    b = np.zeros((2, 32), np.int32)
    by_hand("dynamic")(a, b)
    np.testing.assert_array_equal(b, GRAPHS["multicast 2"].expected(a[:, :64]))


@pytest.mark.gxx
def test_an_array_that_no_tensor_map_takes_is_refused_with_the_limit() -> None:
    a, b = np.zeros((5, 66), np.int32), np.zeros((2, 32), np.int32)
    with pytest.raises(
        TExprError, match=r"A is copied by a tensor map: .* a multiple of 16 bytes .*, not 264 bytes"
    ) as no:
        by_hand("dynamic")(a, b)
    assert no.value.diagnostics[0].code == "E0601"


def test_the_limits_of_the_hardware_are_told() -> None:
    assert box_fault((1,) * 6, 4, 0) == "a tensor map has 1 to 5 dimensions, not 6"
    assert box_fault((4, 8, 6), 2, 32) == "the rows of a box have a multiple of 16 bytes, not 12"
    assert box_fault((2, 64), 2, 128) is None
    wide = "a tensor map has at most 4294967296 elements along a dimension, not 4294967297 along dimension 1"
    assert array_fault((1, (1 << 32) + 1), (1 << 35, 2), 2) == wide
    assert "not 1099511627776 bytes along dimension 0" in (array_fault((2, 2), (1 << 40, 2), 2) or "")
    assert "its elements lie 4 bytes apart" in (array_fault((2, 2), (32, 4), 2) or "")


def test_what_the_cpu_does_not_copy_is_refused() -> None:
    usual = TensorMap(address=0, dtype="f32", element_bytes=4, shape=(2, 8), strides_bytes=(32, 4), box=(2, 4))
    assert len(pack_map(usual)) == 128
    with pytest.raises(TExprError, match="are not copied on a CPU"):
        pack_map(replace(usual, shape=(2, 1 << 32)))


def test_a_barrier_of_all_blocks_asks_for_a_cooperative_launch() -> None:
    made = compiled(GRAPHS["two passes"].program, "cuda:sm_90a")
    assert only_step(made.manifest).cooperative and "tx::sync_grid(met, 0);" in made.source
    header = made.build.result("emit").files["hand.h"].decode()
    assert " *     all its blocks run together: CU_LAUNCH_ATTRIBUTE_COOPERATIVE\n" in header
