"""Synchronisation is printed node by node."""

from rings import ring

from texpr.polyhedral.mapped.show import show

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
