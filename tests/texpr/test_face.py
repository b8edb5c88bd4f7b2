"""The face: kernels from files, texts and functions, compiled, called, interpreted, inspected and saved."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import texpr
from texpr import f32, i32, par, seq

ADD = "kernel add(A: f32[N], B: f32[N], C: f32[N]) {\n    par N i {\n        C[i] = A[i] + B[i]\n    }\n}\n"
SEED = """
par M i {
    par N j {
        seq K k {
            C[i * N + j] += A[i * K + k] * B[k * N + j]
        }
    }
}
"""


@texpr.kernel
def doubled(A: f32["N"], B: f32["N"]) -> None:
    """Twice A."""
    for i in par("N"):
        B[i] = A[i] * 2.0


@texpr.fn
def squared(x: f32["n"], y: texpr.out(f32["n"])) -> None:
    for i in seq("n"):
        y[i] = x[i] * x[i]


@texpr.kernel(where="N >= 1", dynamic=("N",))
def squares(A: f32["N", 4], B: f32["N", 4]) -> None:
    for i in par("N"):
        squared(A[i, 0:4], B[i, 0:4])


def code_of(run: Any) -> str:
    with pytest.raises(texpr.TExprError) as caught:
        run()
    assert caught.value.diagnostics
    return caught.value.diagnostics[0].code


def test_a_decorated_function_runs_on_numpy_arrays() -> None:
    a, b = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    doubled(a, b)
    assert b.tolist() == [0, 2, 4, 6, 8]
    assert (doubled.__name__, doubled.__doc__) == ("doubled", "Twice A.")


def test_a_function_that_kernels_call_is_inlined() -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    b = np.zeros_like(a)
    squares(a, b)
    assert np.array_equal(b, a * a)


def test_dynamic_sizes_stay_dynamic_in_plain_calls() -> None:
    for rows in (1, 2, 7):
        a = np.ones((rows, 4), np.float32)
        b = np.zeros_like(a)
        squares(a, b)
        assert b.all()
    assert len(squares._compiled) == 1


def test_a_bare_program_takes_types_and_arrays_of_any_rank() -> None:
    kernel = texpr.parse(SEED).only
    rng = np.random.default_rng(0)
    a, b, c = rng.random((4, 6)), rng.random((6, 5)), np.zeros((4, 5))
    compiled = kernel.compile(M=4, N=5, K=6, types={"A": "f64", "B": "f64", "C": "f64"})
    compiled(c, a, b)
    assert np.allclose(c, a @ b)


def test_every_name_that_texpr_gives_is_listed() -> None:
    from texpr import language

    listed = dir(texpr)
    assert {"f32", "par", "bool", "load_artifact", "TExprError", *language.__all__} <= set(listed)
    assert all(getattr(texpr, name) is not None for name in listed)
    assert len(set(listed)) == len(listed)


def test_interpreting_is_called_like_a_compiled_kernel() -> None:
    kernel = texpr.parse(ADD).only
    a, b, c = np.ones(4, np.float32), np.ones(4, np.float32), np.zeros(4, np.float32)
    kernel.interpret(a, b, C=c)
    assert c.tolist() == [2, 2, 2, 2]
    kernel.interpret(a, c, b, mode="exact")
    assert b.tolist() == [3, 3, 3, 3]


def test_arguments_by_keyword_and_free_sizes() -> None:
    compiled = texpr.parse(ADD).only.compile()
    assert compiled.dynamic == ("N",)
    for n in (0, 1, 5, 1000):
        a, c = np.ones(n, np.float32), np.zeros(n, np.float32)
        compiled(A=a, B=a.copy(), C=c)
        assert (c == 2).all()


def test_everything_can_be_inspected(tmp_path: Path) -> None:
    compiled = texpr.parse(ADD).only.compile("cuda:sm_90a", N=1000)
    assert "lane" in str(compiled.mapping)
    assert "S0: C_run[i_vector] = add.f32(A_run[i_vector], B_run[i_vector])" in str(compiled.graph)
    assert "__global__" in compiled.source
    assert compiled.manifest.sizes == {"N": 1000}
    assert (compiled.save(tmp_path / "out", source_only=True) / "manifest.json").is_file()
    assert list(compiled.build.times_ms) == ["check", "model", "prove", "schedule", "map", "plan", "emit"]


@pytest.mark.parametrize("stage", ["check", "model", "prove", "schedule", "map", "plan"])
def test_compilation_stops_after_a_stage(stage: str) -> None:
    compiled = texpr.parse(ADD).only.compile(stop_after=stage)
    assert list(compiled.build.times_ms)[-1] == stage
    assert code_of(lambda: compiled.source) == "E0502"


def test_what_is_no_stage_is_told_with_the_stages() -> None:
    with pytest.raises(texpr.TExprError, match="there is no stage 'lower'") as caught:
        texpr.parse(ADD).only.compile(stop_after="lower")
    assert "parse, check, model, prove, schedule, map, plan, emit" in str(caught.value)


@pytest.mark.gxx
@pytest.mark.parametrize("target", ["cpu", "cuda-host:sm_90a"])
def test_a_compiled_kernel_is_copied_and_pickled_after_a_call_as_before(target: str) -> None:
    made, a = texpr.parse(ADD).only.compile(target), np.arange(5, dtype=np.float32)
    made(a, a, np.zeros_like(a))
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        c = np.zeros_like(a)
        copied(a, a, c)
        assert c.tolist() == [0, 2, 4, 6, 8]


def test_modules_give_kernels_by_name_and_attribute() -> None:
    module = texpr.parse(ADD + ADD.replace("add", "sum_of"))
    assert [kernel.name for kernel in module] == ["add", "sum_of"]
    assert module["add"].name == module.add.name == "add"
    assert code_of(lambda: module["other"]) == "E0201"
    assert code_of(lambda: module.only) == "E0201"
    with pytest.raises(AttributeError):
        _ = module.other


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"target": "tpu"}, "E0501"),
        ({"target": "cuda:sm_12"}, "E0501"),
        ({"N": "x"}, "E0211"),
        ({"N": -1}, "E0211"),
        ({"Q": 3}, "E0211"),
        ({"N": 3, "sizes": {"N": 4}}, "E0211"),
        ({"N": 3, "dynamic": ("N",)}, "E0211"),
        ({"dynamic": ("Q",)}, "E0211"),
        ({"stop_after": "nowhere"}, "E0502"),
        ({"stop_after": 3}, "E0502"),
        ({"target": 3}, "E0501"),
        ({"sizes": [3]}, "E0211"),
        ({"types": {"A": 3}}, "E0211"),
        ({"dynamic": 3}, "E0211"),
        ({"hints": {"N": "x"}}, "E0211"),
        ({"types": {"A": "f32"}}, "E0211"),
    ],
)
def test_wrong_compilations_are_refused(arguments: dict[str, Any], code: str) -> None:
    assert code_of(lambda: texpr.parse(ADD).only.compile(**arguments)) == code


class OnGpu:
    """An array that says it is on a GPU; nobody may touch its memory here."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **options: Any) -> Any:
        from texpr.runtime.arrays import _DLTensor, _pointer_of

        capsule = np.ones(4, np.float32).__dlpack__()
        _DLTensor.from_address(_pointer_of(capsule, b"dltensor")).device.type = 2
        return capsule


def test_arrays_of_another_device_are_refused() -> None:
    a, c = np.ones(4, np.float32), np.ones(4, np.float32)
    assert code_of(lambda: texpr.parse(ADD).only.compile(N=4)(OnGpu(), a, c)) == "E0605"
    assert code_of(lambda: texpr.parse(ADD).only(OnGpu(), a, c)) == "E0605"


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda-host:sm_90a", marks=pytest.mark.gxx)])
def test_a_stream_on_the_cpu_is_refused(target: str) -> None:
    a, c = np.ones(4, np.float32), np.ones(4, np.float32)
    assert code_of(lambda: texpr.parse(ADD).only.compile(target, N=4)(a, a, c, stream=1)) == "E0601"


@pytest.mark.parametrize("path", ["nowhere.tex", ".", "a\0b", None, 3])
def test_unreadable_files_are_diagnostics(path: Any) -> None:
    assert code_of(lambda: texpr.load(path)) == "E0606"
    assert code_of(lambda: texpr.load_artifact(path)) == "E0606"


def test_words_of_the_language_have_no_meaning_outside_a_kernel() -> None:
    assert code_of(lambda: par("N")) == "E0212"
    assert code_of(lambda: squared(1, 2)) == "E0601"


def test_a_gathered_subscript_out_of_range_is_found_at_run_time() -> None:
    text = "kernel g(idx: i32[N], A: f32[4], B: f32[N]) {\n    par N i {\n        B[i] = A[idx[i]]\n    }\n}\n"
    compiled = texpr.parse(text).only.compile()
    a, b = np.ones(4, np.float32), np.zeros(3, np.float32)
    compiled(np.array([0, 3, 1], np.int32), a, b)
    with pytest.raises(texpr.TExprError) as caught:
        compiled(np.array([0, 4, 1], np.int32), a, b)
    assert caught.value.diagnostics[0].code == "E0604"
    assert caught.value.diagnostics[0].witness["line"] == 3


def test_the_sign_of_zero_and_nan_is_itself() -> None:
    text = "kernel k(A: f32[N], B: f32[N], C: f32[N]) { par N i { B[i] = sign(A[i]); C[i] = square(A[i]) } }"
    a = np.array([-2.5, -0.0, 0.0, 3.0, np.inf, np.nan], np.float32)
    for run in (texpr.parse(text).only, texpr.parse(text).only.interpret):
        b, c = np.zeros(6, "f4"), np.zeros(6, "f4")
        run(a, b, c)
        assert np.array_equal(b, [-1, -0.0, 0, 1, 1, np.nan], equal_nan=True)
        assert np.signbit(b[1])
        assert np.array_equal(c, a * a, equal_nan=True)


GATHERS = """kernel g(EXTENT: f32[M], B: f32[N], A: f32[4, M], idx: i32[N]) where M >= 1 {
    par M i { EXTENT[i] = 1.0 }
    par N i { B[i] = A[idx[i] + 1, 0] }
    par N i { B[i] = B[i] + EXTENT[idx[i]] }
}
"""


@pytest.mark.parametrize("sizes", [{}, {"N": 70_000, "M": 9}], ids=["dynamic", "bound"])
def test_a_gather_out_of_range_tells_its_value_and_the_extent(sizes: dict[str, int]) -> None:
    compiled = texpr.parse(GATHERS, "gathers.tex").only.compile(**sizes)
    extent, b, a, idx = np.zeros(9, "f4"), np.zeros(70_000, "f4"), np.ones((4, 9), "f4"), np.zeros(70_000, "i4")
    compiled(extent, b, a, idx)
    assert (b == 2).all()
    for wrong, value in ((3, 4), (-2, -1), (2**31 - 2, 2**31 - 1)):
        idx[40_000:] = wrong  # in many parts of the launch: the first one of them is told
        idx[60_000:] = 5
        with pytest.raises(texpr.TExprError, match="subscript 1 of A is") as caught:
            compiled(extent, b, a, idx)
        assert f"subscript 1 of A is {value}, and the dimension has 4 elements" in str(caught.value)
        assert caught.value.diagnostics[0].witness["line"] == 3
    idx[:] = 0
    compiled(extent, b, a, idx)


@pytest.mark.gxx
def test_the_checked_target_tells_value_and_extent_too() -> None:
    compiled = texpr.parse(GATHERS).only.compile("cuda-host:sm_90a", N=8, M=9)
    with pytest.raises(texpr.TExprError, match="is 6, the dimension has 4 elements"):
        compiled(np.zeros(9, "f4"), np.zeros(8, "f4"), np.ones((4, 9), "f4"), np.full(8, 5, "i4"))


def test_types_of_the_language_print_as_they_are_written() -> None:
    assert "f32" in repr(f32["N"])
    assert "i32" in repr(i32)
