"""The two modes of the interpreter on core trees built by hand: values, masks, locals, folds, and what exact finds."""

import numpy as np
import pytest

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Asm,
    Atomic,
    Attr,
    Bind,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Fn,
    Gather,
    If,
    IndexBinary,
    IndexConst,
    IndexOp,
    IndexValue,
    IndexVar,
    Intrinsic,
    Kernel,
    New,
    Op,
    Par,
    Read,
    Role,
    Select,
    Seq,
    Size,
    SizeVar,
)
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.interpret import interpret
from texpr.grammar.types import BOOL, ELEMENT_TYPES, F16, F32, I32, I64

INDICES = set("ijkpq")


def ix(value):
    """An index expression from an int, a name, or (op, left, right)."""
    if isinstance(value, int):
        return IndexConst(value=value)
    if isinstance(value, str):
        return IndexVar(name=value) if value[0] in INDICES else SizeVar(name=value)
    if isinstance(value, tuple):
        return IndexBinary(op=IndexOp(value[0]), left=ix(value[1]), right=ix(value[2]))
    return value


def par(index, extent, *body, **more):
    return Par(index=index, source_name=index, extent=ix(extent), band=0, body=body, **more)


def seq(index, extent, *body, **more):
    return Seq(index=index, source_name=index, extent=ix(extent), body=body, **more)


def rd(buffer, *subscripts, dtype=F32):
    return Read(buffer=buffer, subscripts=tuple(ix(s) for s in subscripts), dtype=dtype)


def bind(buffer, subscripts, value, **more):
    return Bind(id="S", buffer=buffer, subscripts=tuple(ix(s) for s in subscripts), value=value, **more)


def acc(buffer, subscripts, value, op=AccOp.ADD, atomic=False, **more):
    kind = Atomic if atomic else Accumulate
    return kind(id="S", op=op, buffer=buffer, subscripts=tuple(ix(s) for s in subscripts), value=value, **more)


def num(value, dtype=F32):
    return Const(value=value, dtype=dtype)


def op(fn, *args, dtype=F32):
    return Op(fn=fn, args=args, dtype=dtype)


def param(text, **more):
    """`A f32 M N` or, for a scalar, `s f32`; `role=Role.LOCAL` for a `new`."""
    name, dtype, *shape = text.split()
    shape = tuple(ix(int(n) if n.isdigit() else n) for n in shape)
    role = more.pop("role", Role.PARAM if shape else Role.SCALAR)
    return Buffer(name=name, dtype=ELEMENT_TYPES[dtype], shape=shape, role=role, source_name=name, **more)


def local(text):
    return param(text, role=Role.LOCAL)


def kernel(buffers, *body, **more):
    names = {n.name for b in buffers for n in b.shape if isinstance(n, SizeVar)} | set(more.pop("sizes", ()))
    sizes = tuple(Size(name=n) for n in sorted(names))
    return Kernel(name="k", buffers=tuple(buffers), sizes=sizes, body=body, **more)


MATMUL = kernel(
    [param("A f16 M K"), param("B f16 K N"), param("C f32 M N")],
    par(
        "i",
        "M",
        par(
            "j",
            "N",
            bind("C", "ij", num(0.0)),
            seq(
                "k",
                "K",
                acc(
                    "C",
                    "ij",
                    op(
                        Fn.MUL,
                        Cast(operand=rd("A", "i", "k", dtype=F16), dtype=F32),
                        Cast(operand=rd("B", "k", "j", dtype=F16), dtype=F32),
                    ),
                ),
            ),
        ),
    ),
)


def run(program, mode="fast", **arrays):
    sizes = arrays.pop("sizes", None)
    return interpret(program, arrays, mode=mode, sizes=sizes).outputs


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype=dtype)


def ramp(*shape, dtype=np.float32):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def code_of(program, mode="exact", seed=0, **arrays):
    """The one diagnostic that stops the run."""
    sizes = arrays.pop("sizes", None)
    with pytest.raises(TExprError) as caught:
        interpret(program, arrays, mode=mode, seed=seed, sizes=sizes)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


BOTH = pytest.mark.parametrize("mode", ["fast", "exact"])


@BOTH
@pytest.mark.parametrize("shape", [(0, 2, 3), (1, 1, 1), (3, 2, 0), (4, 5, 7)])
def test_a_matmul_is_a_matmul_and_leaves_its_inputs_alone(mode, shape):
    m, n, k = shape
    a, b, c = ramp(m, k, dtype=np.float16), ramp(k, n, dtype=np.float16), np.full((m, n), 9, np.float32)
    out = run(MATMUL, mode, A=a, B=b, C=c)
    assert np.array_equal(out["C"], a.astype(np.float32) @ b.astype(np.float32))
    assert np.array_equal(c, np.full((m, n), 9)) and np.array_equal(out["A"], a)


def test_a_grid_in_pieces_gives_what_one_grid_gives():
    from texpr.grammar.interpret_cells import PlainArithmetic, PlainCells
    from texpr.grammar.interpret_fast import FastInterpreter

    a, b = ramp(5, 7, dtype=np.float16), ramp(7, 6, dtype=np.float16)
    for limit in (1, 4, 10, 1000):
        memory = {
            "A": PlainCells(F16, a.reshape(-1), ()),
            "B": PlainCells(F16, b.reshape(-1), ()),
            "C": PlainCells(F32, zeros(30), ()),
        }
        FastInterpreter(MATMUL, {"M": 5, "N": 6, "K": 7}, PlainArithmetic(), memory, grid_limit=limit).run()
        assert np.array_equal(memory["C"].flat.reshape(5, 6), a.astype(np.float32) @ b.astype(np.float32))


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


# ---- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"C": None},
        {"C": [[1.0]]},
        {"C": zeros(2, 2, dtype=np.float64)},
        {"C": zeros(2, 2, dtype=">f4")},
        {"C": zeros(2, 3)},
        {"C": zeros(4)},
        {"B": zeros(4, 2, dtype=np.float16)},
        {"D": 1},
    ],
)
def test_arguments_that_do_not_fit_are_refused(change):
    arrays = {"A": ramp(2, 3, dtype=np.float16), "B": ramp(3, 2, dtype=np.float16), "C": zeros(2, 2), **change}
    assert code_of(MATMUL, "fast", **arrays).code == "E0601"
    del arrays["C"]
    assert code_of(MATMUL, "fast", **arrays).code == "E0601"


def test_sizes_that_nothing_fixes_are_asked_for():
    program = kernel([param("C f32 4")], par("i", "N", bind("C", "i", num(1.0))), sizes=("N",))
    assert code_of(program, "fast", C=zeros(4)).code == "E0602"
    assert run(program, "fast", C=zeros(4), sizes={"N": 2})["C"].tolist() == [1, 1, 0, 0]
    assert code_of(program, "fast", C=zeros(4), sizes={"N": 2, "Q": 1}).code == "E0211"
    assert code_of(program, "fast", C=zeros(4), sizes={"N": 2.5}).code == "E0211"


@pytest.mark.parametrize("value", ["x", None, True, np.zeros(2)])
def test_a_scalar_of_another_kind_is_refused(value):
    program = kernel([param("C f32 N"), param("s f32")], par("i", "N", bind("C", "i", rd("s"))))
    assert code_of(program, "fast", C=zeros(1), s=value).code == "E0601"


def test_a_where_that_does_not_hold_is_refused():
    fact = Compare(op=CompareOp.EQ, left=ix(("%", "N", 2)), right=ix(0))
    program = kernel([param("C f32 N")], par("i", "N", bind("C", "i", num(1.0))), facts=(fact,))
    assert code_of(program, "fast", C=zeros(3)).code == "E0211"


def test_arrays_that_overlap_are_refused():
    base = zeros(4, 4)
    program = kernel([param("A f32 N N"), param("C f32 N N")], par("i", "N", bind("C", "ii", rd("A", "i", "i"))))
    assert code_of(program, "fast", A=base, C=base.T).code == "E0603"


@BOTH
def test_an_affine_subscript_out_of_bounds_names_the_least_iteration(mode):
    program = kernel(
        [param("A f32 N"), param("C f32 M N")],
        par("i", "M", par("j", "N", bind("C", "ij", rd("A", ("+", "i", "j"))))),
    )
    found = code_of(program, mode, A=ramp(3), C=zeros(2, 3))
    assert found.code == "E0302"
    assert found.message == "subscript 1 of A is 3, outside 0..2"
    assert (found.witness["first"], found.witness["element"]) == ({"i": 1, "j": 2}, [3])


@BOTH
def test_a_gathered_subscript_out_of_bounds_is_a_failed_check(mode):
    program = kernel(
        [param("X i64 N"), param("C f32 N")],
        par("i", "N", bind("C", "i", rd("C", Gather(value=rd("X", "i", dtype=I64))))),
    )
    found = code_of(program, mode, X=np.asarray([0, 7]), C=zeros(2))
    assert (found.code, found.witness["first"], found.witness["element"]) == ("E0604", {"i": 1}, [7])


def test_two_iterations_that_write_one_element_race():
    program = kernel([param("A f32 N"), param("C f32 N")], par("i", "N", bind("C", (("/", "i", 2),), rd("A", "i"))))
    found = code_of(program, A=ramp(2), C=zeros(2))
    assert found.code == "E0301"
    witness = found.witness
    assert (witness["par"], witness["first"], witness["second"]) == ("i", {"i": 0}, {"i": 1})
    assert (witness["buffer"], witness["element"]) == ("C", [0])
    assert "both write C[0]" in str(found.primary.text)


def test_a_read_of_what_another_iteration_writes_races_in_every_order():
    program = kernel([param("A f32 N")], par("i", ("-", "N", 1), bind("A", "i", rd("A", ("+", "i", 1)))))
    for seed in range(5):
        found = code_of(program, seed=seed, A=ramp(3))
        assert (found.code, found.witness["first"], found.witness["second"]) == ("E0301", {"i": 0}, {"i": 1})


def test_a_race_is_found_at_the_par_that_makes_it():
    body = bind("A", ("j",), num(1.0))
    outer = kernel([param("A f32 N")], par("i", 2, par("j", "N", body)))
    assert code_of(outer, A=zeros(3)).primary is not None
    serial = kernel([param("A f32 N")], seq("i", 2, par("j", "N", body)))
    assert run(serial, "exact", A=zeros(3))["A"].tolist() == [1, 1, 1]


def test_writes_of_two_runs_of_one_inner_par_do_not_race_with_each_other():
    program = kernel(
        [param("A f32 N N")],
        par("i", "N", par("j", "N", bind("A", "ij", num(1.0))), par("j1", "N", acc("A", ("i", "j1"), num(1.0)))),
    )
    assert np.array_equal(run(program, "exact", A=zeros(3, 3))["A"], np.full((3, 3), 2))


@pytest.mark.parametrize(
    "second",
    [
        acc("C", (0,), num(2.0), AccOp.MAX),
        acc("C", (0,), num(2.0), atomic=True),
        bind("C", (0,), num(2.0)),
        bind("C", ("i",), rd("C", 0)),
    ],
)
def test_a_reduction_beside_any_other_access_races(second):
    program = kernel([param("C f32 N")], par("i", "N", acc("C", (0,), num(1.0)), second))
    assert code_of(program, C=zeros(3)).code == "E0301"


def test_a_broken_unique_promise_is_a_failed_check():
    promise = bind("C", (Gather(value=rd("X", "i", dtype=I32)),), num(1.0), attrs=(Attr(name="unique"),))
    program = kernel([param("X i32 N"), param("C f32 N")], par("i", "N", promise))
    assert code_of(program, X=np.asarray([1, 1], np.int32), C=zeros(2)).code == "E0604"


def test_a_local_is_undefined_again_at_each_entry():
    program = kernel(
        [param("C f32 N"), local("s f32")],
        seq(
            "k",
            "N",
            New(buffer="s"),
            If(condition=Compare(op=CompareOp.EQ, left=ix("k"), right=ix(0)), then=(bind("s", (), num(1.0)),)),
            bind("C", "k", rd("s")),
        ),
    )
    found = code_of(program, C=zeros(2))
    assert (found.code, found.witness["first"], found.witness["buffer"]) == ("E0303", {"k": 1}, "s")


def test_directions_are_watched():
    read = kernel([param("C f32 N", direction="out")], par("i", "N", acc("C", "i", num(1.0))))
    assert code_of(read, C=zeros(1)).code == "E0303"
    partly = kernel([param("C f32 N", direction="out")], par("i", ("-", "N", 1), bind("C", "i", num(1.0))))
    found = code_of(partly, C=zeros(3))
    assert (found.code, found.witness["element"]) == ("E0304", [2])
    written = kernel([param("C f32 N", direction="in")], par("i", "N", bind("C", "i", num(1.0))))
    assert code_of(written, C=zeros(1)).code == "E0305"


def test_collecting_goes_on_to_the_end_and_keeps_one_of_each_kind():
    program = kernel(
        [param("A f32 N"), local("s f32")],
        New(buffer="s"),
        par("i", "N", bind("A", (0,), rd("s")), bind("A", (("+", "i", 1),), rd("s"))),
    )
    found = interpret(program, {"A": zeros(4)}, mode="exact", collect=True)
    assert {d.code for d in found.violations} == {"E0301", "E0302", "E0303"}
