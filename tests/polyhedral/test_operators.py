"""Operators of mapped programs: what they read and in which order, how they write, what they take over from around."""

from pathlib import Path

import pytest

import texpr
from texpr.polyhedral.mapped.operators import Generic
from texpr.polyhedral.mapped.places import LOOP_PLACES
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.walks import block_buffers, device_buffers, launches, statements

KERNELS = Path(__file__).parents[1] / "kernels"


def mapped(name: str, target: str, **sizes: int) -> MappedProgram:
    compiled = texpr.load(KERNELS / f"{name}.tex").only.compile(target, sizes=sizes, stop_after="map")
    return compiled.mapping.program


def operators(program: MappedProgram) -> list[Generic]:
    return [found for launch in launches(program.host) for found in statements(launch.body)]


def test_what_a_gather_reads_stands_before_the_gathered_read() -> None:
    program = mapped("gather_rows", "cpu", N=20, V=7, D=33)
    assert [[read.buffer for read in o.reads] for o in operators(program)] == [["idx", "E"]]


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_accumulations_of_many_threads_into_one_element_are_atomic(target: str) -> None:
    stores = [o.store for o in operators(mapped("histogram", target, N=500))]
    assert any(store is not None and store.atomic and store.op is not None for store in stores)


def test_an_ordered_loop_marks_the_accumulations_that_it_carries() -> None:
    stores = [(o, o.store) for o in operators(mapped("ordered_sum", "cpu", M=12, N=50))]
    assert {o.leaf.has("ordered") for o, store in stores if store is not None and store.op is not None} == {True}


def test_scalars_are_buffers_that_launches_share_and_not_of_a_block() -> None:
    program = mapped("saxpy_seq", "cpu", N=8)
    assert [b.name for b in device_buffers(program)] == ["alpha", "X", "Y"]
    assert not any(block_buffers(program, launch) for launch in launches(program.host))


def test_only_digits_of_the_hardware_are_declared_at_the_top_of_a_kernel() -> None:
    (launch,) = launches(mapped("matmul", "cuda:sm_90a", M=64, N=64, K=64).host)
    assert launch.hardware and not {d.place for d in launch.hardware} & set(LOOP_PLACES)
