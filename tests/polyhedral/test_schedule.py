"""Moves one by one: what comes out, and what is refused with which iterations."""

import pytest
from stages import proved

from texpr.grammar.diagnostics import TExprError
from texpr.grammar.show import show
from texpr.polyhedral.model.stage import build_program
from texpr.polyhedral.moves import (
    Contract,
    Distribute,
    Expand,
    Fuse,
    Interchange,
    Move,
    Parallelize,
    Residues,
    Sink,
    Swap,
)
from texpr.polyhedral.prove.stage import prove
from texpr.polyhedral.schedule.draft import replay
from texpr.polyhedral.schedule.stage import schedule

SOFTMAX = """kernel softmax(X: f32[M, N], Y: f32[M, N]) where N >= 1 {
    new m: f32[M]
    new s: f32[M]
    par M i { m[i] = maximum N k { X[i, k] } }
    par M i { s[i] = sum N k { exp(X[i, k] - m[i]) } }
    par M i, N j { Y[i, j] = exp(X[i, j] - m[i]) / s[i] }
}"""
JACOBI = """kernel jacobi(inout A: f32[N], inout B: f32[N]) where N >= 2 {
    seq T t {
        par N - 2 i { B[i + 1] = A[i] + A[i + 2] }
        par N - 2 j { A[j + 1] = B[j] + B[j + 2] }
    }
}"""


def after(text: str, *moves: Move, **sizes: int) -> str:
    """The body of the program after some moves, which is proved again."""
    found = replay(proved(text, **sizes), moves).proved.program
    prove(build_program(found.kernel))
    return "\n".join(show(found.kernel).splitlines()[1:])


def refused(text: str, *moves: Move, **sizes: int) -> str:
    with pytest.raises(TExprError) as why:
        replay(proved(text, **sizes), moves)
    (diagnostic,) = why.value.diagnostics
    assert diagnostic.code == "E0404"
    return str(diagnostic)


def test_three_bands_of_rows_become_one_launch_with_locals() -> None:
    moves = (
        Fuse(first="i", second="i_1"),
        Fuse(first="i", second="i_2"),
        Contract(buffer="m", loop="i"),
        Contract(buffer="s", loop="i"),
    )
    assert (
        after(SOFTMAX, *moves)
        == """\
  par i: M (band 2)
    new m: f32
    new s: f32
    S0: m = -inf:f32
    seq k: N
      S1: m max= X[i, k]
    S2: s = 0.0:f32
    seq k_1: N
      S3: s add= exp.f32(sub.f32(X[i, k_1], m))
    par j: N (band 1)
      S4: Y[i, j] = div.f32(exp.f32(sub.f32(X[i, j], m)), s)"""
    )
    assert replay(proved(SOFTMAX), moves).told == (
        "fused `par i` (m) and `par i_1` (s) into one launch",
        "fused `par i` (m, s) and `par i_2` (Y) into one launch",
        "made m a local of each iteration of `par i`",
        "made s a local of each iteration of `par i`",
    )


def test_a_chain_through_a_workspace_becomes_one_band_without_it() -> None:
    text = """kernel chain(X: f32[M, N], Y: f32[M, N]) {
        new t: f32[M, N]
        par M i, N j { t[i, j] = exp(X[i, j]) }
        par M i, N j { Y[i, j] = t[i, j] * 2.0 }
    }"""
    moves = Fuse(first="i", second="i_1"), Fuse(first="j", second="j_1"), Contract(buffer="t", loop="j")
    assert (
        after(text, *moves)
        == """\
  par i: M (band 1)
    par j: N (band 1)
      new t: f32
      S0: t = exp.f32(X[i, j])
      S1: Y[i, j] = mul.f32(t, 2.0:f32)"""
    )


def test_a_loop_of_accumulations_is_turned_inside() -> None:
    text = "kernel sums(A: f32[K, N], S: f32[N]) { par N j { S[j] = 0.0 }; seq K k { par N j { S[j] += A[k, j] } } }"
    assert (
        after(text, Interchange(outer="k"), Fuse(first="j", second="j_1"))
        == """\
  par j: N (band 1)
    S0: S[j] = 0.0:f32
    seq k: K
      S1: S[j] add= A[k, j]"""
    )


def test_a_seq_whose_iterations_write_apart_becomes_a_par() -> None:
    text = "kernel f(X: f32[N, 4], Y: f32[N, 4]) { par N i { seq 4 k { Y[i, k] = X[i, k] + 1.0 } } }"
    assert (
        after(text, Parallelize(loop="k"))
        == """\
  par i: N (band 1)
    par k: 4 (band 1)
      S0: Y[i, k] = add.f32(X[i, k], 1.0:f32)"""
    )
    said = refused(text.replace("X[i, k] + 1.0", "Y[i, 3 - k]").replace("Y: ", "inout Y: "), Parallelize(loop="k"))
    assert "with N = 1, S0 at i = 0, k = 3 writes Y and would no longer wait for S0 at i = 0, k = 0" in said
    sums = "kernel f(X: f32[N], inout S: f32[4]) { seq N k { S[k % 4] += X[k] } }"
    assert "updates S and would no longer wait for" in refused(sums, Parallelize(loop="k"))


def test_a_triangle_is_turned_under_a_condition() -> None:
    text = "kernel f(A: f32[N, N], S: f32[N, N]) { seq N k { par k + 1 j { S[k, j] = A[k, j] } } }"
    assert (
        after(text, Interchange(outer="k"))
        == """\
  par j: N (band 1)
    seq k: N
      if j < k + 1
        S0: S[k, j] = A[k, j]"""
    )


def test_shifted_fusion_runs_the_second_loop_later() -> None:
    text = """kernel f(A: f32[N], B: f32[N], C: f32[N]) where N >= 2 {
        seq N i { B[i] = A[i] * 2.0 }
        seq N - 1 j { C[j] = B[j] + B[j + 1] }
    }"""
    assert (
        after(text, Fuse(first="i", second="j", shift=1))
        == """\
  seq i: N
    S0: B[i] = mul.f32(A[i], 2.0:f32)
    if i >= 1
      S1: C[i - 1] = add.f32(B[i - 1], B[i])"""
    )
    assert "with N = 2, S1 at j = 0 reads B and would no longer wait for S0 at i = 1" in refused(
        text, Fuse(first="i", second="j")
    )


def test_loops_of_other_lengths_fuse_under_conditions() -> None:
    text = "kernel f(A: f32[M], B: f32[N]) { par M i { A[i] = 1.0 }; par N j { B[j] = 2.0 } }"
    assert (
        after(text, Fuse(first="i", second="j"))
        == """\
  par i: max(M, N) (band 1)
    if i < M
      S0: A[i] = 1.0:f32
    if i < N
      S1: B[i] = 2.0:f32"""
    )


STRIDED = """kernel strided(X: f32[N], W: f32[K], Y: f32[2 * N + K]) {
    par 2 * N + K i {
        Y[i] = 0.0
        seq K k { if (i + k) % 2 == 0 { if i >= k { if i - k < 2 * N { Y[i] += X[(i - k) / 2] * W[k] } } } }
    }
}"""


def test_a_strided_transposed_convolution_splits_into_phases_without_dead_ones() -> None:
    moves = Residues(loop="i", phases=2), Residues(loop="k", phases=2), Residues(loop="k_1", phases=2)
    assert (
        after(STRIDED, *moves)
        == """\
  par i_q: ceildiv(2 * N + K, 2) (band 1)
    S0: Y[2 * i_q] = 0.0:f32
    seq k_q: ceildiv(K, 2)
      if 2 * i_q >= 2 * k_q
        if 2 * i_q - 2 * k_q < 2 * N
          S1: Y[2 * i_q] add= mul.f32(X[i_q - k_q], W[2 * k_q])
  par i_q_1: ceildiv(2 * N + K - 1, 2) (band 2)
    S0_1: Y[2 * i_q_1 + 1] = 0.0:f32
    seq k_1_q_1: ceildiv(K - 1, 2)
      if 2 * i_q_1 + 1 >= 2 * k_1_q_1 + 1
        if 2 * i_q_1 + 1 - (2 * k_1_q_1 + 1) < 2 * N
          S1_1_1: Y[2 * i_q_1 + 1] add= mul.f32(X[i_q_1 - k_1_q_1], W[2 * k_1_q_1 + 1])"""
    )


def test_phases_of_a_sum_would_add_in_another_order() -> None:
    text = "kernel f(A: f32[N], S: f32[1]) { par 1 i { S[0] = sum N k { A[k] } } }"
    said = refused(text, Residues(loop="k", phases=2))
    assert "with N = 3, S1 at i = 0, k = 2 updates S and would no longer wait for S1 at i = 0, k = 1" in said


def test_a_statement_sinks_into_a_loop_that_has_an_iteration() -> None:
    text = "kernel f(A: f32[M, N], S: f32[M]){} {{ par M i {{ S[i] = 0.0; seq N k {{ S[i] += A[i, k] }} }} }}"
    assert (
        after(text.format(" where N >= 1"), Sink(statement="S0", loop="k"))
        == """\
  par i: M (band 1)
    seq k: N
      if k == 0
        S0: S[i] = 0.0:f32
      S1: S[i] add= A[i, k]"""
    )
    said = refused(text.format(""), Sink(statement="S0", loop="k"))
    assert "with M = 1, N = 0, S0 runs at i = 0, where the loop has no iteration" in said


def test_a_local_is_expanded_so_that_its_loop_can_be_distributed() -> None:
    text = "kernel f(A: f32[N], B: f32[N]) { par N i { let x = A[i] * 2.0; B[i] = x * x } }"
    assert "both parts use x" in refused(text, Distribute(loop="i", before="S1"))
    assert (
        after(text, Expand(buffer="x", loop="i"), Distribute(loop="i", before="S1"))
        == """\
  new x: f32[N]
  par i: N (band 1)
    S0: x[i] = mul.f32(A[i], 2.0:f32)
  par i_1: N (band 2)
    S1: B[i_1] = mul.f32(x[i_1], x[i_1])"""
    )


def test_sweeps_of_jacobi_stay_apart() -> None:
    assert (
        refused(JACOBI, Fuse(first="i", second="j"))
        == """\
error[E0404]: the schedule cannot do this: fuse `par i` (B) and `par j` (A) into one launch
  --> main:4:23
   |
 4 |         par N - 2 j { A[j + 1] = B[j] + B[j + 2] }
   |                       ^^^^^^^^ with N = 4, T = 1, S1 at t = 0, j = 0 writes A and \
would no longer wait for S0 at t = 0, i = 1
  ::: main:3:34
 3 |         par N - 2 i { B[i + 1] = A[i] + A[i + 2] }
   |                                  ---- S0 reads it before
   = help: leave the move out of the mapping"""
    )
    assert "would no longer wait for" in refused(JACOBI, Distribute(loop="t", before="j"))


def test_a_transposed_reader_stays_apart() -> None:
    text = """kernel f(X: f32[N, N], Y: f32[N, N]) {
        new t: f32[N, N]
        par N i, N j { t[i, j] = X[i, j] }
        par N i, N j { Y[i, j] = t[j, i] }
    }"""
    said = refused(text, Fuse(first="i", second="i_1"))
    assert "with N = 2, S1 at i = 0, j = 1 reads t and would no longer wait for S0 at i = 1, j = 0" in said


def test_an_element_of_two_iterations_is_no_local_of_one() -> None:
    text = """kernel f(X: f32[N], Y: f32[N]) {
        new t: f32[N]
        seq N i { t[i] = X[i]; if i >= 1 { Y[i] = t[i - 1] } }
    }"""
    said = refused(text, Contract(buffer="t", loop="i"))
    assert "with N = 2, S1 at i = 1 and S0 at i = 0 both use one element of t" in said


@pytest.mark.parametrize(
    ("text", "move", "why"),
    [
        ("par N i { A[i] = 1.0 }", Fuse(first="i", second="q"), "there is no loop 'q' to move"),
        ("par N i { A[i] = 1.0 }", Interchange(outer="i"), "`i` does not hold one loop alone"),
        ("par N i #grid { seq 3 k { A[i] = 1.0 } }", Interchange(outer="i"), "`#grid` says how `i` runs"),
        (
            "par N i { A[i] = 1.0 }; par N j #grid { B[j] = A[j] }",
            Fuse(first="i", second="j"),
            "loops with different attributes do not become one",
        ),
        (
            "par N i { A[i] = 1.0 }; seq N j { B[j] = A[j] }",
            Fuse(first="i", second="j"),
            "a `par` and a `seq` do not become one loop",
        ),
        (
            "par N i { A[i] = 1.0 }; par N j { anchor A[j] }",
            Fuse(first="i", second="j"),
            "an anchor stays where it is",
        ),
        (
            "par N i { A[i] = 1.0 }; B[0] = 1.0; par N j { A[j] = 2.0 }",
            Fuse(first="i", second="j"),
            "`j` does not follow `i`",
        ),
        (
            "new shared t: f32[8]; par 8 i { t[i] = 1.0 }; par 8 i { B[i] = t[i] }",
            Contract(buffer="t", loop="i"),
            "the author says where t lies",
        ),
        ("new t: f32[N]; par N i { t[i] = 1.0 }; par N j { B[j] = t[j] }", Contract(buffer="t", loop="i"), "alone"),
        ("par N i { A[i] = 1.0 }", Contract(buffer="A", loop="i"), "there is no local 'A'"),
        ("par N i { A[i] = 1.0 }", Parallelize(loop="i"), "`i` is a `par` already"),
        ("seq N i #ordered { A[i] = 1.0 }", Parallelize(loop="i"), "`#ordered` says how `i` runs"),
        ("seq N i { anchor A[i] }", Parallelize(loop="i"), "an anchor stays where it is"),
        ("par N i { A[i] = 1.0 }", Residues(loop="i", phases=1), "a loop has 2 to 16 phases, not 1"),
        ("par N i { A[i] = 1.0 }", Distribute(loop="i", before="S0"), "with another before it"),
        ("par N i { A[i] = 1.0 }; par N j { B[j] = 1.0 }", Fuse(first="i", second="j", shift=-1), "from 0, not -1"),
    ],
)
def test_a_move_that_does_not_fit_says_why(text: str, move: Move, why: str) -> None:
    assert why in refused(f"kernel f(A: f32[N], B: f32[N]) where N >= 8 {{ {text} }}", move)


def test_swapped_statements_keep_their_iterations() -> None:
    text = "kernel f(A: f32[N], B: f32[N]) { par N i { A[i] = 1.0 }; par N j { B[j] = 2.0 } }"
    assert (
        after(text, Swap(first="i", second="j"))
        == """\
  par j: N (band 1)
    S1: B[j] = 2.0:f32
  par i: N (band 2)
    S0: A[i] = 1.0:f32"""
    )
    said = refused(text.replace("2.0", "A[N - 1 - j]"), Swap(first="i", second="j"))
    assert "with N = 1, S1 at j = 0 reads A and would no longer wait for S0 at i = 0" in said


def test_loops_without_a_statement_are_moved_like_others() -> None:
    text = "kernel f(A: f32[N]) { seq 3 t { }; par N i { }; par N j { A[j] = 1.0 }; par M k { } }"
    assert (
        after(text, Fuse(first="i", second="j"), Fuse(first="i", second="k"))
        == """\
  seq t: 3
  par i: max(N, M) (band 1)
    if i < N
      S0: A[i] = 1.0:f32"""
    )
    assert "`t` does not hold one loop alone" in refused(text, Interchange(outer="t"))
    assert schedule(proved(text)).others


def test_a_copy_of_a_local_that_is_expanded_is_the_authors() -> None:
    """It stands at the kernel's own level then, as arrays do that schedules add."""
    text = "kernel f(A: f32[N], B: f32[N, M]) { par N i, M j { new s: f32; s = A[i] * 0.5; B[i, j] = 1.0 } }"
    said = after(text, Residues(loop="i", phases=2), Expand(buffer="s_1", loop="i_q_1"))
    assert "new s_1: f32[" in said
