"""Stages: what a loop reads is copied so many iterations ahead, and read from slots of the thread that copied it."""

from dataclasses import replace

import numpy as np
import pytest
from emitted import Emitted
from stages import mapped, only_launch, with_launch

from texpr.codegen.host_run import HostModule
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.index.expr import constant_value
from texpr.grammar.interpret.stage import interpret
from texpr.polyhedral.mapped.program import MappedProgram
from texpr.polyhedral.mapped.show import show
from texpr.polyhedral.mapped.sync import WaitGroup
from texpr.polyhedral.mapped.tree import Loop, Node
from texpr.polyhedral.mapped.walks import map_nodes
from texpr.polyhedral.simulate.stage import simulate

HEAD = "kernel k(X: f32[M, N], Z: f32[M, N], Y: f32[N]) "
FOLD = HEAD + "{{ par N j {{ new s: f32; s = 0.0; seq M i #stages({}) {{ {} }} Y[j] = s }} }}"
BODIES = {
    "a read": "s = s * 0.5 + X[i, j]",
    "two, one of them twice": "s += X[i, j] * Z[i, j]; s = s * 0.5 + X[i, j]",
    "a neighbour's": "s = s * 0.5 + X[i, (j + 1) % N]",
    "under a condition": "if i % 2 == 0 { s = s * 0.5 + X[i, j] } else { s += Z[i, j] }",
    "an arm that may be outside": "s += select(i > 0, X[i - 1, j], 0.0) * Z[i, j]",
    "what does not move": "s = s * X[0, j] + Z[i, j]",
}
BLOCKS = """kernel k(X: f32[M, 8], Y: f32[M, 8]) { par M i {
    new t: f32[8]
    par 8 a { t[a] = X[i, a] }
    par 8 b { new s: f32; s = 0.0; seq M k #stages(3) { s = s * 0.5 + X[k, b] * t[7 - b] } Y[i, b] = s }
} }"""
AROUND = """kernel k(X: f32[M, 8], Y: f32[M, 8]) { par M i {
    new t: f32[8]
    par 8 a { t[a] = 0.0 }
    seq M k #stages(3) { par 8 b { Y[i, b] = t[7 - b] + X[k, b] }; par 8 c { t[c] = Y[i, c] } }
} }"""
TRIANGLE = """kernel k(X: f32[N, N], Y: f32[N]) { par N j {
    new s: f32; s = 0.0; seq j i #stages(4) { s = s * 0.5 + X[i, j] } Y[j] = s
} }"""
RUNS = """kernel k(X: f32[M, 128], Y: f32[128]) { par 128 j {
    new s: f32; s = 0.0; seq M i #stages(4) { s = s * 0.5 + X[i, j] } Y[j] = s
} }"""
PRODUCT = """kernel k(A: {0}[{1}, {1}], B: {0}[{1}, {1}], C: f32[{1}, {1}]) {{
    par {1} i, {1} j {{ C[i, j] = sum {1} k #stages({2}) {{ f32(A[i, k]) * f32(B[k, j]) }} }}
}}"""
TILED = FOLD.replace("#stages({})", "#stages({}) #tile(2)")


def difference(program: MappedProgram) -> float:
    random = np.random.default_rng(1)
    arrays = {
        b.name: random.integers(-3, 4, tuple(constant_value(n) or 0 for n in b.shape)).astype(np.float32)
        for b in program.kernel.params
    }
    expected = interpret(program.kernel, arrays).outputs["Y"]
    return float(np.abs(simulate(program, arrays)["Y"] - expected).max(initial=0.0))


def staged(text: str, **sizes: int) -> MappedProgram:
    program = mapped(text, **sizes)
    assert "(cp_async)" in show(program)
    return program


def test_copies_run_ahead_of_the_loop_by_one_stage_less_than_there_are() -> None:
    text = show(staged(FOLD.format(3, BODIES["a read"]), M=37, N=45))
    assert "for i_first < 2  (unrolled)" in text
    assert "copy X_stage[i_ahead_1 % 3, thread] = from X[i_ahead_1, j]  (cp_async)" in text
    assert "wait (cp_async, all but 2, done)" in text
    assert "from s, X_stage[i % 3, thread]" in text
    assert "X_stage: f32[3, 64]  shared" in text


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_a_loop_in_stages_computes_what_it_did(body: str, rows: int) -> None:
    assert difference(staged(FOLD.format(3, BODIES[body]), M=rows, N=5)) == 0


@pytest.mark.parametrize("text", [BLOCKS, AROUND, RUNS, TILED.format(5, BODIES["a read"])])
def test_stages_stand_in_blocks_and_tiles_and_around_bands(text: str) -> None:
    sizes = {"M": 6, "N": 5} if "N" in text else {"M": 6}
    assert difference(staged(text, **sizes)) == 0


def test_a_loop_whose_length_another_index_tells_has_stages() -> None:
    assert difference(staged(TRIANGLE, N=7)) == 0


def test_what_is_read_before_it_has_come_is_found() -> None:
    program = staged(FOLD.format(3, BODIES["a read"]), M=7, N=5)
    launch = only_launch(program)

    def early(node: Node) -> Node:
        if isinstance(node, Loop):
            return replace(node, body=tuple(n for n in node.body if not isinstance(n, WaitGroup)))
        return node

    wrong = with_launch(program, replace(launch, body=map_nodes(launch.body, early)))
    values = {name: np.ones((7, 5), np.float32) for name in "XZ"} | {"Y": np.zeros(5, np.float32)}
    expected = interpret(program.kernel, values).outputs["Y"]
    found = []
    for seed in range(4):
        try:
            found.append(bool((simulate(wrong, values, seed=seed)["Y"] != expected).any()))
        except TExprError:
            found.append(True)
    assert any(found)


@pytest.mark.gxx
def test_the_text_of_stages_is_right_on_the_cpu() -> None:
    program = staged(FOLD.format(3, BODIES["two, one of them twice"]), M=7, N=45)
    random = np.random.default_rng(2)
    values = {name: random.integers(-3, 4, (7, 45)).astype(np.float32) for name in "XZ"} | {
        "Y": np.zeros(45, np.float32)
    }
    expected = interpret(program.kernel, values).outputs["Y"]
    emitted = Emitted(program)
    assert emitted.run(HostModule(emitted.source, werror=True), values) is None
    np.testing.assert_array_equal(values["Y"], expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("par 64 i { C[i] = sum 4096 k #stages(3) { A[i, k] } }", "threads share its iterations out"),
        ("par 64 i { seq 4096 k #stages(3) { C[i] = C[i] * 0.5 + 1.0 } }", "no iteration surely reads"),
        ("par 64 i { seq 4096 k #stages(3) #unroll { C[i] = C[i] * 0.5 + A[i, k] } }", "the loop is written out"),
        ("par 64 i { seq 4096 k #stages(2) { C[i] = C[i] * 0.5 + f32(H[i, k]) } }", "no iteration surely reads"),
        (
            "par 64 i { if A[i, 0] > 0.0 { seq 4096 k #stages(3) { C[i] = C[i] * 0.5 + A[i, k] } } }",
            "data says whether",
        ),
        ("seq 64 k #stages(3) { par 64 i { C[i] = A[i, k] }; par 64 i { D[i] = C[63 - i] } }", "a loop of launches"),
    ],
)
def test_a_loop_that_no_thread_can_copy_ahead_for_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(TExprError, match=why) as refusal:
        mapped("kernel k(A: f32[64, 4096], H: bf16[64, 4096], C: f32[64], D: f32[64]) { D[0] = 0.0; " + text + " }")
    assert {d.code for d in refusal.value.diagnostics} == {"E0402"}


def test_products_have_the_stages_of_their_tiles() -> None:
    assert "A_tile[" in show(mapped(PRODUCT.format("f32", 256, 2)))
    with pytest.raises(TExprError, match="the tiles of the contraction have 2 stages"):
        mapped(PRODUCT.format("f32", 256, 3))
    assert "stages=3" in str(mapped(PRODUCT.format("bf16", 1024, 3), "cuda:sm_80").candidate)
    assert "pipe ring: 3 stages" in show(mapped(PRODUCT.format("bf16", 1024, 3)))
    with pytest.raises(TExprError, match="the pipe of the tiles has room for"):
        mapped(PRODUCT.format("bf16", 1024, 16))
