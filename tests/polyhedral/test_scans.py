"""Scans of values of each thread and over lanes: simulated, checked, printed, emitted and run on the CPU."""

from typing import Any

import numpy as np
import pytest
from emitted import Emitted
from graphs import barrier, define, do, launch, order, program, scan, when
from scans import COUNT, FORMS, NAMES, scanned

from texpr.codegen.cuda.emit import emit_cuda
from texpr.codegen.host_run import HostModule
from texpr.codegen.plan import plan
from texpr.codegen.toolchain import compile_cubin
from texpr.grammar.diagnostics import InternalError, TExprError
from texpr.grammar.types import BF16, F32
from texpr.polyhedral.mapped.monoids import MONOIDS
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.orders.check import check_orders
from texpr.polyhedral.simulate.stage import simulate


def arrays() -> dict[str, Any]:
    a = np.random.default_rng(0).integers(-99, 99, (64, COUNT)).astype(np.int32)
    return {"A": a, "B": np.zeros_like(a), "C": np.zeros_like(a)}


def sums(name: str, a: Any) -> Any:
    """What NumPy says."""
    form = FORMS[name]
    groups = (a if "over" in form else a[:, :1]).reshape(64 // form.get("lanes", 1), -1)
    up_to = groups.cumsum(axis=1)
    found = (up_to - groups if form.get("exclusive") else up_to).reshape(64, -1)
    return np.pad(found, ((0, 0), (0, COUNT - found.shape[1])))


@pytest.mark.parametrize("name", FORMS)
def test_a_scan_is_what_numpy_says_of_its_sums(name: str) -> None:
    mapped, given = scanned(name), arrays()
    check_orders(mapped)
    for interleaved in (False, True):
        np.testing.assert_array_equal(simulate(mapped, given, interleaved=interleaved)["B"], sums(name, given["A"]))


@pytest.mark.parametrize("name", ["values", "both", "both before"])
def test_a_scan_of_partials_is_what_its_monoid_leaves_of_each_beginning(name: str) -> None:
    a = np.random.default_rng(1).normal(size=(64, COUNT)).astype(np.float32)
    got = simulate(scanned(name, "ScaledSum", last=True), {"A": a, "B": np.zeros_like(a), "C": np.zeros_like(a)})
    monoid, before = MONOIDS["ScaledSum"], FORMS[name].get("exclusive", False)
    for group, *found in zip(
        *(x.reshape(64 // FORMS[name].get("lanes", 1), -1) for x in (a, got["B"], got["C"])),
        strict=True,
    ):
        total = tuple(np.float32(s) for s in monoid.identity(F32))
        for n, x in enumerate(group):
            after = monoid.combine(total, monoid.lift(x, np.float32(0)))
            with np.errstate(invalid="ignore"):
                wanted = monoid.result(total if before else after)
            np.testing.assert_allclose([f[n] for f in found], wanted, rtol=1e-5)
            total = after


def test_a_scan_is_printed_with_what_it_is_up_to() -> None:
    assert "S1: p[e] = Sum up to v[e] for e < 4  (over 32 lanes, replicated)\n" in show(scanned("both"))
    assert "S1: p[0] = Sum before v[0]  (over 8 lanes, replicated)\n" in show(scanned("lanes before"))


def test_what_a_scan_leaves_in_shared_memory_is_ordered() -> None:
    kept = scan("S1", "t[4 * i + e]", "A[i, e]", monoid="Sum", over=f"e < {COUNT}", lanes=32)
    last = do("S2", "B[i, 0] = t[255 - 4 * i]")

    def shared(*between: Any) -> MappedProgram:
        only = launch(define("i", lane=32, warp=2), kept, *between, last, threads=64, orders=(order("S1", "S2", "t"),))
        return program(f"A: i32[64, {COUNT}], B: i32[64, {COUNT}]", only, shared={"t": (256,)})

    given = {name: array for name, array in arrays().items() if name != "C"}
    check_orders(shared(barrier("block")))
    assert simulate(shared(barrier("block")), given)["B"][0, 0] == given["A"][32:].sum()
    with pytest.raises(InternalError, match="no barrier orders"):
        check_orders(shared())
    with pytest.raises(TExprError, match="of t and no barrier orders S1"):
        simulate(shared(), given)


def test_all_lanes_come_to_a_scan() -> None:
    body = (define("l", lane=32), when("l < 5", scan("S0", "p[0]", "A[l]", monoid="Sum", lanes=32)))
    mapped = program("A: i32[32]", launch(*body, threads=32), registers={"p": (1,)})
    with pytest.raises(TExprError, match="not all of 32 lanes come to the scan"):
        simulate(mapped, {"A": np.zeros(32, np.int32)})
    with pytest.raises(InternalError, match="S0 combines lanes where they diverge"):
        check_orders(mapped)


# ---- the same as CUDA ----


@pytest.mark.gxx
def test_the_text_of_a_scan_is_right_on_the_cpu() -> None:
    every = {key: Emitted(scanned(*key, last=key[1] != "Sum")) for key in NAMES}
    module = HostModule("\n".join(e.source for e in every.values()), werror=True)
    for (name, monoid), found in every.items():
        given = arrays()
        if monoid != "Sum":
            given = {key: (array / 40).astype(np.float32) for key, array in given.items()}
        wanted = simulate(scanned(name, monoid, last=monoid != "Sum"), given)
        assert found.run(module, given, 3) is None
        for array in "BC":
            np.testing.assert_allclose(given[array], wanted[array], rtol=1e-5, err_msg=f"{name} {monoid}")


@pytest.mark.nvcc
def test_scans_compile_without_warnings() -> None:
    texts = [emit_cuda(plan(m), m.target).source for m in (scanned(*key, last=True) for key in NAMES)]
    assert compile_cubin("\n".join(texts), "sm_90a", werror=True)


def test_a_scan_is_a_function_of_its_elements_and_one_call() -> None:
    mapped = scanned("both")
    text = emit_cuda(plan(mapped), mapped.target).source
    assert "const auto S1 = [&](int e" in text
    fold = "tx::before_lanes<tx::Sum<tx::i32>>(tx::fold<tx::Sum<tx::i32>, 4>(S1))"
    assert f"tx::scan<tx::Sum<tx::i32>, 4>({fold}, S1, [&](int e" in text
    alone = scanned("lanes before")
    assert "tx::before_lanes<tx::Sum<tx::i32>, 8>(v(0))" in emit_cuda(plan(alone), alone.target).source


REFUSED = (
    (scan("S0", "p[0]", "A[0]", monoid="Sum", lanes=6), "S0 combines 6 lanes, which are no group"),
    (scan("S0", "p[a]", "A[a]", monoid="Sum", over="a < 2, e < 2"), "S0 combines several indices"),
    (scan("S0", "p[a]", "A[a]", monoid="Sum", over="a < x"), "so many elements as no number says"),
    (scan("S0", "p[a]", "A[a]", monoid="Greatest", over="a < 4", types={"A": BF16}), "values of bf16 by Greatest"),
)


@pytest.mark.parametrize(("node", "why"), REFUSED)
def test_a_scan_that_no_header_function_does_is_refused_with_a_way_round(node: Any, why: str) -> None:
    mapped = program("A: i32[32]", launch(define("x", lane=32), node, threads=32), registers={"p": (4,)})
    with pytest.raises(TExprError, match=why) as refused:
        emit_cuda(plan(mapped), mapped.target)
    assert refused.value.diagnostics[0].code == "E0502" and refused.value.diagnostics[0].help
