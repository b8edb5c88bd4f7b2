"""Views, functions, reductions and hardware functions against the text that they become in the core tree."""

import pytest
from checked import core, elementwise, lines

from texpr.grammar import ast
from texpr.grammar.check.imports import STD, prelude
from texpr.grammar.check.scope import FnName
from texpr.grammar.check.stage import check
from texpr.grammar.source import SourceText
from texpr.grammar.text.parser import parse


def test_views_compose_into_subscripts() -> None:
    text = """
    kernel f(A: f32[M, N], B: f32[M]) {
        par M / 4 i {
            let tile = A[4 * i:4, 8:16]
            let row = tile[2, 1:3]
            B[i] = row[i % 3]
        }
    }
    """
    assert lines(text)[-1] == "S0: B[i] = A[4 * i + 2, 9 + i % 3]"


def test_a_gathered_slice_adds_the_subscript_to_the_gather() -> None:
    text = "kernel f(A: f32[N, K], t: i32[M], B: f32[M]) { par M i { let r = A[t[i], 0:K]; B[i] = r[i] } }"
    assert lines(text)[-2:] == ["S0: start = i64(t[i])", "S1: B[i] = A[{start}, i]"]


def test_a_view_begins_where_its_data_said_when_it_was_named() -> None:
    head = "kernel f(A: f32[N], t: i32[M], B: f32[M]) { par M i { let r = A[t[i]:4]; t[i] = 0; "
    assert [line.strip() for line in lines(head + "B[i] = r[2] } }")[-3:]] == [
        "S0: start = i64(t[i])",
        "S1: t[i] = 0:i32",
        "S2: B[i] = A[{add.i64(start, index(2))}]",
    ]
    first = "fn first(x: f32[n]) { return x[0] } "
    lazy = "kernel f(A: f32[N], t: i32[M], B: f32[M]) { par M i { B[i] = select(i > 0, first(A[t[i - 1]:4]), 0.0) } }"
    assert "select" in lines(first + lazy)[-1]


def test_a_function_is_inlined_with_its_types_and_sizes_and_keeps_both_spans() -> None:
    text = """
    fn scale(alpha: T, in x: T[n], out y: T[n]) { par n i { y[i] = alpha * x[i] } }
    kernel f(A: f16[M, N], B: f16[M, N]) { par M i { scale(2, A[i, 0:N], B[i, 0:N]) } }
    """
    assert lines(text)[2:] == ["par i_1: N (band 2)", "S0: B[i, i_1] = f16(mul.f32(2.0:f32, f32(A[i, i_1])))"]
    (kernel,) = core(text)
    (outer,) = kernel.body
    assert isinstance(outer, ast.Par)
    (inner,) = outer.body
    assert isinstance(inner, ast.Par)
    assert [span.text for span in inner.call_spans] == ["scale(2, A[i, 0:N], B[i, 0:N])"]
    assert inner.span.text.startswith("n i")


def test_a_pure_function_is_an_expression_and_may_stand_in_an_arm_of_select() -> None:
    assert (
        elementwise("select(i > 0, relu(A[i - 1]), 0.0)")
        == "S0: B[i] = select(i > 0, max.f32(A[i - 1], 0.0:f32), 0.0:f32)"
    )


def test_an_argument_that_is_used_twice_is_computed_once() -> None:
    text = "kernel f(A: f32[N]) { par N i { A[i] = silu(A[i] + 1.0) } }"
    assert lines(text)[2:] == [
        "new x: f32",
        "S0: x = add.f32(A[i], 1.0:f32)",
        "S1: A[i] = mul.f32(x, sigmoid.f32(x))",
    ]


def test_a_function_may_return_a_value_that_its_statements_compute() -> None:
    text = """
    fn dot(a: T[n], b: T[n]): f32 { new s: f32; s = 0.0; seq n i { s += a[i] * b[i] } return s }
    kernel f(A: f16[M, K], C: f32[M]) { par M i { C[i] = dot(A[i, 0:K], A[i, 0:K]) } }
    """
    assert lines(text)[-3:] == [
        "new dot: f32",
        "S2: dot = s",
        "S3: C[i] = dot",
    ]


def test_a_slice_is_bound_to_the_array_that_a_function_returns() -> None:
    text = """
    fn twice(a: f32[n]): f32[n] { new r: f32[n]; par n i { r[i] = a[i] * 2.0 } return r }
    kernel f(A: f32[N], B: f32[N]) { par N / 16 i { B[16 * i:16] = twice(A[16 * i:16]) } }
    """
    assert lines(text)[-2:] == ["par e: 16 (band 3)", "S1: B[16 * i + e] = r[e]"]


def test_an_extent_that_only_sizes_decide_becomes_a_fact() -> None:
    text = """
    fn g(a: f32[16], out b: f32[16]) { par 16 i { b[i] = a[i] } }
    kernel f(A: f32[N], B: f32[16]) { g(A, B) }
    """
    assert lines(text)[0] == "kernel f(A: f32[N], B: f32[16]) sizes N where N == 16"


def test_an_element_is_passed_by_reference_where_the_function_writes() -> None:
    text = """
    fn bump(inout x: i32) { x += 1 }
    kernel f(A: i32[N]) { par N i { bump(A[i]) } }
    """
    assert lines(text)[-1] == "S0: A[i] add= 1:i32"


def test_a_library_function_may_be_replaced_by_the_programs_own() -> None:
    text = "fn relu(x: f32) { return x + 1.0 }\nkernel f(A: f32[N]) { par N i { A[i] = relu(A[i]) } }"
    assert lines(text)[-1] == "S0: A[i] = add.f32(A[i], 1.0:f32)"


def test_every_library_function_checks_on_every_float_type() -> None:
    library = [item.entity.definition for item in prelude().names.values() if isinstance(item.entity, FnName)]
    assert {"elu", "smooth_l1", "clamp"} <= {definition.name for definition in library}
    for definition in library:
        name, arity = definition.name, len(definition.params)
        for dtype in ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"):
            args = ", ".join(["A[i]"] * arity)
            core(f"kernel f(A: {dtype}[N]) {{ par N i {{ A[i] = {name}({args}) }} }}")


def test_a_reduction_that_reads_its_target_goes_through_a_local() -> None:
    text = "kernel f(A: f32[N]) { par N i { A[i] = sum N k { A[k] } } }"
    assert lines(text)[2:] == ["new sum: f32", "S0: sum = 0.0:f32", "seq k: N", "S1: sum add= A[k]", "S2: A[i] = sum"]


def test_a_reduction_over_several_dims_nests_and_starts_from_the_types_least_value() -> None:
    text = "kernel f(A: i32[M, N], B: i32[1]) { B[0] = maximum M i, N j { A[i, j] } }"
    assert lines(text)[1:] == ["S0: B[0] = -2147483648:i32", "seq i: M", "seq j: N", "S1: B[0] max= A[i, j]"]


def test_an_accumulated_reduction_keeps_what_was_there() -> None:
    text = "kernel f(A: f32[N], B: f32[1]) { B[0] += sum N k { A[k] } }"
    assert lines(text)[1:] == ["seq k: N", "S0: B[0] add= A[k]"]


def test_std_mma_is_an_intrinsic_with_both_bodies() -> None:
    text = "import std.mma\nkernel f(A: f16[16, 16], B: f16[16, 8], C: f32[16, 8]) { mma_m16n8k16(A, B, C) }"
    found = lines(text)
    assert found[1] == "intrinsic mma_m16n8k16 #ptx(7, 0) #sm(80) reference"
    assert "S1: ra[e] = A[lane / 4 + e / 2 % 2 * 8, lane % 4 * 2 + e % 2 + e / 4 * 8]" in found
    assert "fully par lane: 32 (band 2) #align(32) #block" in found


def test_a_collective_call_from_inside_a_fully_par_is_marked() -> None:
    text = """
    import std.mma
    kernel f(A: f16[16, 16], B: f16[16, 8], C: f32[16, 8]) {
        fully par 32 |l| #align(32) #block { mma_m16n8k16(A, B, C) }
    }
    """
    assert any("#collective" in line for line in lines(text))


def test_every_module_of_std_checks() -> None:
    for path in sorted(STD.glob("*.tex")):
        check(parse(SourceText(path.name, path.read_text(encoding="utf-8"))), folder=STD)


@pytest.mark.parametrize("member", ["a", "b", "c"])
def test_a_fragment_layout_is_a_bijection_onto_its_tile(member: str) -> None:
    from texpr.grammar.fragments import FRAGMENTS

    fragment = FRAGMENTS["mma16816"][member]
    cells = set()
    for lane in range(32):
        for register in range(fragment.registers):
            row, column = fragment.place(ast.IndexConst(value=lane), ast.IndexConst(value=register))
            assert isinstance(row, ast.IndexConst) and isinstance(column, ast.IndexConst)
            cells.add((row.value, column.value))
    assert cells == {(r, c) for r in range(fragment.rows) for c in range(fragment.columns)}


@pytest.mark.parametrize("use", ["let y = twice(A[i], C)", "reg y = twice(A[i], C)"])
@pytest.mark.parametrize("result", ["", ": f32", ": f32[]"])
def test_a_call_whose_value_is_named_is_inlined_once(use: str, result: str) -> None:
    function = f"fn twice(x: f32, inout c: f32[n]){result} {{ new t: f32; t = x * 2.0; c[0] += 1.0; return t }} "
    found = lines(f"{function} kernel f(A: f32[N], C: f32[4]) {{ seq N i {{ {use}; A[i] = y }} }}")
    assert [line for line in found if "C[0]" in line] == ["S2: C[0] add= 1.0:f32"]
