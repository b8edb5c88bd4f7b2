"""Lowering keeps every mapped tree node by node and types its loads and stores."""

from pathlib import Path

import pytest

import texpr
from texpr.codegen import graph as g
from texpr.codegen.lower import lower
from texpr.polyhedral.mapped import places as m
from texpr.polyhedral.mapped.walks import launches

KERNELS = Path(__file__).parents[1] / "kernels"


def mapped(name, target, **sizes):
    return texpr.load(KERNELS / f"{name}.tex").only.compile(target, sizes=sizes, stop_after="map").mapping.program


def shape_of(body):
    """A tree's skeleton: node kinds with children, to compare mapped and lowered trees."""
    skeleton = []
    for node in body:
        inner = tuple(shape_of(getattr(node, part)) for part in ("body", "orelse") if hasattr(node, part))
        kind = {"Generic": "Generic"}.get(type(node).__name__, type(node).__name__)
        skeleton.append((kind, getattr(node, "index", ""), inner))
    return skeleton


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
@pytest.mark.parametrize("name", ["softmax", "host_condition", "data_dependent_if", "histogram", "jacobi_1d"])
def test_the_tree_of_every_launch_is_kept_node_by_node(name, target):
    program = mapped(name, target)
    mapped_launches = tuple(launches(program.host))
    blocks = lower(program).launches()
    assert [b.name for b in blocks] == [launch.name for launch in mapped_launches]
    for block, launch in zip(blocks, mapped_launches, strict=True):
        assert shape_of(block.body) == shape_of(launch.body)


def test_loads_stand_in_evaluation_order_and_gathers_are_marked():
    graph = lower(mapped("gather_rows", "cpu", N=20, V=7, D=33))
    operators = [n for block in graph.launches() for n in operators_of(block.body)]
    modes = [[(load.tensor, load.mode) for load in o.loads] for o in operators]
    assert modes == [[("idx", g.LoadMode.PLAIN), ("E", g.LoadMode.GATHER)]]


def operators_of(body):
    for node in body:
        if isinstance(node, g.Generic):
            yield node
        for part in ("body", "orelse"):
            yield from operators_of(getattr(node, part, ()))


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_accumulations_of_many_threads_into_one_element_are_atomic(target):
    graph = lower(mapped("histogram", target, N=500))
    stores = [o.store.mode for block in graph.launches() for o in operators_of(block.body) if o.store is not None]
    assert g.StoreMode.ATOMIC in stores


def test_an_ordered_loop_marks_the_accumulations_that_it_carries():
    graph = lower(mapped("ordered_sum", "cpu", M=12, N=50))
    ordered = {o.leaf.has("ordered") for b in graph.launches() for o in operators_of(b.body) if o.store.op is not None}
    assert ordered == {True}


def test_scalars_are_tensors_of_the_kernel_and_not_of_a_block():
    graph = lower(mapped("saxpy_seq", "cpu", N=8))
    assert [t.name for t in graph.tensors] == ["alpha", "X", "Y"]
    assert all(not block.tensors for block in graph.launches())


def test_only_hardware_digits_are_digits_of_the_block():
    (block,) = lower(mapped("matmul", "cuda:sm_90a", M=64, N=64, K=64)).launches()
    places = {d.place for d in block.digits}
    assert places and not places & {m.Place.SERIAL, m.Place.VECTOR}
