# ruff: noqa: F821, N803 -- kernels are read, not run: sizes stand in strings, tensors have capitals
"""Names of the enclosing scope are numbers, types, words of the language, or functions that come along."""

import math
from types import SimpleNamespace

import numpy as np
from front_end import as_fn, from_text, refusal, same

import texpr.language as tx
from texpr.grammar import syntax
from texpr.grammar.python.function import parse_function
from texpr.language import asm, f16, f32, inp, out, par, std, type_parameter

BM = 64
EPS = 1e-6
LOW = -3
FLAG = True
NUMPY_HALF = np.float32(0.5)
NUMPY_SEVEN = np.int64(7)
T = type_parameter("T")
N_ALSO_A_SIZE = 12
Matrix = f16["M", "K"]


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


def test_a_size_may_have_the_name_of_an_attribute() -> None:
    def f(A: f32["block", "tile"]):
        for i, j in par("block", "threads", "#unroll"):
            A[i, j] = 1.0

    same(f, "kernel f(A: f32[block, tile]) { par block i, threads j #unroll { A[i, j] = 1.0 } }")


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
