"""Narrow values: which statements end in 16 bits, and what a bound allows there."""

import numpy as np
import pytest

import texpr
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.narrow import narrow_statements
from texpr.runtime.host_arrays import numpy_dtype

SOFTMAX = """kernel k(X: bf16[M, N], Y: bf16[M, N]) where N >= 1 {
    par M i {
        new top: f32; new total: f32
        top = maximum N j { X[i, j] }
        total = sum N j { exp(X[i, j] - top) }
        par N j { Y[i, j] = exp(X[i, j] - top) / total }
    }
}"""


def narrow(text: str) -> set[str]:
    """What the narrow statements write."""
    kernel = texpr.parse(text).only.core()
    named = {s.id: s.buffer for s in texpr.grammar.core.statements(kernel.body) if hasattr(s, "id")}
    return {named[id] for id in narrow_statements(kernel)}


def in_par(body: str, output: str = "bf16") -> str:
    return f"kernel k(X: bf16[N], Y: {output}[N], Z: f32[N], I: i32[N]) {{ par N i {{ {body} }} }}"


def test_what_a_softmax_computes_ends_in_16_bits() -> None:
    assert narrow(SOFTMAX) == {"top", "total", "Y"}
    assert narrow(SOFTMAX.replace("Y: bf16", "Y: f32")) == set()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("Y[i] = exp(f32(X[i]))", {"Y"}),
        ("new t: f32; t = exp(f32(X[i])); Y[i] = t; Z[i] = t", {"Y"}),
        ("new t: f32; t = exp(f32(X[i])); Y[i] = t; Z[i] = 0.0", {"t", "Y"}),
        ("new t: f32; new u: f32; t = exp(f32(X[i])); u = t * t; Y[i] = u", {"t", "u", "Y"}),
        ("new t: f64; t = exp(f64(X[i])); Y[i] = t", {"Y"}),
        ("Y[i] = exp(f32(X[i])) #strict", set()),
        ("Y[i] = select(exp(f32(X[i])) > 1.0, 1.0, 0.0)", set()),
        ("Y[i] = floor(exp(f32(X[i])))", set()),
        ("Y[i] = f32(i32(exp(f32(X[i]))))", set()),
        ("new t: f32; t = exp(f32(X[i])); I[i] = i32(t); Y[i] = t", {"Y"}),
        ("new t: bool; t = exp(f32(X[i])) > 2.0; if t { Y[i] = 1.0 } else { Y[i] = 2.0 }", {"Y"}),
        ("new t: f32; t = 1.0; seq 9 k { t = exp(-t) }; Y[i] = t", {"Y"}),
        ("new t: f32; new u: f32; t = 1.0; u = 1.0; seq 9 k { t = exp(-u); u = t }; Y[i] = u", {"Y"}),
        ("new t: f32; t = 0.0; seq 9 k { t += exp(f32(k)) }; Y[i] = t", {"t", "Y"}),
    ],
)
def test_nothing_is_narrow_that_decides_or_comes_back_or_is_kept_as_it_is(body: str, found: set[str]) -> None:
    assert narrow(in_par(body)) == found


def test_a_kernel_without_16_bit_arrays_has_nothing_narrow() -> None:
    assert narrow("kernel k(X: f32[N], Y: f32[N]) { par N i { Y[i] = exp(X[i]) } }") == set()
    assert narrow("kernel k(X: f16[N], Y: f16[N]) #strict { par N i { Y[i] = exp(f32(X[i])) } }") == set()


def test_bounds_are_those_of_the_faster_functions_only_where_they_may_stand() -> None:
    def bound(body: str, output: str) -> float:
        kernel = texpr.parse(f"kernel k(X: f32[N], Y: {output}[N]) {{ par N i {{ {body} }} }}").only.core()
        types = {b.name: numpy_dtype(b.dtype) for b in kernel.params}
        values = {name: np.linspace(0.5, 3.0, 8).astype(dtype) for name, dtype in types.items()}
        return float(np.max(interpret(kernel, values, sizes={"N": 8}, float64=True).bounds["Y"]))

    assert bound("Y[i] = erf(X[i])", "f32") < 1e-6 < bound("Y[i] = erf(X[i]) #fast", "f32")
    assert bound("Y[i] = erf(X[i]) #strict", "f16") < bound("Y[i] = erf(X[i])", "f16")
    assert bound("Y[i] = xlogy(X[i], X[i]) #strict", "f16") < bound("Y[i] = xlogy(X[i], X[i])", "f16")
    assert bound("Y[i] = sigmoid(X[i]) #strict", "f16") < bound("Y[i] = sigmoid(X[i])", "f16")
    assert bound("Y[i] = tanh(X[i])", "f16") < bound("Y[i] = tanh(X[i]) #fast", "f16")


@pytest.mark.parametrize("function", ["silu", "gelu_tanh"])
def test_activations_that_end_in_16_bits_take_the_faster_sigmoid(function: str) -> None:
    def text(output: str) -> str:
        kernel = texpr.parse(f"kernel k(X: f32[N], Y: {output}[N]) {{ par N i {{ Y[i] = {function}(X[i]) }} }}").only
        return kernel.compile("cuda:sm_90a", stop_after="emit", N=4096).source

    assert "tx::fast_sigmoid(" in text("bf16") and "tx::fast_sigmoid(" in text("f16")
    assert "tx::sigmoid(" in text("f32") and "fast" not in text("f32")
