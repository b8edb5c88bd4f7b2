"""Sizes from outside, however large: a diagnostic or a program, never an exception of Python, never half a run."""

from typing import Any

import numpy as np
import pytest

import texpr

FOUR = "kernel k(A: f32[N, N, N, N]) { par N a, N b, N c, N d { A[a, b, c, d] = 1.0 } }"
WORKSPACE = "kernel k(A: f32[N]) { new t: f32[M]\n par 8 i { t[i] = 1.0 }\n par N i { A[i] = t[0] } }"
HOST_LOOP = """kernel k(A: f32[N], B: f32[N]) {
    seq M t {
        par N i { A[i] = B[N - 1 - i] + 1.0 }
        par N i { B[i] = A[i] }
    }
}"""
TURNED = "kernel k(A: f32[N]) { seq M t { par N i { A[i] += 1.0 } } }"
PRIVATE = "kernel k(A: f32[N]) { par N i { new t: f32[M]\n seq M j { t[j] = 1.0 }\n A[i] = t[i % 8] } }"
SHARED = "kernel k(A: f32[N]) { par N i { new shared t: f32[M]\n par M j { t[j] = 1.0 }\n A[i] = t[0] } }"
UNROLLED = "kernel k(A: f32[N]) { par N i { seq M t #unroll { A[i] += 1.0 } } }"


def outcome(text: str, target: str, **sizes: int) -> str:
    """`built`, or the code of the refusal."""
    try:
        texpr.parse(text).only.compile(target, sizes=sizes)
    except texpr.TExprError as wrong:
        return wrong.diagnostics[0].code
    return "built"


def aligned(count: int) -> Any:
    memory = np.zeros(4 * count + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + 4 * count].view(np.float32)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a", "cuda-host:sm_90a"])
@pytest.mark.parametrize("text", [FOUR, WORKSPACE, HOST_LOOP, TURNED, PRIVATE, SHARED, UNROLLED])
@pytest.mark.parametrize("size", [-1, 0, 1, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**80])
def test_every_size_builds_or_is_refused(text: str, target: str, size: int) -> None:
    sizes = {"N": size, "M": size} if "M" in text else {"N": size}
    allowed = {"built", "E0302", "E0303", "E0307", "E0308", "E0401", "E0403"} if 0 <= size < 2**63 else {"E0211"}
    assert outcome(text, target, **sizes) in allowed


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a", "cuda-host:sm_90a"])
def test_a_workspace_beyond_the_address_space_is_refused(target: str) -> None:
    assert outcome(WORKSPACE, target, N=8, M=2**20) == "built"
    assert outcome(WORKSPACE, target, N=8, M=2**62) == "E0403"


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda-host:sm_90a", marks=pytest.mark.gxx)])
@pytest.mark.parametrize("size", [2**44, 2**61])
def test_a_workspace_beyond_the_machine_is_refused_at_the_call(target: str, size: int) -> None:
    compiled = texpr.parse(WORKSPACE.replace("{ new", "where M >= 8 { new")).only.compile(target, N=8)
    a = aligned(8)
    with pytest.raises(texpr.TExprError, match="E0403"):
        compiled(a, M=size)
    assert not a.any()


@pytest.mark.gxx
def test_a_host_loop_that_does_not_end_is_refused_before_its_first_round() -> None:
    compiled = texpr.parse(HOST_LOOP).only.compile("cuda-host:sm_90a", N=8)
    a, b = aligned(8), aligned(8)
    with pytest.raises(texpr.TExprError, match="rounds of host loops"):
        compiled(a, b, M=2**40)
    assert not a.any()
    compiled(a, b, M=3)
    assert (a == 3.0).all()


def test_a_trial_that_the_machine_cannot_hold_is_refused() -> None:
    from texpr.trial import run_trial

    kernel = texpr.parse("kernel k(A: f32[N]) { par N i { A[i] = 1.0 } }").only
    with pytest.raises(texpr.TExprError, match="E0602"):
        run_trial(kernel, "cpu", sizes={"N": 2**38})
