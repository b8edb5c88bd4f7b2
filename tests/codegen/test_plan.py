"""Plans and their checkers: each plan is right on real kernels, and each checker finds a plan made wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import texpr
from texpr.codegen import graph as g
from texpr.codegen.device_memory import check_workspace, place_workspace
from texpr.codegen.layout import check_layouts, choose_layouts
from texpr.codegen.shared_memory import check_shared, place_shared
from texpr.codegen.show import show
from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Anchor,
    Bind,
    Compare,
    CompareOp,
    Const,
    Gather,
    IndexConst,
    IndexVar,
    Read,
    Role,
    SizeVar,
)
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.index.expr import row_major
from texpr.grammar.types import F16, F32, F64, I8, I64
from texpr.polyhedral.mapped.operators import Origin
from texpr.polyhedral.mapped.places import Digit, Memory, Place
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


def test_a_planned_graph_prints_its_workspace():
    text = """kernel steps(A: f32[N], C: f32[N]) {
    new w: f32[N]
    par N i { w[i] = A[i] + 1.0 }
    par N i { C[i] = w[N - 1 - i] }
}
"""
    assert "w: f32[N] strides (1)  workspace at byte 0" in show(planned(text, "cpu").planned)


def test_a_graph_of_every_node_prints(golden):
    i, n = IndexVar(name="i"), SizeVar(name="N")
    load = Read(buffer="A", subscripts=(Gather(value=Read(buffer="idx", subscripts=(i,), dtype=I64)),), dtype=F32)
    bind = Bind(id="S0", buffer="t", subscripts=(), value=load)
    update = Accumulate(id="S1", op=AccOp.ADD, buffer="s", subscripts=(i,), value=load)
    anchor = Anchor(id="S2", value=Const(value=1.0, dtype=F32))
    loads = (
        g.Load(tensor="idx", subscripts=(i,), mode=g.LoadMode.PLAIN),
        g.Load(tensor="A", subscripts=load.subscripts, mode=g.LoadMode.GATHER),
    )
    body = (
        g.Define(index="i", terms=((32, "i_block"), (1, "i_lane"))),
        g.Guard(
            condition=Compare(op=CompareOp.LT, left=i, right=n),
            body=(
                g.Fresh(tensor="t"),
                g.Generic(
                    id="S0", leaf=bind, loads=loads, store=g.Store(tensor="t", subscripts=(), mode=g.StoreMode.BIND)
                ),
                g.Loop(
                    index="k",
                    extent=n,
                    vector=True,
                    body=(
                        g.Generic(
                            id="S1",
                            leaf=update,
                            loads=loads,
                            store=g.Store(tensor="s", subscripts=(i,), mode=g.StoreMode.ATOMIC, op=AccOp.ADD),
                            origin=Origin.COMBINE,
                        ),
                    ),
                ),
            ),
            orelse=(g.Generic(id="S2", leaf=anchor, loads=(), store=None, once=True),),
        ),
    )
    digits = (
        Digit(name="i_block", index="i", weight=32, radix=n, stride=ONE, place=Place.GRID_X),
        Digit(name="i_lane", index="i", weight=1, radix=IndexConst(value=32), stride=ONE, place=Place.LANE),
    )
    launch = g.BlockGraph(
        name="k_0",
        grid_dim=(n, ONE, ONE),
        cluster_dim=(1, 1, 1),
        block_dim=32,
        digits=digits,
        tensors=(tensor("t", (), memory=Memory.REG), tensor("s", (8,))),
        body=body,
        arguments=("r",),
    )
    always = Compare(op=CompareOp.GT, left=n, right=IndexConst(value=0))
    graph = g.KernelGraph(
        name="k",
        source_name="k.tex",
        tensors=(
            g.DTensor(name="A", dtype=F32, shape=(n,), strides=(ONE,), role=Role.PARAM),
            g.DTensor(name="a", dtype=F32, shape=(), strides=(), role=Role.SCALAR),
        ),
        sizes=("N",),
        facts=(always,),
        body=(
            g.HostLoop(
                index="r", extent=n, body=(g.HostIf(condition=always, then=(g.Launch(graph=launch),), orelse=()),)
            ),
        ),
    )
    golden("graph/every_node.txt", show(graph))
