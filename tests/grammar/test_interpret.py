"""The two modes of the interpreter on core trees built by hand: values, masks, locals, folds."""

import numpy as np
import pytest
from trees import BOTH, MATMUL, acc, bind, code_of, ix, kernel, local, num, op, par, param, ramp, rd, run, seq, zeros

from texpr.grammar.ast import AccOp, Asm, Cast, Compare, CompareOp, Fn, Gather, If, IndexValue, Intrinsic, New, Select
from texpr.grammar.types import BOOL, F16, F32, I32


@BOTH
@pytest.mark.parametrize("shape", [(0, 2, 3), (1, 1, 1), (3, 2, 0), (4, 5, 7)])
def test_a_matmul_is_a_matmul_and_leaves_its_inputs_alone(mode, shape):
    m, n, k = shape
    a, b, c = ramp(m, k, dtype=np.float16), ramp(k, n, dtype=np.float16), np.full((m, n), 9, np.float32)
    out = run(MATMUL, mode, A=a, B=b, C=c)
    assert np.array_equal(out["C"], a.astype(np.float32) @ b.astype(np.float32))
    assert np.array_equal(c, np.full((m, n), 9)) and np.array_equal(out["A"], a)


def test_a_grid_in_pieces_gives_what_one_grid_gives():
    from texpr.grammar.interpret.cells import PlainArithmetic, PlainCells
    from texpr.grammar.interpret.fast import FastInterpreter

    a, b = ramp(5, 7, dtype=np.float16), ramp(7, 6, dtype=np.float16)
    for limit in (1, 4, 10, 1000):
        memory = {
            "A": PlainCells(F16, a.reshape(-1), ()),
            "B": PlainCells(F16, b.reshape(-1), ()),
            "C": PlainCells(F32, zeros(30), ()),
        }
        FastInterpreter(MATMUL, {"M": 5, "N": 6, "K": 7}, PlainArithmetic(), memory, grid_limit=limit).run()
        assert np.array_equal(memory["C"].flat.reshape(5, 6), a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("limit", [1, 12, 100, 10000])
def test_a_sum_in_pieces_is_rounded_once(limit):
    from texpr.grammar.interpret.cells import PlainArithmetic, PlainCells
    from texpr.grammar.interpret.fast import FastInterpreter

    program = kernel(
        [param("A f16 M K"), param("C f16 M", direction="inout")],
        par("i", "M", seq("k", "K", acc("C", "i", Cast(operand=rd("A", "i", "k", dtype=F16), dtype=F32)))),
    )
    a, c = np.random.default_rng(3).integers(0, 99, (4, 300)).astype(np.float16), np.arange(4).astype(np.float16)
    a[3], c[3] = 0.0, -0.0  # together 0.0
    wide = (c.astype(np.float32) + a.astype(np.float32).sum(1)).astype(np.float16)
    memory = {"A": PlainCells(F16, a.reshape(-1), ()), "C": PlainCells(F16, c, ())}
    FastInterpreter(program, {"M": 4, "K": 300}, PlainArithmetic(), memory, grid_limit=limit).run()
    assert c.tobytes() == wide.tobytes()  # in place, too


@BOTH
def test_a_triangular_par_visits_its_triangle(mode):
    program = kernel(
        [param("A f32 N N")], par("i", "N", par("j", ("-", ("-", "N", "i"), 1), bind("A", "ij", num(1.0))))
    )
    expected = np.fliplr(np.triu(np.ones((5, 5)), 1))
    assert np.array_equal(run(program, mode, A=zeros(5, 5))["A"], expected)


@BOTH
def test_a_ragged_seq_and_a_negative_extent(mode):
    program = kernel([param("A f32 N")], par("i", "N", seq("k", ("-", "i", 2), acc("A", "i", num(1.0)))))
    assert run(program, mode, A=zeros(5))["A"].tolist() == [0, 0, 0, 1, 2]


@BOTH
def test_a_scan_keeps_the_order_of_its_seq(mode):
    program = kernel(
        [param("A f32 N M")],
        par("j", "M", seq("i", ("-", "N", 1), acc("A", (("+", "i", 1), "j"), rd("A", "i", "j")))),
    )
    a = ramp(6, 3)
    assert np.array_equal(run(program, mode, A=a)["A"], np.cumsum(a, axis=0))


@BOTH
def test_a_local_is_one_per_iteration(mode):
    program = kernel(
        [param("A f32 N M"), param("C f32 N M"), local("s f32"), local("t f32 2")],
        par(
            "i",
            "N",
            New(buffer="s"),
            bind("s", (), num(0.0)),
            seq("k", "M", acc("s", (), rd("A", "i", "k"))),
            par(
                "j",
                "M",
                New(buffer="t"),
                bind("t", (1,), rd("A", "i", "j")),
                bind("t", (0,), rd("s")),
                bind("C", "ij", op(Fn.ADD, rd("t", ("%", "j", 2)), rd("t", ("%", ("+", "j", 1), 2)))),
            ),
        ),
    )
    a = ramp(4, 3)
    assert np.array_equal(run(program, mode, A=a, C=zeros(4, 3))["C"], a + a.sum(axis=1, keepdims=True))


@BOTH
def test_the_arm_that_is_not_chosen_is_not_read(mode):
    program = kernel(
        [param("A f32 N"), param("C f32 N")],
        par(
            "i",
            "N",
            bind(
                "C",
                "i",
                Select(
                    condition=Compare(op=CompareOp.GT, left=ix("i"), right=ix(0)),
                    then=rd("A", ("-", "i", 1)),
                    other=num(-1.0),
                    dtype=F32,
                ),
            ),
        ),
    )
    assert run(program, mode, A=ramp(4), C=zeros(4))["C"].tolist() == [-1, 0, 1, 2]


@BOTH
def test_both_kinds_of_if_choose_per_iteration(mode):
    program = kernel(
        [param("A f32 N"), param("C f32 N"), local("c bool")],
        par(
            "i",
            "N",
            If(
                condition=Compare(op=CompareOp.LT, left=ix("i"), right=ix(2)),
                then=(bind("C", "i", num(1.0)),),
                orelse=(
                    New(buffer="c"),
                    bind("c", (), op(Fn.GT, rd("A", "i"), num(3.5), dtype=BOOL)),
                    If(
                        condition=rd("c", dtype=BOOL),
                        then=(bind("C", "i", num(2.0)),),
                        orelse=(acc("C", "i", num(3.0)),),
                    ),
                ),
            ),
        ),
    )
    assert run(program, mode, A=ramp(6), C=np.full(6, 10, np.float32))["C"].tolist() == [1, 1, 13, 13, 2, 2]


@BOTH
@pytest.mark.parametrize("atomic", [False, True])
def test_a_histogram_counts_every_hit(mode, atomic):
    program = kernel(
        [param("X i32 N"), param("H i32 M")],
        par("i", "N", acc("H", (Gather(value=rd("X", "i", dtype=I32)),), num(1, I32), atomic=atomic)),
    )
    x = np.asarray([0, 2, 2, 1, 2], np.int32)
    assert run(program, mode, X=x, H=zeros(3, dtype=np.int32))["H"].tolist() == [1, 1, 3]


@BOTH
@pytest.mark.parametrize(
    ("operator", "expected"), [(AccOp.ADD, 65), (AccOp.MUL, 720 * 50), (AccOp.MAX, 50), (AccOp.MIN, 1)], ids=str
)
def test_a_reduction_over_a_par_with_every_operator(mode, operator, expected):
    program = kernel([param("A f32 N"), param("C f32 1")], par("i", "N", acc("C", (0,), rd("A", "i"), operator)))
    out = run(program, mode, A=np.asarray([1, 2, 3, 4, 5], np.float32), C=np.asarray([50], np.float32))
    assert out["C"][0] == {AccOp.MUL: 120 * 50}.get(operator, expected)


@BOTH
def test_max_into_a_wrapping_integer_goes_step_by_step(mode):
    program = kernel(
        [param("A i32 N"), param("C i8 1")], seq("i", "N", acc("C", (0,), rd("A", "i", dtype=I32), AccOp.MAX))
    )
    out = run(program, mode, A=np.asarray([200, 5], np.int32), C=np.asarray([0], np.int8))
    assert out["C"][0] == 5


@BOTH
def test_an_index_is_a_value_and_a_scalar_an_argument(mode):
    value = op(Fn.MUL, Cast(operand=IndexValue(index=ix("i")), dtype=F32), rd("s"))
    program = kernel([param("C f32 N"), param("s f32")], par("i", "N", bind("C", "i", value)))
    assert run(program, mode, C=zeros(3), s=0.5)["C"].tolist() == [0, 0.5, 1]


@BOTH
def test_a_flat_buffer_takes_any_array_that_is_long_enough(mode):
    program = kernel([param("C f32 N", flat=True)], par("i", "N", bind("C", "i", num(1.0))))
    out = run(program, mode, C=zeros(2, 3), sizes={"N": 4})["C"]
    assert out.tolist() == [[1, 1, 1], [1, 0, 0]]


@BOTH
def test_an_intrinsic_is_its_reference_and_bare_asm_is_refused(mode):
    asm = Asm(id="S", text="nop;", operands=())
    program = kernel(
        [param("C f32 N")], par("i", "N", Intrinsic(name="f", reference=(bind("C", "i", num(2.0)),), hardware=(asm,)))
    )
    assert run(program, mode, C=zeros(2))["C"].tolist() == [2, 2]
    assert code_of(kernel([param("C f32 N")], asm), mode, C=zeros(2)).code == "E0502"


@BOTH
def test_non_contiguous_arrays_are_read_in_their_logical_order(mode):
    a = ramp(7, 4, dtype=np.float16)[::2].T
    out = run(MATMUL, mode, A=a, B=ramp(4, 2, dtype=np.float16), C=zeros(4, 2))
    assert np.array_equal(out["C"], a.astype(np.float32) @ ramp(4, 2))
    assert out["A"].shape == (4, 4)
