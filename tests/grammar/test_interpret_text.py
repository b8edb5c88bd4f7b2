"""Programs from text: what only the checker makes of them, refusals that exact mode replays, and special cases."""

import tomllib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from texpr.grammar.ast import Role
from texpr.grammar.check.bind import bind_sizes
from texpr.grammar.check.stage import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.loops import is_axis
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.numerics import storage
from texpr.grammar.text.parser import parse_text

REFUSED = Path(__file__).parent.parent / "kernels" / "refused"


def kernel_of(text, **more):
    (kernel,) = check(parse_text(text), **more)
    return kernel


def both(text, **arrays):
    """The outputs of fast mode, after exact mode has found nothing and agreed."""
    sizes = arrays.pop("sizes", None)
    kernel = kernel_of(text)
    fast = interpret(kernel, arrays, sizes=sizes).outputs
    exact = interpret(kernel, arrays, mode="exact", sizes=sizes, seed=5).outputs
    for name, values in fast.items():
        assert np.array_equal(values, exact[name], equal_nan=True), name
    return fast


def f32(*values):
    return np.asarray(values, dtype=np.float32)


def refusals():
    table = tomllib.loads((REFUSED / "cases.toml").read_text(encoding="utf-8"))
    return [
        pytest.param(name, case, id=name)
        for name, case in table.items()
        if set(case["codes"]) <= {"E0301", "E0302", "E0303", "E0304", "E0305"}
    ]


@pytest.mark.parametrize(("name", "case"), refusals())
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exact_mode_finds_why_a_program_is_refused(name, case, seed):
    kernel = bind_sizes(kernel_of((REFUSED / f"{name}.tex").read_text(encoding="utf-8")), case["sizes"])
    arrays = {}
    for buffer in kernel.params:
        shape = tuple(int(index_value(n, {})) for n in buffer.shape)
        value = np.zeros(shape, dtype=storage(buffer.dtype))
        arrays[buffer.name] = value if buffer.role is Role.PARAM else value.item()
    found = interpret(kernel, arrays, mode="exact", collect=True, seed=seed).violations
    assert {d.code for d in found} >= set(case["codes"])
    with pytest.raises(TExprError) as caught:
        interpret(kernel, arrays, mode="exact", seed=seed)
    assert caught.value.diagnostics[0].code in case["codes"]


def test_a_race_marks_both_places_in_the_text():
    kernel = kernel_of("kernel f(A: f32[N]) {\n    par N - 1 i {\n        A[i] = A[i + 1]\n    }\n}\n")
    assert interpret(kernel, {"A": f32(1, 2)}, mode="exact").outputs["A"].tolist() == [2, 2]
    with pytest.raises(TExprError) as caught:
        interpret(kernel, {"A": f32(1, 2, 3)}, mode="exact")
    (race,) = caught.value.diagnostics
    marked = {label.span.text for label in (race.primary, *race.secondary)}
    assert "A[i + 1]" in marked and len(marked) == 2


def test_functions_views_and_lets_are_inlined():
    text = """
    fn dot(a: f32[n], b: f32[n]) {
        return sum n k { a[k] * b[k] }
    }
    kernel f(A: f32[M, K], B: f32[K], C: f32[M]) {
        par M i {
            let row = A[i, 0:K]
            let twice = dot(row, B[0:K]) * 2.0
            C[i] = twice
        }
    }
    """
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), f32(1, 2, 3, 4)
    assert np.array_equal(both(text, A=a, B=b, C=np.zeros(3, np.float32))["C"], 2 * a @ b)


def test_a_reference_body_is_what_a_hardware_call_means():
    text = """
    fn twice(in a: f32[4], out b: f32[4]) reference { par 4 i { b[i] = 2.0 * a[i] } } {
        fully par 4 |lane| #block { reg r: f32 = a[lane]; asm("add.f32 %0, %0, %0;", inout: r); b[lane] = r }
    }
    kernel f(A: f32[4], B: f32[4]) { twice(A, B) }
    """
    assert both(text, A=f32(1, 2, 3, 4), B=np.zeros(4, np.float32))["B"].tolist() == [2, 4, 6, 8]


def test_eight_bit_floats_saturate_when_they_are_bound_and_accumulated():
    text = "kernel f(A: f32[N], C: f8e4m3[N], S: f8e4m3[1]) { par N i { C[i] = A[i]; S[0] += A[i] } }"
    e4m3 = ml_dtypes.float8_e4m3fn
    out = interpret(
        kernel_of(text), {"A": f32(1000, -1000, 0.3), "C": np.zeros(3, e4m3), "S": np.zeros(1, e4m3)}, mode="exact"
    ).outputs
    assert out["C"].astype(np.float32).tolist() == [448, -448, 0.3125]


def test_narrow_integers_wrap_when_they_are_bound():
    text = "kernel f(A: u8[N], B: u8[N], C: u8[N], D: i8[N]) { par N i { C[i] = A[i] * B[i]; D[i] += i8(A[i]) } }"
    a, b = np.asarray([200, 3], np.uint8), np.asarray([2, 5], np.uint8)
    out = both(text, A=a, B=b, C=np.zeros(2, np.uint8), D=np.asarray([100, 100], np.int8))
    assert out["C"].tolist() == [144, 15]
    assert out["D"].tolist() == [44, 103]


def test_and_and_or_are_lazy():
    text = "kernel f(A: f32[N], C: f32[N]) { par N i { C[i] = select(i > 0 and A[max(i, 1) - 1] > 0.0, 1.0, 2.0) } }"
    assert both(text, A=f32(1, -1, 1), C=np.zeros(3, np.float32))["C"].tolist() == [2, 1, 2]


def test_sizes_come_from_linear_extents_and_constants_from_the_file():
    text = """
    kernel f(A: f32[2 * N + 1], C: f32[BM]) {
        size BM = 4
        par BM i { C[i] = A[min(i, 2 * N)] }
    }
    """
    kernel = kernel_of(text)
    out = interpret(kernel, {"A": f32(1, 2, 3, 4, 5), "C": np.zeros(4, np.float32)})
    assert out.sizes["N"] == 2 and out.outputs["C"].tolist() == [1, 2, 3, 4]
    with pytest.raises(TExprError, match="E0601"):
        interpret(kernel, {"A": f32(1, 2, 3), "C": np.zeros(3, np.float32)})


def test_a_fold_with_locals_of_its_own_is_the_loop_it_was():
    text = """
    kernel f(A: f32[M, K], C: f32[M]) {
        par M i {
            C[i] = 0.0
            seq K k {
                let x = A[i, k]
                C[i] += x * x
            }
        }
    }
    """
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert both(text, A=a, C=np.zeros(2, np.float32))["C"].tolist() == (a * a).sum(axis=1).tolist()


def test_an_expression_as_deep_as_the_reader_allows_is_interpreted():
    text = "kernel f(C: f32[1]) { par 1 i { C[i] = " + " + ".join(["1.0"] * 100) + " } }"
    assert both(text, C=np.zeros(1, np.float32))["C"].tolist() == [100]


UNDECIDED = """
kernel f(A: f32[N], B: i32[N], X: i32[N], C: f32[N], D: i32[N], H: f32[N]) {
    par N i {
        let third = A[i] / 3.0
        D[i] = i32(third * 3.0)
        if third * 3.0 < 2.0 { C[i] = 1.0 } else { B[i] = 7 }
        H[X[i]] += select(third > 10.0, 1.0, 2.0)
    }
}
"""


def test_what_hangs_on_a_decision_within_its_bound_is_undecided():
    text = UNDECIDED.replace("H[X[i]] +=", "atomic H[X[i]] +=")
    arrays = {
        "A": f32(2.0, 5.5, np.nextafter(np.float32(30.0), np.float32(0.0))),
        "B": np.zeros(3, np.int32),
        "X": np.asarray([0, 0, 2], np.int32),
        "C": np.zeros(3, np.float32),
        "D": np.zeros(3, np.int32),
        "H": np.zeros(3, np.float32),
    }
    wide = interpret(kernel_of(text), arrays, float64=True)
    assert wide.undecided["D"].tolist() == [True, False, True]
    assert wide.undecided["C"].tolist() == wide.undecided["B"].tolist() == [True, False, False]
    assert wide.outputs["B"].tolist()[1:] == [7, 7]
    assert wide.undecided["H"].tolist() == [False, False, True]
    assert np.isinf(wide.bounds["C"][0]) and wide.bounds["H"][0] < 1e-6


def test_an_undecided_subscript_taints_what_it_may_have_written():
    text = """
    kernel f(A: f32[N], H: f32[N], C: f32[N]) {
        par N i {
            atomic H[i32(A[i] / 3.0 * 3.0)] += 1.0
            C[i] = A[i32(A[i] / 3.0 * 3.0)]
        }
    }
    """
    wide = interpret(kernel_of(text), {"A": f32(1.0, 0.5), "H": f32(0, 0), "C": f32(0, 0)}, float64=True)
    assert wide.undecided["H"].all()
    assert wide.undecided["C"].tolist() == [True, False]


def test_exact_mode_with_float64_watches_and_gives_bounds():
    text = "kernel f(A: f32[N], C: f32[N]) { par N i { C[i] = A[i] / 3.0 } }"
    out = interpret(kernel_of(text), {"A": f32(1.0), "C": f32(0)}, mode="exact", float64=True)
    assert out.outputs["C"][0] == 1 / 3
    assert abs(np.float32(1) / np.float32(3) - 1 / 3) <= out.bounds["C"][0] < 1e-7


def test_an_attribute_that_trades_accuracy_widens_the_bound():
    text = "kernel f(A: f32[N], C: f32[N]) { par N i { C[i] = 0.0; C[i] += A[i] * A[i] } }"
    fast = "kernel f(A: f32[N], C: f32[N]) { par N i { C[i] = 0.0; C[i] += A[i] * A[i] #tf32 } }"
    precise, loose = (
        interpret(kernel_of(t), {"A": f32(1.5), "C": f32(0)}, float64=True).bounds["C"][0] for t in (text, fast)
    )
    assert loose > 1e-3 > 1e-6 > precise


def test_a_local_that_no_machine_holds_is_refused():
    kernel = kernel_of("kernel f(C: f32[1]) { new t: f32[N, N]; par N i { t[i, 0] = 1.0 }; C[0] = t[0, 0] }")
    for mode in ("fast", "exact"):
        with pytest.raises(TExprError, match="E0403"):
            interpret(kernel, {"C": f32(0)}, sizes={"N": 10**9}, mode=mode)


def test_iterations_with_large_locals_are_run_in_pieces():
    text = """
    kernel f(C: f32[N]) {
        par N i {
            new t: f32[100, 100]
            par 100 p, 100 q { t[p, q] = f32(p) }
            C[i] = maximum 100 p { t[p, i % 100] }
        }
    }
    """
    out = interpret(kernel_of(text), {"C": np.zeros(1500, np.float32)}, float64=True).outputs["C"]
    assert np.array_equal(out, np.full(1500, 99.0))


@pytest.mark.parametrize(
    ("body", "axis"),
    [
        ("B[i] = A[i]", True),
        ("B[i] = 1.0; B[i] += A[i]; A[i] = B[i]", True),
        ("B[i] = B[i - 1]", False),
        ("B[i] = A[i]; A[N - 1 - i] = 0.0", False),
        ("B[0] += A[i]", True),
        ("B[0] += A[i]; A[i] = B[0]", False),
        ("B[0] += A[i]; B[1] max= A[i]", False),
        ("B[0] = A[i]", False),
        ("let x = A[i]; B[0] += x", True),
        ("seq N k #ordered { B[k] += A[i] }", False),
        ("seq N k #ordered { B[i] += A[k] }", True),
    ],
)
def test_a_seq_is_an_axis_only_where_its_iterations_may_be_interleaved(body, axis):
    extent = "1..N" if "i - 1" in body else "N"
    text = f"kernel f(A: f32[N], B: f32[N]) {{ seq {extent} i {{ {body} }} }}"
    kernel = kernel_of(text)
    assert is_axis(kernel.body[0]) is axis
    both(text, A=np.arange(1, 6, dtype=np.float32), B=np.arange(5, dtype=np.float32))


def test_collecting_keeps_one_diagnostic_per_pair_of_places():
    text = "kernel f(A: f32[N], B: f32[N]) { par N i { B[0] = A[i + 1]; B[0] = 1.0 } }"
    found = interpret(
        kernel_of(text), {"A": np.zeros(9, np.float32), "B": np.zeros(9, np.float32)}, mode="exact", collect=True
    )
    assert sorted(d.code for d in found.violations) == ["E0301", "E0301", "E0302"]
