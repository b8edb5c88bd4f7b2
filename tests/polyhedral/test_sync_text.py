"""Synchronisation is printed node by node, and no emitter takes what it does not emit."""

import pytest
from graphs import do, launch, program
from rings import ring

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.plan import plan
from texpr.grammar.diagnostics import TExprError
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.sync import Fence, FenceKind

RING = """\
  pipe ring: 3 stages, transaction, block; a; load -> sum; commits 1 of 256 bytes, releases 64
  body
    if true  (once)
      fence (barrier_init)
    barrier (block)
    part load (1 warp)
      if true  (once)
        for k < K
          acquire ring
          S0: copy a[x] = from A[k, x] for x < 64  (transaction, ring, replicated)
          commit ring
    part sum (2 warps)
      i = i_lane + 32*i_warp
      S1: s[0] = a constant  (replicated)
      for k < K
        wait ring
        S2: s[0] += from a[63 - i]  (replicated)
        release ring
      S3: B[i] = from s[0]  (replicated)
"""


def test_a_ring_is_printed_with_its_parts_and_syncs() -> None:
    assert RING in show(ring(3))


def refusal(mapped: MappedProgram) -> str:
    with pytest.raises(TExprError) as caught:
        emit_cuda(plan(mapped), mapped.target)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E0502"
    return diagnostic.message


def test_no_emitter_takes_pipes_or_clusters_yet() -> None:
    assert refusal(ring(1)) == "the pipe ring is not emitted for CUDA"
    wide = program("B: i32[64]", launch(do("S0", "B[0] = 1"), threads=32, grid=2, cluster=2))
    assert refusal(wide) == "clusters of (2, 1, 1) blocks are not emitted for CUDA"


def test_a_node_that_is_not_emitted_is_refused_by_its_name() -> None:
    fenced = program("B: i32[64]", launch(do("S0", "B[0] = 1"), Fence(kind=FenceKind.ASYNC_PROXY), threads=32))
    assert refusal(fenced) == "Fence is not emitted for CUDA"
