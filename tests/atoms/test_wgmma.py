"""Products of a warpgroup under the host header: values for every layout of the operands, and what is told of wrong
ones."""

from dataclasses import replace
from functools import cache

import cases
import pytest
import wgmma_cases

from texpr.codegen.host_run import HostModule

pytestmark = pytest.mark.gxx

CASE, TEXT = wgmma_cases.product("broken", "bf16", 8, 128, "kK", 128, "kK")
FENCE, WAIT, SETTLE = "  tx::wgmma_fence();\n", "  tx::wgmma_wait<0>();\n", "  tx::settle(sums);\n"
BROKEN = {
    "the fence of stores": ("  tx::fence_async_shared();\n", "", "no fence_async shows it"),
    "the barrier": ("  tx::sync_block(0);\n", "", "nothing orders them"),
    "the fence of registers": (FENCE, "", "no wgmma_fence stands between"),
    "the wait": (WAIT, "", "nothing waits for their product"),
    "settle": (SETTLE, "", "before settle()"),
    "a fence before the registers are written": (
        FENCE,
        f"{FENCE}  sums.fill(1.0f);\n",
        "no wgmma_fence stands between",
    ),
    "a tile that is overwritten too early": (WAIT, f"  left.store(0, tx::bf16{{0}});\n{WAIT}", "nothing orders them"),
    "a descriptor of one thread": ("y.at(0, k)", "y.at(0, tx::thread() == 77 ? 0 : k)", "other descriptors"),
    "half a warpgroup": (FENCE, f"  if (tx::thread() >= 64) return;\n{FENCE}", "wgmma"),
    "an operand beyond the memory": ("y.at(0, k)", "y.at(64, k)", "and the launch gives"),
}


RING, RING_TEXT = wgmma_cases.pipelined("ring")
BROKEN_RING = {
    "a slot that is free while a product reads it": ("release_after<1>", "release_after<0>", "left"),
    "a slot that is never free": ("      if (tx::lane() == 0) ab.release_after<1>();\n", "", "waits"),
    "stores without their fence": ("      tx::fence_async_shared();\n", "", "no fence_async shows it"),
    "tiles that are not waited for": ("      ab.wait();\n", "", "nothing orders them"),
    "sums that are read on their way": ("    tx::wgmma_wait<0>();\n", "", "nothing waits for their product"),
}


@cache
def broken_rings():
    """All of them in one text, each a kernel."""
    texts = []
    for number, (old, new, _) in enumerate(BROKEN_RING.values()):
        assert RING_TEXT.count(old) == 1
        texts.append(
            RING_TEXT.replace(old, new).replace("ring(", f"ring_{number}(").replace("(ring,", f"(ring_{number},")
        )
    return HostModule(wgmma_cases.INCLUDES + "".join(texts))


@pytest.mark.parametrize("what", BROKEN_RING)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_ring_of_products_without_its_order_is_told(what, seed):
    symbol = f"ring_{list(BROKEN_RING).index(what)}"
    report = cases.run_on_host(broken_rings(), replace(RING, symbol=symbol), seed)
    assert not isinstance(report, list), "nothing was found"
    assert BROKEN_RING[what][2] in report.message, report.message


@cache
def broken():
    """All of them in one text, each a kernel."""
    texts = []
    for number, (old, new, _) in enumerate(BROKEN.values()):
        assert TEXT.count(old) == 1
        texts.append(TEXT.replace(old, new).replace("broken", f"broken_{number}"))
    return HostModule(wgmma_cases.INCLUDES + "".join(texts))


@pytest.mark.parametrize("what", BROKEN)
def test_a_product_without_its_order_is_told(what):
    report = cases.run_on_host(broken(), replace(CASE, symbol=f"broken_{list(BROKEN).index(what)}"))
    assert not isinstance(report, list), "nothing was found"
    assert BROKEN[what][2] in report.message
