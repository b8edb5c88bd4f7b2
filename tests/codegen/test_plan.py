"""Plans and their checkers: each plan is right on real kernels, and each checker finds a plan made wrong."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import texpr
from texpr.codegen import graph as g
from texpr.codegen.device_memory import check_workspace, place_workspace
from texpr.codegen.fusion import check_chains, fuse
from texpr.codegen.layout import check_layouts, choose_layouts
from texpr.codegen.lower import row_major
from texpr.codegen.shared_memory import check_shared, place_shared
from texpr.codegen.show import show
from texpr.codegen.swizzle import check_swizzles, choose_swizzles
from texpr.grammar.ast import IndexConst, Role, SizeVar
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.types import F16, F32, F64, I8
from texpr.polyhedral.mapping import Memory
from texpr.polyhedral.target import parse_target

ONE = IndexConst(value=1)
SM90 = parse_target("cuda:sm_90a")


def block(*tensors, body=()):
    return g.BlockGraph(
        name="k", grid_dim=(ONE, ONE, ONE), cluster_dim=(1, 1, 1), block_dim=32, digits=(), tensors=tensors, body=body
    )


def tensor(name, shape, dtype=F32, memory=Memory.SHARED, strides=None, align=16):
    return g.BlockTensor(name=name, dtype=dtype, shape=shape, strides=strides, memory=memory, align=align)


def planned(text, target="cuda:sm_90a"):
    return texpr.parse(text).only.compile(target, stop_after="plan").graph


SCALED = """kernel scaled(A: f32[N], C: f32[N]) {
    par N i {
        new t: f32
        t = A[i] * 2.0
        C[i] = t + 1.0
    }
}
"""


def test_a_definition_and_its_use_run_register_to_register(golden):
    view = planned(SCALED)
    golden("graph/scaled.txt", str(view))
    chains = view.planned.chains
    assert [len(chain) for chain in chains["scaled_0"]] == [2]


def test_the_chain_checker_finds_lost_and_invented_chains():
    graph = planned(SCALED).planned.graph.launches()[0]
    right = fuse(graph)
    check_chains(graph, right)
    with pytest.raises(InternalError):
        check_chains(graph, right[:-1])
    with pytest.raises(InternalError):
        check_chains(graph, (tuple(reversed(right[0])),))
    unrelated = replace(graph, tensors=())
    with pytest.raises(InternalError):
        check_chains(unrelated, right)


shapes = st.lists(st.integers(1, 6), max_size=4).map(tuple)


@given(st.lists(shapes, max_size=4))
def test_free_layouts_become_row_major_and_injective(found):
    graph = block(*(tensor(f"t{n}", shape) for n, shape in enumerate(found)))
    strides = choose_layouts(graph)
    check_layouts(graph, strides)
    for n, shape in enumerate(found):
        want = row_major(tuple(IndexConst(value=e) for e in shape))
        assert strides[f"t{n}"] == tuple(s.value for s in want)


@pytest.mark.parametrize(
    ("shape", "strides"), [((4, 8), (7, 1)), ((2, 2), (0, 1)), ((3,), (-1,)), ((400, 400), (399, 1)), ((2, 2), (1,))]
)
def test_the_layout_checker_finds_two_elements_at_one_address(shape, strides):
    with pytest.raises(InternalError):
        check_layouts(block(tensor("t", shape)), {"t": strides})


def test_a_padded_layout_is_kept():
    graph = block(tensor("t", (64, 64), strides=(72, 1)))
    assert choose_layouts(graph) == {"t": (72, 1)}
    check_layouts(graph, {"t": (72, 1)})


dtypes = st.sampled_from([F64, F32, F16, I8])


@given(st.lists(st.tuples(shapes, dtypes, st.sampled_from([16, 32, 128])), max_size=6))
def test_shared_tensors_are_aligned_and_never_overlap(found):
    graph = block(*(tensor(f"t{n}", s, dtype=d, align=a) for n, (s, d, a) in enumerate(found)))
    strides = choose_layouts(graph)
    plan = place_shared(graph, strides, SM90)
    check_shared(graph, strides, plan)
    for n, (_, _, align) in enumerate(found):
        assert plan.offsets[f"t{n}"] % align == 0


def test_the_shared_checker_finds_overlap_misalignment_and_a_short_total():
    graph = block(tensor("a", (10,)), tensor("b", (10,)))
    strides = choose_layouts(graph)
    right = place_shared(graph, strides, SM90)
    for wrong in (
        g.SharedPlan(offsets={"a": 0, "b": 32}, total_bytes=100),
        g.SharedPlan(offsets={"a": 0, "b": 44}, total_bytes=100),
        g.SharedPlan(offsets=right.offsets, total_bytes=right.total_bytes - 1),
        g.SharedPlan(offsets={"a": 0}, total_bytes=right.total_bytes),
    ):
        with pytest.raises(InternalError):
            check_shared(graph, strides, wrong)


def test_more_shared_memory_than_the_target_has_is_an_error_of_the_program():
    graph = block(tensor("a", (64 * 1024,)))
    with pytest.raises(TExprError) as caught:
        place_shared(graph, choose_layouts(graph), SM90)
    assert caught.value.diagnostics[0].code == "E0403"


def test_every_shared_tensor_has_a_swizzle():
    graph = block(tensor("a", (4,)), tensor("r", (4,), memory=Memory.REG))
    assert choose_swizzles(graph) == {"a": "none"}
    check_swizzles(graph, {"a": "none"})
    for wrong in ({}, {"a": "xor"}, {"a": "none", "r": "none"}):
        with pytest.raises(InternalError):
            check_swizzles(graph, wrong)


def workspaces(*found):
    tensors = []
    for n, (dtype, shape) in enumerate(found):
        strides = row_major(shape)
        tensors.append(g.DTensor(name=f"w{n}", dtype=dtype, shape=shape, strides=strides, role=Role.LOCAL))
    return g.KernelGraph(name="k", source_name="k.tex", tensors=tuple(tensors), sizes=("M", "N"), facts=(), body=())


extents = st.one_of(
    st.integers(0, 70).map(lambda n: IndexConst(value=n)), st.sampled_from("MN").map(lambda n: SizeVar(name=n))
)


@given(st.lists(st.tuples(dtypes, st.lists(extents, max_size=3).map(tuple)), max_size=5))
def test_workspaces_never_overlap_at_any_size(found):
    graph = workspaces(*found)
    check_workspace(graph, place_workspace(graph))


def test_the_workspace_checker_finds_overlap_and_misalignment():
    size = SizeVar(name="N")
    graph = workspaces((F32, (size,)), (F16, (size,)))
    right = place_workspace(graph)
    for offsets in ({"w0": IndexConst(value=0), "w1": IndexConst(value=256)}, right.offsets | {"w1": ONE}):
        with pytest.raises(InternalError):
            check_workspace(graph, g.WorkspacePlan(offsets=offsets, total_bytes=right.total_bytes))


def test_a_planned_graph_prints_its_workspace(golden):
    text = """kernel steps(A: f32[N], C: f32[N]) {
    new w: f32[N]
    par N i { w[i] = A[i] + 1.0 }
    par N i { C[i] = w[N - 1 - i] }
}
"""
    golden("graph/steps.txt", show(planned(text, "cpu").planned))
