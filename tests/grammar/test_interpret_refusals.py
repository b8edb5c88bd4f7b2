"""What the interpreter refuses: arguments that do not fit, and what exact mode finds while it runs."""

import numpy as np
import pytest
from trees import BOTH, MATMUL, acc, bind, code_of, ix, kernel, local, num, par, param, ramp, rd, run, seq, zeros

from texpr.grammar.ast import AccOp, Attr, Compare, CompareOp, Gather, If, New
from texpr.grammar.interpret.stage import interpret
from texpr.grammar.types import I32, I64


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
