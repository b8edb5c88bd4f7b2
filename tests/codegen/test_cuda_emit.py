"""Emitted CUDA text: golden files, names, lines, determinism, and what it must never contain."""

import re
from dataclasses import replace

import pytest

import texpr
from texpr.codegen.cpu.emit import emit_cpu
from texpr.codegen.cuda.emit import VERSION, emit_cuda
from texpr.codegen.cuda.index import variable
from texpr.codegen.cuda.lines import Lines
from texpr.codegen.cuda.literals import literal
from texpr.codegen.cuda.names import Scope, comment, file_name, kernel_symbol, mangle
from texpr.grammar import ast
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.source import SourceText, Span
from texpr.grammar.types import F16, F32, I32, I64
from texpr.polyhedral.layout.make import fragment
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.tree import Guard, Loop
from texpr.polyhedral.target import parse_target
from texpr.version import VERSION as PACKAGE_VERSION

TARGET = parse_target("cuda:sm_90a")
KERNELS = ("vadd", "matmul", "reverse")


def source(planned):
    return emit_cuda(planned, TARGET).source


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_is_the_golden_one(build, golden, name):
    text = emit_cuda(getattr(build, name)(), TARGET)
    golden(f"cuda/{name}.cu", text.source)
    golden(f"cuda/{name}.h", text.header)


@pytest.mark.parametrize("name", KERNELS)
def test_equal_graphs_give_equal_bytes(build, name):
    assert emit_cuda(getattr(build, name)(), TARGET) == emit_cuda(getattr(build, name)(), TARGET)


@pytest.mark.parametrize("name", KERNELS)
def test_no_bare_subscript_is_emitted(build, name):
    code = [line for line in source(getattr(build, name)()).splitlines() if not line.lstrip().startswith(("//", "#"))]
    assert not [line for line in code if "[" in re.sub(r'"[^"]*"', "", line)]


def counted(text):
    """The lines of a text with the file and the number that a compiler gives each; only these of the kernels."""
    file, number = "", 0
    for line in text.splitlines():
        if said := re.fullmatch(r'#line (\d+)(?: "(.*)")?', line):
            file, number = said[2] or file, int(said[1])
        else:
            yield file, number, line.strip()
            number += 1


ACCESS = re.compile(r"[A-Za-z]\(.*\) = ")


@pytest.mark.parametrize("name", KERNELS)
def test_every_access_is_counted_as_the_line_of_its_statement(build, name):
    planned = getattr(build, name)()
    explained = re.compile(r"// ([a-z]+\.tex):(\d+): ")
    said, seen = None, 0
    for file, number, line in counted(source(planned)):
        if match := explained.match(line):
            said = (f"/texpr/{match[1]}", int(match[2]))
        if ACCESS.search(line):
            assert (file, number) == said, line
            seen += 1
    assert seen


def test_a_line_is_placed_only_where_a_compiler_counts_another_one(build):
    text = SourceText(name="a/k.tex", text="one\ntwo\nthree\n")
    first, second = Span(text, 0, 3), Span(text, 4, 7)
    out = Lines()
    for line, at in (("a;", first), ("b;", second), ("int c;", None), ("d;", second), ("e;", second), ("f;", None)):
        out.line(line, at)
    lines, _ = out.finish()
    assert lines == ['#line 1 "/texpr/k.tex"', "a;", "b;", "int c;", "#line 2", "d;", "#line 2", "e;", "f;"]


def test_sibling_bands_share_coordinates_and_indices(build):
    text = "kernel k(A: f32[M, 256], B: f32[M, 256]) { par M b { par 256 i { B[b, i] = A[b, i] } "
    text += "par 256 i { B[b, i] = B[b, i] + 1.0 } } }"
    made = texpr.parse(text).only.compile("cuda:sm_90a").source
    assert made.count("tx::lane()") == made.count("tx::warp()") == 1
    assert made.count("const int i_first = 128 * warp + 4 * lane;") == 1 and "i_1_first" not in made


def test_the_version_in_the_text_is_that_of_the_package():
    assert VERSION == PACKAGE_VERSION


def test_a_scalar_called_as_an_accessor_speaks_is_passed_only_where_it_is_used() -> None:
    text = "kernel k(A: f32[N], B: f32[N], C: f32[M], load: f32) { par N i { B[i] = A[i] } par M j { C[j] = load } }"
    made = texpr.parse(text).only.compile("cuda:sm_90a")
    signatures = [line for line in made.source.splitlines() if line.startswith(("k_0(", "k_1("))]
    assert ["load" in line for line in signatures] == [False, True]


def test_a_declaration_stays_where_a_line_names_it_even_through_another_declaration() -> None:
    out = Lines()
    out.declare("lane", "int", variable("tx::lane()", 0, 31))
    out.declare("i", "int", variable("lane", 0, 31))
    out.declare("idle", "int", variable("i", 0, 31))
    out.line(f"B.store({out.use(variable('i', 0, 31))}, 1);")
    lines, used = out.finish()
    assert lines == ["const int lane = tx::lane();", "const int i = lane;", "B.store(i, 1);"]
    assert used == {"i", "lane", "tx::lane()"}


def test_arguments_are_arrays_scalars_workspaces_sizes_and_indices(build):
    text = emit_cuda(build.vadd(), TARGET)
    assert text.arguments == {"vadd_0": (("param", "A"), ("param", "B"), ("param", "C"), ("size", "N"))}


def test_what_is_written_around_a_barrier_is_not_restricted(build):
    text = source(build.reverse())
    assert "const tx::f32* __restrict__ A_data, tx::f32* C_data" in text
    assert text.count("__restrict__") == 1 and source(build.vadd()).count("__restrict__") == 3


def test_an_index_of_one_value_is_folded_away(build):
    body = (build.define("i", (1, "i_block")), build.statement("C", ("i",), build.const(1.0)))
    block = build.launch("k_0", body, digits=(build.digit("i_block", "grid.x", 1),))
    text = source(build.plan((block,), (build.tensor("C", 1),)))
    assert "C(0) = 1.0f;" in text and "i_block" not in text


def one(build, statement_, tensors, *, sizes=(), facts=(), grid=(8, 1, 1)):
    """A plan of one statement over i on blocks of 32."""
    body = (build.define("i", (32, "i_block"), (1, "i_lane")), statement_)
    digits = (build.digit("i_block", "grid.x", grid[0], weight=32), build.digit("i_lane", "lane", 32))
    block = build.launch("k_0", body, grid=grid, digits=digits)
    return build.plan((block,), tensors, sizes=sizes, facts=facts)


class TestIndexArithmetic:
    def text(self, build, subscript, extent, **more):
        store = build.statement("C", (subscript,), build.const(1.0))
        return source(one(build, store, (build.tensor("C", extent),), **more))

    def test_it_is_32_bits_where_bound_sizes_prove_it(self, build):
        assert "C(3 * i + 1) = " in self.text(build, build.binary("+", build.binary("*", 3, "i"), 1), 800)

    def test_it_is_64_bits_beyond(self, build):
        text = self.text(build, build.binary("*", 2**24, "i"), 2**32)
        assert "C(tx::i64(16777216) * i) = " in text

    def test_a_free_size_is_64_bits_unless_a_fact_bounds_what_depends_on_it(self, build):
        at_most = ast.Compare(op=ast.CompareOp.LE, left=build.size("N"), right=build.number(1000))
        blocks = build.binary("ceildiv", "N", 32)
        free = self.text(build, "i", "N", sizes=("N",), grid=(blocks, 1, 1))
        bound = self.text(build, "i", "N", sizes=("N",), grid=(blocks, 1, 1), facts=(at_most,))
        assert "const tx::i64 i = tx::i64(32) * tx::block_x() + lane;" in free
        assert "const int i = 32 * tx::block_x() + lane;" in bound

    def test_division_is_plain_only_where_nothing_is_negative(self, build):
        assert "C(i / 3) = " in self.text(build, build.binary("/", "i", 3), 100)
        negative = build.binary("/", build.binary("-", "i", 300), 3)
        assert "C(tx::floor_div(i - 300, 3) + 100) = " in self.text(build, build.binary("+", negative, 100), 100)

    def test_what_is_little_below_zero_is_divided_without_a_sign(self, build):
        below = build.binary("-", "i", 3)
        both = build.binary("*", build.binary("%", below, 7), build.binary("+", build.binary("/", below, 3), 1))
        assert "C(tx::near_mod(i - 3, 7) * (tx::near_div(i - 3, 3) + 1)) = " in self.text(build, both, 9)

    def test_a_remainder_that_cuts_nothing_is_left_out(self, build):
        assert "C(i) = " in self.text(build, build.binary("%", "i", 256), 256)
        reached = build.binary("%", build.binary("+", "i", 1), 256)  # 256 is the greatest value, and its remainder 0
        assert "C((i + 1) % 256) = " in self.text(build, reached, 256)


def test_the_least_integers_have_no_literal_and_are_written_as_differences():
    assert literal(-(2**31), I32) == "(-2147483647 - 1)" and literal(2**31, I32) == literal(-(2**31), I32)
    assert literal(-(2**63), I64) == "(-9223372036854775807ll - 1)"
    assert literal(-(2**31) + 1, I32) == "-2147483647"


class TestNames:
    def test_different_names_stay_different_and_are_no_words_of_cpp(self):
        names = ["int", "int_v", "int_v_v", "_x", "_x_v", "m_ux_v", "a__b", "A", "I", "EOF", "NULL", "tx", "smem", "x_"]
        mangled = [mangle(name) for name in names]
        assert len(set(mangled)) == len(names)
        assert all("__" not in m and not m.startswith("_") for m in mangled)
        assert mangle("A") == "A" and mangle("int") == "int_v" and mangle("EOF") == "EOF_v"

    def test_a_scope_gives_a_second_variable_of_one_name_a_number(self):
        scope = Scope()
        assert [scope.new("i"), scope.new("i"), scope.new("i_2"), scope.new("for")] == ["i", "i_2", "i_2_2", "for_v"]

    def test_a_symbol_is_the_launch_s_name_where_no_c_function_is_called_so(self):
        assert kernel_symbol("vadd_0") == "vadd_0"
        assert kernel_symbol("exp") == "texpr_exp" and kernel_symbol("a__b_0") == "texpr_ma_u_ub_u0_v"

    def test_program_text_cannot_leave_a_comment(self):
        assert comment("x /* y */ \\") == "x / * y */ ?"
        assert comment("a\n#include <b>") == "a #include <b>"
        assert comment("caf\u00e9 \u202e ??/") == "caf? ? ? ?/"
        assert len(comment("y" * 500)) == 100

    def test_a_file_name_cannot_leave_the_line_directive(self):
        assert file_name('a/b"c\\d.tex') == "d.tex"
        assert file_name('x"y\nz.tex') == "x_y_z.tex" and file_name("") == "text" and file_name("..") == "text"

    def test_a_buffer_that_is_called_as_another_s_pointer_keeps_its_own_name(self, build):
        body = (build.define("i", (1, "i_lane")), build.statement("A_data", ("i",), build.read("A", "i")))
        block = build.launch("k_0", body, digits=(build.digit("i_lane", "lane", 32),))
        text = source(build.plan((block,), (build.tensor("A", 32), build.tensor("A_data", 32))))
        assert 'A(A_data, "A");' in text and 'A_data_2(A_data_2_data, "A_data");' in text

    def test_words_of_cpp_as_names_compile_to_other_words(self, build):
        body = (
            build.define("for", (1, "i_lane")),
            build.statement("EOF", ("for",), build.op("add", build.read("int", "for"), build.read("tx", "for"))),
        )
        block = build.launch("k_0", body, digits=(build.digit("i_lane", "lane", 32, of="for"),))
        text = source(build.plan((block,), tuple(build.tensor(n, 32) for n in ("int", "tx", "EOF"))))
        assert "EOF_v(for_v) = int_v(for_v) + tx_v(for_v);" in text


class TestValues:
    def text(self, build, value, tensors=(), **more):
        arrays = (build.tensor("A", 256), build.tensor("B", 256), *tensors, build.tensor("C", 256))
        lines = source(one(build, build.statement("C", ("i",), value, **more), arrays)).splitlines()
        return next(line.strip() for line in lines if line.strip().startswith("C("))

    def test_a_product_and_a_sum_of_one_statement_are_contracted(self, build):
        a, b = build.read("A", "i"), build.read("B", "i")
        product = build.op("mul", a, b)
        assert self.text(build, build.op("add", product, a)) == "C(i) = tx::fma(A(i), B(i), A(i));"
        assert self.text(build, build.op("sub", a, product)) == ("C(i) = tx::fma(-(A(i)), B(i), A(i));")
        assert self.text(build, build.op("sub", product, a)) == ("C(i) = tx::fma(A(i), B(i), -A(i));")
        assert self.text(build, product, op=ast.AccOp.ADD) == "C(i) = tx::fma(A(i), B(i), C(i));"

    def test_strict_forbids_it(self, build):
        a, b = build.read("A", "i"), build.read("B", "i")
        value, strict = build.op("add", build.op("mul", a, b), a), (build.attr("strict"),)
        assert self.text(build, value, attrs=strict) == ("C(i) = tx::strict_add(tx::strict_mul(A(i), B(i)), A(i));")
        product = build.op("mul", a, b)
        assert self.text(build, product, attrs=strict, op=ast.AccOp.ADD) == (
            "C(i) = tx::strict_add(C(i), tx::strict_mul(A(i), B(i)));"
        )

    def test_operators_keep_the_tree_s_order(self, build):
        a, b = build.read("A", "i"), build.read("B", "i")
        right = build.op("sub", a, build.op("sub", b, a))
        assert self.text(build, right) == "C(i) = A(i) - (B(i) - A(i));"
        over = build.op("div", a, build.op("div", b, a))
        assert self.text(build, over) == "C(i) = A(i) / (B(i) / A(i));"
        assert self.text(build, build.op("neg", build.op("neg", a))) == "C(i) = -(-A(i));"

    def test_a_select_loads_in_its_arms_only(self, build):
        first = build.less(0, "i")
        value = ast.Select(
            condition=first, then=build.read("A", build.binary("-", "i", 1)), other=build.const(0.0), dtype=F32
        )
        assert self.text(build, value) == "C(i) = 0 < i ? A(i - 1) : 0.0f;"

    def test_a_deep_tree_becomes_temporaries(self, build):
        value = build.read("A", "i")
        for _ in range(2000):
            value = build.op("add", build.op("exp", value), build.read("B", "i"))
        text = source(one(build, build.statement("C", ("i",), value), tuple(build.tensor(n, 256) for n in "ABC")))
        assert max(map(len, text.splitlines())) < 400
        assert text.count("tx::exp(") == 2000 and "const tx::f32 t = " in text and "const tx::f32 t_2 = " in text

    def test_a_select_arm_that_is_too_deep_is_refused(self, build):
        value = build.read("A", "i")
        for _ in range(300):
            value = build.op("exp", value)
        chosen = ast.Select(condition=build.less(0, "i"), then=value, other=build.const(0.0), dtype=F32)
        with pytest.raises(TExprError, match="E0506"):
            self.text(build, chosen)

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (0.1, "0.1f"),
            (1.0, "1.0f"),
            (-2.5, "-2.5f"),
            (1e-46, "0.0f"),
            (1e-45, "1.4e-45f"),
            (16777217.0, "16777216.0f"),
            (3.4028235e38, "3.4028235e+38f"),
            (1e39, "tx::f32_infinity()"),
            (float("-inf"), "-tx::f32_infinity()"),
            (float("nan"), "tx::f32_nan()"),
            (-0.0, "-0.0f"),
        ],
    )
    def test_a_float_literal_is_the_shortest_that_rounds_to_it(self, build, value, text):
        assert self.text(build, build.const(value)) == f"C(i) = {text};"


def test_a_text_without_end_is_refused(build, monkeypatch):
    from texpr.codegen import writer

    monkeypatch.setattr(writer, "MAX_EMITTED_BYTES", 1000)
    with pytest.raises(TExprError, match="E0506"):
        emit_cuda(build.matmul(), TARGET)


def test_a_place_without_emission_is_a_diagnostic(build):
    body = (build.define("i", (1, "i_c")), build.statement("C", ("i",), build.const(1.0)))
    block = build.launch("k_0", body, digits=(build.digit("i_c", "core", 2),))
    with pytest.raises(TExprError, match="E0502"):
        source(build.plan((block,), (build.tensor("C", 2),)))


def test_a_layout_over_threads_is_refused_by_both_emitters(build):
    tile = replace(build.tensor("C", 16, 8), layout=fragment("mma16816", "c"))
    block = build.launch("k_0", (build.statement("C", (3, 5), build.const(1.0)),), block=1)
    planned = build.plan((block,), (tile,))
    for emitted in (lambda: source(planned), lambda: emit_cpu(planned, parse_target("cpu"))):
        with pytest.raises(TExprError, match="E0502"):
            emitted()


def test_an_index_with_an_offset_is_its_digits_and_the_offset(build):
    body = (build.define("i", (32, "i_warp"), (1, "i_lane"), offset=build.binary("-", 0, build.binary("%", "N", 32))),)
    guard = Guard(condition=build.less("i", "N"), body=(build.statement("C", ("i",), build.const(1.0)),))
    digits = (build.digit("i_warp", "warp", 2, weight=32), build.digit("i_lane", "lane", 32))
    block = build.launch("k_0", (*body, guard), block=64, digits=digits)
    text = source(build.plan((block,), (build.tensor("C", "N"),), sizes=("N",)))
    assert re.search(r"const (int|tx::i64) i = 32 \* warp \+ lane \+ 0 - N % 32;", text), text


def test_an_unrolled_loop_says_so_and_a_short_one_does_it_unasked(build):
    def loop(extent, **more):
        acc = build.block_tensor("acc", 8, memory=Memory.REG)
        body = (
            Loop(
                index="k", extent=build.number(extent), body=(build.statement("acc", ("k",), build.const(0.0)),), **more
            ),
        )
        return source(build.plan((build.launch("k_0", body, tensors=(acc,)),), ()))

    assert "TX_UNROLL" not in loop(8) and "TX_UNROLL" in loop(8, unroll=True) and "TX_UNROLL" in loop(4)
    assert "TX_UNROLL_BY(2) for" in loop(8, unroll_by=2) and "TX_UNROLL_BY(1) for" in loop(4, unroll_by=1)


def test_only_the_first_thread_runs_a_statement_that_is_for_one(build):
    statement_ = build.statement("C", (0,), build.const(1.0), once=True)
    assert "if (tx::thread() == 0) C(0) = 1.0f;" in source(one(build, statement_, (build.tensor("C", 1),)))


def test_checks_on_the_device_are_asked_for_by_one_macro(build):
    gather = ast.Gather(value=build.read("idx", "i", dtype=I32))
    planned = one(
        build,
        build.statement("C", ("i",), build.cast(build.read("A", gather, dtype=F16), F32)),
        (build.tensor("A", "N", dtype=F16), build.tensor("idx", 256, dtype=I32), build.tensor("C", 256)),
        sizes=("N",),
    )
    plain, checked = emit_cuda(planned, TARGET), emit_cuda(planned, TARGET, checks=True)
    assert "tx::gathered<tx::i64>(idx(i), N)" in plain.source
    assert checked.source == plain.source.replace(
        '#include "texpr/kernel.cuh"', '#define TX_CHECKS 1\n#include "texpr/kernel.cuh"'
    ).replace(f'#line {line_of(plain)} "', f'#line {line_of(plain) + 1} "')


def line_of(text):
    return int(re.search(r'#line (\d+) "/texpr/kernel.cu"', text.source)[1])


def test_two_spans_of_one_line_are_explained_once(build):
    planned = build.matmul()
    text = source(replace(planned))
    assert text.count("// matmul.tex:3") == 1


ALIGNED = """kernel turned(X: f32[M, N]{align}, Y: f32[N, M]) {{
    par M i, N j {{
        Y[j, i] = X[i, j]
    }}
}}"""


def test_an_array_that_may_begin_beside_a_chunk_is_told_so_and_others_are_not() -> None:
    sizes = {"M": 257, "N": 1003}
    declared = {
        align: [
            line.strip() for line in planned_text(ALIGNED.format(align=align), sizes).splitlines() if "> X(" in line
        ]
        for align in ("", " #align(4)")
    }
    assert declared[""] == ['const tx::Global<const tx::f32, tx::Fixed<1003, 1>> X(X_data, "X");']
    assert declared[" #align(4)"] == ['const tx::Global<const tx::f32, tx::Fixed<1003, 1>, 4> X(X_data, "X");']


def planned_text(text: str, sizes: dict[str, int]) -> str:
    return texpr.parse(text, "turned").only.compile("cuda:sm_90a", sizes=sizes, stop_after="emit").source
