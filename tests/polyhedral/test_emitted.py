"""Hand-built graphs are emitted one call a node; the text is right on the CPU in every order, and compiles."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from graphs import barrier, copy, do, launch, part, parts, program
from hand_built import GRAPHS
from rings import ring

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostModule
from texpr.codegen.plan import plan
from texpr.codegen.toolchain import compile_cubin
from texpr.grammar.ast import Gather, Read
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import const
from texpr.grammar.types import F32, I32
from texpr.polyhedral.mapped.access import Access, Cache
from texpr.polyhedral.mapped.between import GridBarrier, Init, Words
from texpr.polyhedral.mapped.operators import Copy
from texpr.polyhedral.mapped.program import Launch, MappedProgram
from texpr.polyhedral.mapped.views import View, Within
from texpr.polyhedral.mapped.walks import launches, map_nodes

SEEDS = (0, 1, 2, 77)


@cache
def emitted() -> dict[str, Emitted]:
    """Every graph, with kernels of its own names."""
    found = {}
    for number, (name, graph) in enumerate(GRAPHS.items()):
        host = (
            replace(h, name=f"graph_{number}_{k}") for k, h in enumerate(graph.program.host) if isinstance(h, Launch)
        )
        found[name] = Emitted(replace(graph.program, host=tuple(host)))
    return found


def source() -> str:
    return "\n".join(e.source for e in emitted().values())


@cache
def module() -> HostModule:
    return HostModule(source(), werror=True)


@pytest.mark.gxx
@pytest.mark.parametrize("name", GRAPHS)
def test_the_text_of_a_graph_is_right_in_every_order(name: str) -> None:
    graph = GRAPHS[name]
    for seed in SEEDS:
        arrays = graph.arrays()
        report = emitted()[name].run(module(), arrays, seed)
        assert report is None, report
        np.testing.assert_array_equal(arrays[graph.result], graph.expected(arrays["A"]))


@pytest.mark.nvcc
def test_the_texts_of_all_graphs_compile_without_warnings() -> None:
    assert compile_cubin(source(), "sm_90a", werror=True)


RING = """\
  // pipe ring: 3 stages, transaction, block; a; load -> sum; commits 1 of 256 bytes, releases 64
  //   S0: a[x] = A[k, x]
  tx::Ring<3, tx::PipeKind::kTransaction> ring(smem + 768, "ring");
  const int lane = tx::lane();
  const int warp = tx::warp();
  if (tx::thread() == 0) ring.init(1, 64);
  if (tx::thread() == 0) tx::fence_barrier_init();
  tx::sync_block(0);
  if (tx::warp() < 1) {  // part load: S0: a[x] = A[k, x]
    if (tx::thread() == 0) {
      for (tx::i64 k = 0; k < K; ++k) {
        ring.acquire();
        // by_hand:1: S0: a[x] = A[k, x]
#line 1 "/texpr/by_hand"
        tx::load_bulk(a.at(ring.fill() * 64), A.at(k * 64), 256, ring.full());
        ring.commit(256);
      }
    }
  } else {  // part sum: S1: s[0] = 0; S2: s[0] += a[63 - i]; S3: B[i] = s[0]
    const int i = lane + 32 * (warp - 1);
"""


def text(mapped: MappedProgram) -> str:
    return emit_cuda(plan(mapped), mapped.target).source


def test_a_ring_reads_as_its_parts() -> None:
    assert RING in text(ring(3))


def test_an_array_that_the_launch_before_may_still_write_is_no_restricted_pointer() -> None:
    """Loads through one that is only read are moved across `after_launch`."""
    second = text(GRAPHS["overlapping"].program).split("texpr_second(", 1)[1].split("{", 1)[0]
    assert "const tx::i32* p_data" in second and "const tx::i32* __restrict__ A_data" in second


def test_a_part_counts_its_warps_and_threads_from_its_first() -> None:
    (only,) = ring(1).host
    assert isinstance(only, Launch)
    assert "(warp - 1)" in text(ring(1)) and "tx::warp() < 1" in text(ring(1))


MEET = Words(name="meet", shape=(), init=Init.ZERO_ONCE)


def refusal(mapped: MappedProgram) -> str:
    with pytest.raises(TExprError) as caught:
        text(mapped)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E0502"
    return diagnostic.message


def test_what_is_not_emitted_is_refused_by_its_name() -> None:
    met = parts(part("one", 1, GridBarrier(counter="meet")))
    inside = program("B: i32[64]", launch(do("S0", "B[0] = 1"), met, threads=32), words=(MEET,))
    assert refusal(inside) == "GridBarrier in a part of the block is not emitted for CUDA"
    half = program("B: i32[64]", launch(do("S0", "B[0] = 1"), barrier("block", action="wait"), threads=32))
    assert refusal(half) == "wait at a barrier of the block is not emitted for CUDA"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"within": Within(begin=const(1), end=const(9), other=None)}, "some elements of a box only"),
        ({"cache": Cache.STREAM}, "a cache hint"),
        ({"access": Access.FUNNEL}, "any address"),
        ({"target": View(buffer="a", subscripts=(), dtype=F32)}, "elements of two types"),
    ],
)
def test_what_a_copy_on_its_way_cannot_do_is_refused(changes: dict[str, Any], said: str) -> None:
    (only,) = launches(ring(2).host)
    body = map_nodes(only.body, lambda node: replace(node, **changes) if isinstance(node, Copy) else node)
    changed = replace(ring(2), host=(replace(only, body=body),))
    assert refusal(changed) == f"S0 copies with {said}, which is not emitted for CUDA"


def test_a_wide_copy_may_begin_where_data_says() -> None:
    wide = copy("S0", "r[x] = A[y, x]", over="x < 4", access="aligned", types={"A": F32, "r": F32})
    row = Gather(value=Read(buffer="idx", subscripts=(const(0),), dtype=I32))
    gathered = replace(wide, source=replace(wide.source, subscripts=(row, wide.source.subscripts[1])))
    mapped = program(
        "A: f32[8, 64], idx: i32[1]",
        launch(gathered, threads=32),
        registers={"r": (4,)},
        types={"r": F32},
    )
    assert "gathered<int>(idx(0), 8)" in text(mapped)
