"""Buffers of rank 0 and sizes without a shape: what calls, artifacts and both front ends make of them."""

import re

import numpy as np
import pytest

import texpr
from texpr import f32, i32, inout, par, seq, size
from texpr.codegen.manifest_io import read_manifest, write_manifest
from texpr.grammar.diagnostics import TExprError

LOSS = """
kernel loss(A: f32[N], L: f32[], inout steps: i32[]) {
    L = sum N i { A[i] * A[i] }
    steps += 1
}
"""
EVERY = "kernel every(A: f32[N], C: f32[M]) where (M - 1) * step < N { size step; par M i { C[i] = A[i * step] } }"


@texpr.kernel(where="(M - 1) * step < N")
def every(A: f32["N"], C: f32["M"], *, step: size):
    for i in par("M"):
        C[i] = A[i * step]


@texpr.kernel
def norm(A: f32["N"], L: f32[()], steps: inout(i32[()]), *, power: size = 2):
    L = sum((t := A[i]) * t for i in seq("N")) * f32(power)
    steps = steps + 1


@texpr.kernel
def total(A: f32["N"], L: f32[()]):
    L[()] = 0.0
    for i in par("N"):
        L[()] += A[i]
    L[()] = L[()] * 2.0


def refusal(run: object) -> list[str]:
    with pytest.raises(TExprError) as caught:
        assert callable(run)
        run()
    return [f"{d.code}: {d.message}" for d in caught.value.diagnostics]


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda-host:sm_90a", marks=pytest.mark.gxx)])
@pytest.mark.parametrize("dynamic", [True, False])
def test_an_array_of_rank_zero_is_written_by_a_call(target: str, dynamic: bool) -> None:
    kernel = texpr.parse(LOSS).only
    compiled = kernel.compile(target) if dynamic else kernel.compile(target, N=4)
    total, steps = np.zeros((), np.float32), np.array(7, np.int32)
    for _ in range(2):
        compiled(np.arange(4, dtype=np.float32), total, steps)
    assert (float(total), int(steps)) == (14.0, 9)


def test_a_number_or_an_array_of_another_rank_is_no_array_of_rank_zero() -> None:
    kernel = texpr.parse(LOSS).only
    a, steps = np.zeros(4, np.float32), np.zeros((), np.int32)
    assert refusal(lambda: kernel(a, np.zeros(1, np.float32), steps)) == ["E0601: loss: L has 1 dimension and needs 0"]
    assert refusal(lambda: kernel(a, 0.0, steps))[0].startswith("E0601")
    assert refusal(lambda: kernel(a, np.float32(0), steps)) == ["E0601: loss: L is written, and the array is read-only"]


def test_an_artifact_describes_a_buffer_of_rank_zero() -> None:
    made = texpr.parse(LOSS).only.compile("cuda:sm_90a", stop_after="emit")
    manifest = read_manifest(write_manifest(made.manifest))
    assert [(p.name, p.shape, p.scalar) for p in manifest.parameters][1:] == [("L", (), False), ("steps", (), False)]
    header = next(text.decode() for name, text in made.build.results["emit"].files.items() if name.endswith(".h"))
    assert re.search(r"L: f32\[\]", header)
    assert re.search(r"float \*L", header)


def test_a_size_without_a_value_is_given_by_the_call_or_by_compile() -> None:
    for kernel in (texpr.parse(EVERY).only, every):
        a, c = np.arange(10, dtype=np.float32), np.zeros(4, np.float32)
        kernel(a, c, step=3)
        assert c.tolist() == [0.0, 3.0, 6.0, 9.0]
        kernel.compile(step=2)(a, c)
        assert c.tolist() == [0.0, 2.0, 4.0, 6.0]
        message = "E0602: every: step cannot be found from the arrays' shapes"
        assert refusal(lambda kernel=kernel, a=a, c=c: kernel(a, c)) == [message]


def test_a_size_of_the_file_without_a_value_is_one_of_every_kernel_that_uses_it() -> None:
    one, other = texpr.parse(
        "size step\nkernel a(C: i64[4]) { par 4 i { C[i] = i * step } }\nkernel b(C: i64[4]) { par 4 i { C[i] = i } }"
    )
    c = np.zeros(4, np.int64)
    one(c, step=5)
    assert c.tolist() == [0, 5, 10, 15]
    assert [s.name for s in one.core().sizes] == ["step"]
    assert other.core().sizes == ()


def test_python_writes_rank_zero_sizes_and_lets_of_a_reduction() -> None:
    assert str(every) == str(texpr.parse(str(every)).only)
    assert "size step\n" in str(every)
    assert "size power = 2" in str(norm)
    assert "L: f32[], inout steps: i32[]" in str(norm)
    assert "sum N i { let t = A[i]; t * t }" in str(norm)
    squares, steps = np.zeros((), np.float32), np.zeros((), np.int32)
    norm(np.arange(4, dtype=np.float32), squares, steps)
    assert (float(squares), int(steps)) == (28.0, 1)
    norm(np.arange(4, dtype=np.float32), squares, steps, power=3)
    assert (float(squares), int(steps)) == (42.0, 2)
    total(np.arange(4, dtype=np.float32), squares)
    assert float(squares) == 12.0
    assert "L = L * 2.0" in str(total)


def test_lets_of_a_reduction_end_with_it_and_shadow_nothing() -> None:
    text = "kernel f(A: f32[N], L: f32[]) { L = %s }"
    assert refusal(lambda: texpr.parse(text % "(sum N i { let t = A[i]; t }) + t").only.core()) == [
        "E0201: `t` is not known here"
    ]
    assert refusal(lambda: texpr.parse(text % "sum N i { let i = A[i]; i }").only.core())[0].startswith("E0202")
    assert refusal(lambda: texpr.parse(text % "sum N i { u * A[i] }").only.core()) == ["E0201: `u` is not known here"]


def test_a_size_called_stream_is_bound_before_the_call() -> None:
    kernel = texpr.parse(
        "kernel scaled(A: f32[N], C: f32[N]) { size stream; par N i { C[i] = A[i] * f32(stream) } }"
    ).only
    a, c = np.arange(2, dtype=np.float32), np.zeros(2, np.float32)
    for run in (kernel, kernel.compile()):
        with pytest.raises(TExprError) as caught:
            run(a, c)
        assert "bind this size before, compile(stream=…)" in str(caught.value)
    kernel.compile(stream=2)(a, c)
    assert c.tolist() == [0, 2]
    kernel.interpret(a, c, stream=3)
    assert c.tolist() == [0, 3]


def test_sizes_that_are_called_as_options_of_interpret_go_by_name() -> None:
    text = "kernel f(A: i64[N]) { size mode; size seed = 1; par N i { A[i] = 10 * mode + seed } }"
    kernel = texpr.parse(text).only
    a = np.zeros(2, np.int64)
    for given in ({"mode": 3}, {"seed": 4}, {"mode": "exact", "sizes": {"seed": 5}}):
        with pytest.raises(TExprError) as caught:
            kernel.interpret(a, **given)
        (found,) = caught.value.diagnostics
        name = next(iter(given))
        assert (found.code, found.message) == ("E0607", f"`{name}` is an option of this call and a size of f")
        assert found.help == f"give the size as sizes={{{name!r}: …}}"
    with pytest.raises(TExprError, match=r"pass sizes=\{'mode': …\}"):
        kernel.interpret(a)
    kernel.interpret(a, sizes={"mode": 3})
    assert a.tolist() == [31, 31]
    kernel.interpret(a, mode="exact", seed=7, sizes={"mode": 4, "seed": 5})
    assert a.tolist() == [45, 45]
    with pytest.raises(TExprError, match="size N has two values, 2 and 3"):
        kernel.interpret(a, sizes={"mode": 4, "N": 2}, N=3)


def test_a_parameter_that_is_called_as_an_option_of_interpret_goes_by_position() -> None:
    kernel = texpr.parse("kernel f(A: f32[N], types: f32[N]) { par N i { types[i] = A[i] } }").only
    a, c = np.arange(2, dtype=np.float32), np.zeros(2, np.float32)
    with pytest.raises(TExprError, match="`types` is an option of this call and a parameter of f"):
        kernel.interpret(a, types=c)
    kernel.interpret(a, c)
    assert c.tolist() == [0, 1]


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda-host:sm_90a", marks=pytest.mark.gxx)])
@pytest.mark.parametrize("dtype", ["f32", "i8", "f16"])
def test_an_element_of_an_array_is_a_buffer_of_rank_zero(target: str, dtype: str) -> None:
    text = f"kernel count(A: f32[N], n: {dtype}[]) {{ n = 0; par N i {{ atomic n += 1 }} }}"
    compiled = texpr.parse(text).only.compile(target)
    counts = np.full(5, 9, {"f32": np.float32, "i8": np.int8, "f16": np.float16}[dtype])
    for k in (1, 2):
        compiled(np.zeros(40, np.float32), counts[k : k + 1].reshape(()))
    assert counts.tolist() == [9, 40, 40, 9, 9]
