"""Plans and their checkers: each plan is right on real kernels, and each checker finds a plan made wrong."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import texpr
from texpr.codegen.device_memory import check_workspace, place_workspace
from texpr.codegen.layout import check_layouts, room
from texpr.codegen.plan import plan
from texpr.codegen.shared_memory import check_shared, place_shared
from texpr.grammar.ast import IndexConst, Role, SizeVar
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.value import index_value
from texpr.grammar.types import F16, F32, F64, I8
from texpr.polyhedral.layout.make import row_major, strided
from texpr.polyhedral.mapped.places import Memory, Scope
from texpr.polyhedral.mapped.program import MappedBuffer
from texpr.polyhedral.target import parse_target

ONE = IndexConst(value=1)
SM90 = parse_target("cuda:sm_90a")


def tensor(name, shape, dtype=F32, memory=Memory.SHARED, strides=None, align=16):
    layout = row_major(shape) if strides is None else strided(shape, strides)
    return MappedBuffer(
        name=name, dtype=dtype, memory=memory, scope=Scope.BLOCK, layout=layout, role=Role.LOCAL, align=align
    )


shapes = st.lists(st.integers(1, 6), max_size=4).map(tuple)


@given(st.lists(st.lists(st.integers(0, 6), max_size=4), max_size=4))
def test_dense_layouts_are_right_and_empty_ones_take_no_room(found):
    own = [tensor(f"t{n}", shape) for n, shape in enumerate(found)]
    check_layouts(own)
    assert [room(buffer) for buffer in own] == list(map(prod, found))


def test_an_extent_in_a_block_that_is_no_number_is_an_error_of_the_program():
    with pytest.raises(TExprError) as caught:
        check_layouts([tensor("t", (SizeVar(name="N"),))])
    assert caught.value.diagnostics[0].code == "E0403"


@pytest.mark.parametrize(
    ("shape", "strides"), [((4, 8), (7, 1)), ((2, 2), (0, 1)), ((3,), (-1,)), ((400, 400), (399, 1))]
)
def test_the_layout_checker_finds_two_elements_at_one_address(shape, strides):
    with pytest.raises(InternalError):
        check_layouts([tensor("t", shape, strides=strides)])


def test_the_layout_checker_takes_padding_with_its_room():
    own = tensor("t", (64, 64), strides=(72, 1))
    check_layouts([own])
    assert room(own) == 63 * 72 + 64


dtypes = st.sampled_from([F64, F32, F16, I8])


@given(st.lists(st.tuples(shapes, dtypes, st.sampled_from([16, 32, 128])), max_size=6))
def test_shared_tensors_are_aligned_and_never_overlap(found):
    own = [tensor(f"t{n}", s, dtype=d, align=a) for n, (s, d, a) in enumerate(found)]
    offsets, total_bytes = place_shared(own, SM90, {})
    check_shared("k", own, offsets, total_bytes, {})
    for n, (_, _, align) in enumerate(found):
        assert offsets[f"t{n}"] % align == 0


def test_the_shared_checker_finds_overlap_misalignment_and_a_short_total():
    own = [tensor("a", (10,)), tensor("b", (10,))]
    right, total_bytes = place_shared(own, SM90, {})
    for offsets, total in (
        ({"a": 0, "b": 32}, 100),
        ({"a": 0, "b": 44}, 100),
        (right, total_bytes - 1),
        ({"a": 0}, total_bytes),
    ):
        with pytest.raises(InternalError):
            check_shared("k", own, offsets, total, {})


def test_more_shared_memory_than_the_target_has_is_an_error_of_the_program():
    own = [tensor("a", (64 * 1024,))]
    with pytest.raises(TExprError) as caught:
        place_shared(own, SM90, {})
    assert caught.value.diagnostics[0].code == "E0403"


def workspaces(*found):
    return [tensor(f"w{n}", shape, dtype=dtype, memory=Memory.GLOBAL) for n, (dtype, shape) in enumerate(found)]


extents = st.one_of(
    st.integers(0, 70).map(lambda n: IndexConst(value=n)), st.sampled_from("MN").map(lambda n: SizeVar(name=n))
)


@given(st.lists(st.tuples(dtypes, st.lists(extents, max_size=3).map(tuple)), max_size=5))
def test_workspaces_never_overlap_at_any_size(found):
    spaces = workspaces(*found)
    check_workspace(spaces, *place_workspace(spaces), ("M", "N"))


def test_workspaces_of_two_cases_lie_at_one_place_behind_what_they_share():
    spaces = workspaces((F32, (SizeVar(name="N"),)), (F32, (SizeVar(name="M"),)), (F16, (SizeVar(name="N"),)))
    cases = {"w1": 0, "w2": 1}
    offsets, total = place_workspace(spaces, cases)
    assert offsets["w1"] == offsets["w2"] and offsets["w0"] == IndexConst(value=0)
    assert index_value(total, {"N": 1, "M": 1000}) == 256 + 4096
    check_workspace(spaces, offsets, total, ("M", "N"), cases)
    for other in ({}, {"w1": 0}, {"w2": 1}, {"w1": 1, "w2": 1}):
        with pytest.raises(InternalError, match="workspaces w1 and w2 overlap"):
            check_workspace(spaces, offsets, total, ("M", "N"), other)


def test_the_workspace_checker_finds_overlap_and_misalignment():
    size = SizeVar(name="N")
    spaces = workspaces((F32, (size,)), (F16, (size,)))
    right, total_bytes = place_workspace(spaces)
    for offsets in ({"w0": IndexConst(value=0), "w1": IndexConst(value=256)}, right | {"w1": ONE}):
        with pytest.raises(InternalError):
            check_workspace(spaces, offsets, total_bytes, ("N",))


STEPS = """kernel steps(A: f32[M, 64], C: f32[M, 64]) {
    new w: f32[M, 64]
    par M i #grid {
        new shared t: f32[64] #align(128)
        new shared u: f32[64]
        par 64 a #block { t[a] = A[i, a] + 1.0; u[a] = 0.0 }
        par 64 b #block { w[i, b] = t[63 - b] + u[b] }
    }
    par M i, 64 j { C[i, j] = w[M - 1 - i, j] }
}
"""


def test_a_planned_program_prints_where_everything_lies(golden):
    golden("graph/steps.txt", str(texpr.parse(STEPS).only.compile("cuda:sm_90a", stop_after="plan").graph))


def test_every_buffer_has_an_address_and_every_launch_its_bytes():
    program = texpr.parse(STEPS).only.compile("cuda:sm_90a", stop_after="map").mapping.program
    planned = plan(program)
    assert planned.addresses.keys() == program.buffers.keys()
    assert planned.shared_bytes == {"steps_0": 512, "steps_1": 0}
