# ruff: noqa: B007, E741, F821, F841, N803
"""The table "From Python": each row gives the tree that the text front end gives."""

import linecache
import math
import subprocess
import sys
import threading
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import texpr.grammar
import texpr.language as tx
from texpr.grammar import syntax
from texpr.grammar.check import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.parser import parse_text
from texpr.grammar.python import parse_function
from texpr.grammar.words import FUNCTION_NAMES, TYPE_NAMES
from texpr.language import (
    anchor,
    asm,
    atomic,
    attr,
    bf16,
    exp,
    f16,
    f32,
    fragment,
    fully_par,
    i8,
    i32,
    inout,
    inp,
    new,
    out,
    par,
    prod,
    reg,
    relu,
    select,
    seq,
    std,
    type_parameter,
)

BM = 64
EPS = 1e-6
LOW = -3
FLAG = True
NUMPY_HALF = np.float32(0.5)
NUMPY_SEVEN = np.int64(7)
T = type_parameter("T")
N_ALSO_A_SIZE = 12
Matrix = f16["M", "K"]


def as_fn(function: FunctionType) -> SimpleNamespace:
    """What texpr.fn makes, as far as the front end looks."""
    return SimpleNamespace(__texpr_fn__=function)


def same(function: object, text: str, **options: Any) -> None:
    """The function and the text are one tree, and print alike."""
    from texpr.grammar.printer import print_module

    made, read = parse_function(function, **options), parse_text(text, name=getattr(function, "__name__", "main"))
    assert print_module(made) == print_module(read)
    assert made == read


def refusal(function: object, **options: Any) -> TExprError:
    with pytest.raises(TExprError) as failure:
        parse_function(function, **options)
    return failure.value


def from_text(text: str, name: str, **names: object) -> Any:
    """A function defined by a text that linecache keeps, as it keeps a notebook's cell."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, object] = {**vars(tx), **names}
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


# ---- the table -------------------------------------------------------------------------------------------------


def test_the_page_s_first_kernel_is_the_same_in_both_languages() -> None:
    def matmul(A: f16["M", "K"], B: f16["K", "N"], C: f32["M", "N"]):
        for i, j in par("M", "N"):
            for k in seq("K"):
                C[i, j] += A[i, k] * B[k, j]

    same(
        matmul,
        "kernel matmul(A: f16[M, K], B: f16[K, N], C: f32[M, N]) "
        "{ par M i, N j { seq K k { C[i, j] += A[i, k] * B[k, j] } } }",
    )


def test_a_band_takes_strings_bare_expressions_and_attributes() -> None:
    def f(C: f32["M", "N"]):
        for i, j in par("M", N - 2, "#tile(64, 64)"):
            C[i, j] = 0.0
        for i in par("ceildiv(M, 128)", "#tile(block: 128, 128, warp: 64, 32)", "#grid"):
            C[i, 0] = 0.0
        for i in par(128):
            C[i, 0] = 0.0

    same(
        f,
        "kernel f(C: f32[M, N]) { par M i, N - 2 j #tile(64, 64) { C[i, j] = 0.0 }\n"
        "par ceildiv(M, 128) i #tile(block: 128, 128, warp: 64, 32) #grid { C[i, 0] = 0.0 }\n"
        "par 128 i { C[i, 0] = 0.0 } }",
    )


def test_ranges_have_two_sides() -> None:
    def f(C: f32["N"]):
        for i in par(range(1, N - 1)):
            for k in seq("1..N - 1", "#ordered"):
                C[i] += 1.0
        for i in par(range(N)):
            C[i] = 0.0

    same(
        f,
        "kernel f(C: f32[N]) { par 1..N - 1 i { seq 1..N - 1 k #ordered { C[i] += 1.0 } } par N i { C[i] = 0.0 } }",
    )


def test_fully_par_asm_reg_fragment_and_anchor_have_their_forms() -> None:
    def f(A: f16[16, 16], C: f32[16, 8]):
        for lane in fully_par(32, "#align(32) #block"):
            ra = reg(f16[8], fragment(A, mma16816.a, lane))
            rc = reg(fragment(C, mma16816.c, lane))
            asm("mma.sync {%0}, {%1};", inout=(rc,), in_=(ra, rc), out=ra, clobber="memory")
            fragment[C, mma16816.c, lane] = rc
            anchor(rc[0])

    same(
        f,
        "kernel f(A: f16[16, 16], C: f32[16, 8]) { fully par 32 lane #align(32) #block {\n"
        "reg ra: f16[8] = fragment(A, mma16816.a, lane)\nreg rc = fragment(C, mma16816.c, lane)\n"
        'asm("mma.sync {%0}, {%1};", inout: rc, in: ra, rc, out: ra, clobber: "memory")\n'
        "fragment(C, mma16816.c, lane) = rc\nanchor rc[0] } }",
    )


def test_new_has_a_type_a_memory_and_attributes() -> None:
    def f(A: f32["N"]):
        t = new(f16[128, 64], "shared", "#strides(72, 1)")
        u = new(f16["N", BM, "#align(32)"])
        s = new(f32)
        flat = new(16)
        s = 0.0
        s += A[0]
        A[0] = s

    same(
        f,
        "kernel f(A: f32[N]) { new shared t: f16[128, 64] #strides(72, 1)\nnew u: f16[N, 64] #align(32)\nnew s: f32\n"
        "new flat 16\ns = 0.0\ns += A[0]\nA[0] = s }",
    )


def test_an_assignment_is_a_let_for_a_new_name_and_a_bind_for_a_buffer() -> None:
    def f(A: f32["N"], total: inout(f32)):
        for i in par("N"):
            x = A[i] * 2.0
            tile = A[i:16]
            y = reg(f32, x)
            y = max(y, x)
            total = y
            total += x

    same(
        f,
        "kernel f(A: f32[N], inout total: f32) { par N i { let x = A[i] * 2.0; let tile = A[i:16]; reg y: f32 = x\n"
        "y = max(y, x)\ntotal = y\ntotal += x } }",
    )


def test_the_same_name_is_a_let_in_each_of_two_blocks() -> None:
    def f(A: f32["N"]):
        for i in par("N"):
            if i > 0:
                x = 1.0
                A[i] = x
            else:
                x = 2.0
                A[i] = x

    same(
        f,
        "kernel f(A: f32[N]) { par N i { if i > 0 { let x = 1.0; A[i] = x } else { let x = 2.0; A[i] = x } } }",
    )


def test_atomic_and_attr_reach_the_assignments_of_their_blocks() -> None:
    def f(H: i32["B"], C: f32["N"]):
        for i in par("N"):
            with atomic:
                H[i % 4] += 1
                H[0] = max(H[0], i32(i))
            with attr("#tf32"):
                C[i] += 1.0
            with attr("#unique"), atomic:
                C[i] = min(2.0, C[i])
            with attr("#strict #fast"):
                for k in seq(4):
                    C[i] += f32(k)

    same(
        f,
        "kernel f(H: i32[B], C: f32[N]) { par N i { atomic H[i % 4] += 1; atomic H[0] max= i32(i)\nC[i] += 1.0 #tf32\n"
        "atomic C[i] min= 2.0 #unique\nseq 4 k { C[i] += f32(k) #strict #fast } } }",
    )


def test_reductions_are_generators() -> None:
    def f(A: f32["M", "K"], C: f32["M"]):
        for i in par("M"):
            C[i] = sum(A[i, k] for k in seq("K"))
            C[i] = prod(A[i, k] for k in seq(K, "#ordered"))
            C[i] = max(A[i, k] for k in seq(range(1, K))) - min(A[k, l] for k, l in seq("M", "K"))

    same(
        f,
        "kernel f(A: f32[M, K], C: f32[M]) { par M i { C[i] = sum K k { A[i, k] }\n"
        "C[i] = prod K k #ordered { A[i, k] }; C[i] = maximum 1..K k { A[i, k] } - minimum M k, K l { A[k, l] } } }",
    )


def test_parameters_take_directions_attributes_and_scalars() -> None:
    def f(
        A: inp(f16["M", "K"], "#strides(1, M)"), B: out(f32["M + 1"]), C: inout(bf16["2 * K"], "#align(32)"), alpha: f32
    ):
        B[0] = alpha

    same(
        f,
        "kernel f(in A: f16[M, K] #strides(1, M), out B: f32[M + 1], inout C: bf16[2 * K] #align(32), alpha: f32) "
        "{ B[0] = alpha }",
    )


def test_the_decorator_s_strings_are_attributes_and_facts_of_the_kernel() -> None:
    def f(A: f32["N"]):
        A[0] = 1.0

    same(
        f,
        "kernel f(A: f32[N]) where N % 8 == 0, N <= 65536 #persistent #threads(256) { A[0] = 1.0 }",
        attrs=("#persistent", "#threads(256)"),
        where="N % 8 == 0, N <= 65536",
    )


def test_conditions_and_choices() -> None:
    def f(A: f32["N"]):
        for i in par("N"):
            if i < 4 and not (i == 2 or i >= N - 1):
                A[i] = 1.0 if A[i] > 0.0 else -1.0
            elif i != 5:
                A[i] = select(i > 0, A[i - 1], 0.0)
            else:
                if True:
                    A[i] = 2.0

    same(
        f,
        "kernel f(A: f32[N]) { par N i { if i < 4 and not (i == 2 or i >= N - 1) "
        "{ A[i] = select(A[i] > 0.0, 1.0, -1.0) } else if i != 5 { A[i] = select(i > 0, A[i - 1], 0.0) } "
        "else { if true { A[i] = 2.0 } } } }",
    )


def test_operators_become_functions_where_texpr_has_no_sign() -> None:
    def f(A: f32["N"], B: i32["N"]):
        for i in par("N"):
            A[i] = A[i] ** 2 + exp(-A[i]) / 3
            B[i] = (B[i] & 1) | (B[i] ^ 3) | (B[i] << 2) | (B[i] >> 1)
            B[i] = B[i // 2] // 2 % 5
            A[i] = +A[i] + f32(B[i]) + abs(A[i]) + round(A[i]) + pow(A[i], 2)

    same(
        f,
        "kernel f(A: f32[N], B: i32[N]) { par N i { A[i] = pow(A[i], 2) + exp(-A[i]) / 3\n"
        "B[i] = bitor(bitor(bitor(bitand(B[i], 1), bitxor(B[i], 3)), shl(B[i], 2)), shr(B[i], 1))\n"
        "B[i] = B[i / 2] / 2 % 5; A[i] = A[i] + f32(B[i]) + abs(A[i]) + round(A[i]) + pow(A[i], 2) } }",
    )


def test_slices_are_start_and_extent() -> None:
    def f(A: f32["M", "N"]):
        tile = A[0:16, 8:8]
        A[0:16, 0] = tile[0:16, 0]

    same(f, "kernel f(A: f32[M, N]) { let tile = A[0:16, 8:8]; A[0:16, 0] = tile[0:16, 0] }")


def test_a_gather_is_a_subscript_that_reads() -> None:
    def f(A: f32["N"], idx: i32["M"], C: f32["M"]):
        for i in par("M"):
            C[i] = A[idx[i] + 1]

    same(f, "kernel f(A: f32[N], idx: i32[M], C: f32[M]) { par M i { C[i] = A[idx[i] + 1] } }")


def test_comments_and_the_docstring_are_trivia_as_in_a_text() -> None:
    def f(A: f32["N"]):
        """What it does.

        And how.
        """
        # why
        for i in par("N"):  # the loop
            x = A[i]  # the element
            if i > 0:
                A[i] = x  # kept

                # nothing more

            # the other half
            else:
                pass  # empty
            A[i] = (
                1.0  # one
                + 2.0
            )
            # the end
        # last

    same(
        f,
        """-- What it does.
--
-- And how.
kernel f(A: f32[N]) {
    -- why
    par N i {
        -- the loop
        let x = A[i] -- the element
        if i > 0 {
            A[i] = x -- kept

            -- nothing more
        } else {
            -- the other half

            -- empty
        }
        -- one
        A[i] = 1.0 + 2.0
        -- the end
    }
    -- last
}
""",
    )


def test_pass_leaves_nothing() -> None:
    def f(A: f32["N"]):
        pass

    same(f, "kernel f(A: f32[N]) { }")


# ---- names of the enclosing scope ------------------------------------------------------------------------------


def test_numbers_of_the_enclosing_scope_become_literals() -> None:
    local = 16

    def f(A: f32["N", local]):
        for i in par(BM):
            A[i, 0] = EPS * NUMPY_HALF + local + NUMPY_SEVEN + LOW + math.pi
            if FLAG:
                A[i, 1] = math.inf - inf

    same(
        f,
        "kernel f(A: f32[N, 16]) { par 64 i { A[i, 0] = 1e-06 * 0.5 + 16 + 7 + -3 + 3.141592653589793\n"
        "if true { A[i, 1] = inf - inf } } }",
    )


def test_an_annotation_may_name_a_local_that_the_body_does_not_use() -> None:
    width = 48

    def f(A: f32[width, "N"]):
        A[0, 0] = 1.0

    same(f, "kernel f(A: f32[48, N]) { A[0, 0] = 1.0 }")


def test_a_size_of_the_annotations_hides_a_number_of_the_file() -> None:
    def f(A: f32["N_ALSO_A_SIZE"]):
        for i in par(N_ALSO_A_SIZE):
            A[i] = 1.0

    same(f, "kernel f(A: f32[N_ALSO_A_SIZE]) { par N_ALSO_A_SIZE i { A[i] = 1.0 } }")


def test_an_annotation_may_be_an_alias_and_a_string() -> None:
    def f(A: Matrix, B: "f16['M', 'K']", C: "inp(f32['N'], '#align(4)')"):
        A[0, 0] = B[0, 0]

    same(f, "kernel f(A: f16[M, K], B: f16[M, K], in C: f32[N] #align(4)) { A[0, 0] = B[0, 0] }")


def test_postponed_annotations_are_read_from_their_text() -> None:
    text = (
        "from __future__ import annotations\n"
        'def f(A: f16["M", K], B: inp(f32[K, SEVEN], "#strides(1, K)"), alpha: f32):\n    A[0, 0] = alpha\n'
    )
    f = from_text(text, "postponed.py", SEVEN=7)
    same(f, "kernel f(A: f16[M, K], in B: f32[K, 7] #strides(1, K), alpha: f32) { A[0, 0] = alpha }")


def test_words_are_found_through_modules_and_other_names() -> None:
    text = "def f(A: tx.f32['N']):\n    for i in tx.par('N'):\n        A[i] = tx.exp(A[i]) + loop(A[i])\n"
    f = from_text(text, "module_names.py", tx=tx, loop=tx.sqrt)
    same(f, "kernel f(A: f32[N]) { par N i { A[i] = exp(A[i]) + sqrt(A[i]) } }")


# ---- functions -------------------------------------------------------------------------------------------------


def test_called_functions_stand_before_their_callers() -> None:
    def square(x: f32) -> f32:
        return x * x

    square_fn = as_fn(square)

    def scaled(a: T["m"], b: out(T["m"]), s: f32):
        for i in par("m"):
            b[i] = square_fn(s) * a[i]

    scaled_fn = as_fn(scaled)

    def f(A: f32["N", 16], B: f32["N", 16]):
        for i in par("N"):
            scaled_fn(A[i, 0:16], B[i, 0:16], square_fn(2.0))

    same(
        f,
        "fn square(x: f32): f32 { return x * x }\n"
        "fn scaled(a: T[m], out b: T[m], s: f32) { par m i { b[i] = square(s) * a[i] } }\n"
        "kernel f(A: f32[N, 16], B: f32[N, 16]) { par N i { scaled(A[i, 0:16], B[i, 0:16], square(2.0)) } }",
    )


def test_a_fn_is_a_module_of_its_own() -> None:
    def square(x: f32) -> f32:
        return x * x

    same(square, "fn square(x: f32): f32 { return x * x }", kind="fn")


def test_a_hardware_function_has_a_reference() -> None:
    def meaning(a: inp(f32[32]), b: out(f32[32])):
        for i in par(32):
            b[i] = a[i]

    def moved(a: inp(f32[32]), b: out(f32[32])):
        asm("mov {%0}, {%1};", out=b, in_=a)

    moved_fn = SimpleNamespace(__texpr_fn__=moved, __texpr_reference__=meaning)

    def f(A: f32[32], B: f32[32]):
        moved_fn(A[0:32], B[0:32])

    function = (
        "fn moved(in a: f32[32], out b: f32[32]) reference { par 32 i { b[i] = a[i] } } "
        '{ asm("mov {%0}, {%1};", out: b, in: a) }\n'
    )
    same(f, function + "kernel f(A: f32[32], B: f32[32]) { moved(A[0:32], B[0:32]) }")
    same(moved, function, kind="fn", reference=meaning)
    assert [d.code for d in refusal(moved, kind="fn", reference=f).diagnostics] == ["E0207"]


def test_a_library_function_is_an_import_and_a_call() -> None:
    def f(A: f16[16, 16], B: f16[16, 8], C: f32[16, 8]):
        std.mma.mma_m16n8k16(A[0:16, 0:16], B[0:16, 0:8], C[0:16, 0:8])

    same(
        f,
        "import std.mma\nkernel f(A: f16[16, 16], B: f16[16, 8], C: f32[16, 8]) "
        "{ mma_m16n8k16(A[0:16, 0:16], B[0:16, 0:8], C[0:16, 0:8]) }",
    )


def test_functions_that_call_each_other_are_read_once() -> None:
    text = (
        "def first(x: f32) -> f32:\n    return second_fn(x)\n\n"
        "def second(x: f32) -> f32:\n    return first_fn(x)\n\n"
        "first_fn, second_fn = as_fn(first), as_fn(second)\n\n"
        "def f(A: f32['N']):\n    A[0] = first_fn(A[0])\n"
    )
    module = parse_function(from_text(text, "mutual.py", as_fn=as_fn))
    assert [item.name for item in module.items if isinstance(item, syntax.FnDef)] == ["second", "first"]


def test_two_functions_of_one_name_are_refused() -> None:
    text = (
        "def g(x: f32) -> f32:\n    return x\n\none = as_fn(g)\n\n"
        "def g(x: f32) -> f32:\n    return -x\n\ntwo = as_fn(g)\n\n"
        "def f(A: f32['N']):\n    A[0] = one(two(A[0]))\n"
    )
    failure = refusal(from_text(text, "equal_names.py", as_fn=as_fn))
    assert [d.code for d in failure.diagnostics] == ["E0202"]


def test_a_long_chain_of_functions_does_not_recurse() -> None:
    lines = ["def g0(x: f32) -> f32:\n    return x\n\nh0 = as_fn(g0)\n\n"]
    lines += [f"def g{k}(x: f32) -> f32:\n    return h{k - 1}(x)\n\nh{k} = as_fn(g{k})\n\n" for k in range(1, 300)]
    lines += ["def f(A: f32['N']):\n    A[0] = h299(A[0])\n"]
    module = parse_function(from_text("".join(lines), "chain.py", as_fn=as_fn))
    assert len(module.items) == 301


# ---- spans and sources -----------------------------------------------------------------------------------------


class Indented:
    def f(A: f32["N"], größer: f32):  # noqa: N805
        pass

    def g(A: f32["N"]):  # noqa: N805
        for i in par("N", "#tile(64"):
            A[i] = "ä" + (A[i] + None)


def test_carets_are_right_in_an_indented_function_after_wide_characters() -> None:
    failure = refusal(Indented.g)
    found = [d.primary.span for d in failure.diagnostics if d.primary is not None]
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    for span, text in zip(found, ("(", '"ä"', "None"), strict=True):
        assert lines[span.line - 1][span.column - 1 :].startswith(text)
        assert span.text == text


def test_the_span_of_a_string_s_part_is_the_part() -> None:
    def f(A: f32["N"]):
        for i in par("N - M"):
            A[i] = 1.0

    kernel = parse_function(f).items[0]
    assert isinstance(kernel, syntax.KernelDef)
    loop = kernel.body.body[0]
    assert isinstance(loop, syntax.Par) and isinstance(loop.dims[0].extent, syntax.Binary)
    assert loop.dims[0].extent.right.span.text == "M"
    assert loop.dims[0].index_span.text == "i"


def test_the_decorator_s_strings_are_blamed_where_they_stand() -> None:
    def decorator(*attrs: str, **options: str) -> Any:
        return lambda function: function

    @decorator("#threads(256) #(", where="N % 8 == ")
    def f(A: f32["N"]):
        A[0] = 1.0

    failure = refusal(f, attrs=("#threads(256) #(",), where="N % 8 == ")
    assert [d.primary.span.text for d in failure.diagnostics if d.primary] == ["(", '"N % 8 == "']


def test_control_characters_are_refused_in_comments_too() -> None:
    f = from_text("def f(A: f32['N']):\n    A[0] = 1.0  # \u202e\n", "controls.py")
    assert [d.code for d in refusal(f).diagnostics] == ["E0104"]


def test_a_function_without_source_is_refused_with_the_way_round() -> None:
    scope: dict[str, Any] = dict(vars(tx))
    exec("def f(A: f32['N']):\n    A[0] = 1.0\n", scope)
    for function in (scope["f"], len, Indented, 3, lambda A: A, np.sin):
        failure = refusal(function)
        assert [d.code for d in failure.diagnostics] == ["E0106"]
        assert failure.diagnostics[0].help


def test_a_file_that_changed_since_import_is_refused() -> None:
    f = from_text("def f(A: f32['N']):\n    A[0] = 1.0\n", "changed.py")
    for text in (
        "def g(A: f32['N']):\n    pass\n",
        "x = 1\n",
        "def f(B: f32['N']):\n    pass\n",
        "def f(:\n",
        "",
    ):
        linecache.cache["changed.py"] = (len(text), None, text.splitlines(keepends=True), "changed.py")
        assert [d.code for d in refusal(f).diagnostics] == ["E0106"]


def test_limits_are_diagnostics() -> None:
    nested = "def f(A: f32['N']):\n    A[0] = " + "(" * 90 + "A[0]" + " + 1)" * 90 + "\n"
    assert parse_function(from_text(nested, "nested.py")).name == "f"
    chain = "def f(A: f32['N']):\n    A[0] = " + " and ".join(["A[0] > 0"] * 200) + "\n"
    assert [d.code for d in refusal(from_text(chain, "chain_and.py")).diagnostics] == ["E0103"]
    long = "def f(A: f32['N']):\n    A[0] = 1.0\n" + "    # long\n" * 120_000 + "    A[0] = 2.0\n"
    assert [d.code for d in refusal(from_text(long, "long.py")).diagnostics] == ["E0103"]
    many = "def f(A: f32['N']):\n" + "    del A\n" * 500
    text = many.replace("del A", "import os")
    assert len(refusal(from_text(text, "many.py")).diagnostics) == 20


def test_a_shallow_stack_is_a_diagnostic_too() -> None:
    text = "def f(A: f32['N']):\n    A[0] = " + "(" * 80 + "A[0]" + " + 1)" * 80 + "\n"
    f = from_text(text, "shallow.py")

    def dive(left: int) -> object:
        if left:
            return dive(left - 1)
        try:
            return parse_function(f)
        except TExprError as failure:
            return failure.diagnostics[0].code

    depth = sys.getrecursionlimit()
    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1  # type: ignore[assignment]
    results = [dive(depth - used - spare) for spare in (60, 120, 400)]
    assert all(result == "E0103" or isinstance(result, syntax.Module) for result in results)
    assert results[0] == "E0103"


def test_threads_read_one_function_at_once() -> None:
    def f(A: f32["N"]):
        for i in par("N", "#tile(64)"):
            A[i] = sum(A[k] for k in seq("N - 1"))

    expected, found = parse_function(f), []
    threads = [threading.Thread(target=lambda: found.append(parse_function(f))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


# ---- the objects of texpr.language -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*tx.__all__, "bool"])
def test_a_word_outside_a_decorated_function_says_where_it_belongs(name: str) -> None:
    word = getattr(tx, name)
    if name in ("inp", "out", "inout", "type_parameter"):
        return
    with pytest.raises(TExprError, match="only inside a decorated function") as failure:
        word(1)
    assert failure.value.diagnostics[0].code == "E0212"


def test_every_function_of_the_language_has_a_name_in_python() -> None:
    builtin = {"abs", "min", "max", "round", "pow"}
    prelude = Path(texpr.grammar.__file__).parent / "std" / "prelude.tex"
    library = [item.name for item in parse_text(prelude.read_text()).items if isinstance(item, syntax.FnDef)]
    assert set(tx.__all__) | builtin >= {*FUNCTION_NAMES, *library}
    assert {name for name in TYPE_NAMES if getattr(tx, name).__texpr_type__[1] == name} == set(TYPE_NAMES)


def test_the_checker_blames_the_line_of_the_python_file() -> None:
    def twice(x: f32) -> f32:
        return x * unknown_factor

    twice_fn = as_fn(twice)

    def f(A: f32["N"]):
        for i in par("N"):
            A[i, 0] = twice_fn(A[i])
            A[i] = 1.0 + missing

    with pytest.raises(TExprError) as failure:
        check(parse_function(f))
    found = {(d.code, d.primary.span.text, d.primary.span.line) for d in failure.value.diagnostics if d.primary}
    first = f.__code__.co_firstlineno
    assert ("E0203", "A[i, 0]", first + 2) in found
    assert ("E0201", "missing", first + 3) in found
    assert all(Path(d.primary.span.source.name) == Path(__file__) for d in failure.value.diagnostics if d.primary)


def test_a_checked_python_kernel_is_the_checked_text() -> None:
    def f(A: f32["M", "K"], s: f32, C: f32["M"]):
        for i in par("M"):
            best = new(f32)
            best = s
            for k in seq("K"):
                best = max(best, A[i, k])
            C[i] = relu(best) / sum(exp(A[i, k] - best) for k in seq("K"))

    text = """kernel f(A: f32[M, K], s: f32, C: f32[M]) { par M i { new best: f32; best = s
        seq K k { best max= A[i, k] }
        C[i] = relu(best) / sum K k { exp(A[i, k] - best) } } }"""
    assert check(parse_function(f)) == check(parse_text(text))


def test_with_atomic_outside_a_decorated_function_says_so() -> None:
    with pytest.raises(TExprError, match="only inside"), atomic:
        pass
    with pytest.raises(TExprError, match="only inside"):
        fragment[0] = 1


def test_malformed_annotations_are_refused_where_they_are_evaluated() -> None:
    for make in (lambda: inp(3), lambda: inp(inp(f32)), lambda: inp(f32, 3), lambda: f32["N"]["M"], lambda: inp()):
        with pytest.raises(TExprError):
            make()


def test_types_show_as_they_are_written() -> None:
    assert repr(inp(f16["M", 8], "#align(4)")) == "in f16[M, 8] #align(4)"
    assert repr(f32) == "f32"
    assert repr(i8["N", "#align(4)"]) == "i8[N] #align(4)"


def test_the_front_end_imports_neither_lark_nor_numpy() -> None:
    code = (
        "import sys, texpr.grammar.python, texpr.language; "
        "print([m for m in ('lark', 'numpy', 'islpy', 'z3') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
