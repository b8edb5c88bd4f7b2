"""Every form that the language reference shows is read, printed, and read back the same."""

import pytest

from texpr.grammar import syntax as s
from texpr.grammar.parser import parse, parse_text
from texpr.grammar.printer import print_module
from texpr.grammar.source import SourceText

MATMUL = """\
-- matmul.tex
kernel matmul(A: f16[M, K], B: f16[K, N], C: f32[M, N]) {
    par M i, N j {
        C[i, j] = sum K k { A[i, k] * B[k, j] }
    }
}
"""

SEED = """\
par M i {
    par N j {
        seq K k {
            C[i * N + j] += A[i * K + k] * B[k * N + j]
        }
    }
}
"""

MMA = """\
import std.mma
fn mma_m16n8k16(in a: f16[16, 16], in b: f16[16, 8], inout c: f32[16, 8]) reference {
    par 16 i, 8 j { c[i, j] += sum 16 k { f32(a[i, k]) * f32(b[k, j]) } }
} {
    fully par 32 |lane| #align(32) #block {
        reg ra: f16[8] = fragment(a, mma16816.a, lane); reg rb: f16[4] = fragment(b, mma16816.b, lane)
        reg rc: f32[4] = fragment(c, mma16816.c, lane)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, …", inout: rc, in: ra, rb)
        fragment(c, mma16816.c, lane) = rc
    }
}
"""

STATEMENTS = [
    "kernel f(A: f32[N]) where N % 8 == 0, N <= 65536 { A[0] = 0 }",
    "kernel f(in A: f16[M, K] #strides(1, M), out B: f32[2 * M + 1] #layout(col) #align(8), alpha: f32) #tf32 { }",
    "kernel f(\n    A: f32[N],\n    B: f32[N],\n) #threads(128) #persistent\n{\n}",
    "size BM = 128",
    "size LEAST = 0x10",
    "import tiles",
    "par N i { A[i] = 0 }",
    "par N |i| { A[i] = 0 }",
    "par N i, M j #tile(64, 64) { A[i, j] = 0 }",
    "par M i, N j #tile(block: 128, 128, warp: 64, 32, thread: 8, 4) { A[i, j] = 0 }",
    "par M i { par N - i - 1 j { A[i, j] = 0 } }",
    "par ceildiv(M, 128) b { par min(16, N - 16 * b) i { A[i] = 0 } }",
    "par 1..N - 1 i { A[i] = A0[i - 1] + A0[i + 1] }",
    "par (N + 1) / 2 i { A[i] = 0 }",
    "fully par N |i| #align(32) #block { A[i] = 0 }",
    "seq K k #stages(3) #ordered { s += A[k] }",
    "new acc: f32[16]",
    "new s: f32",
    "new shared tile: f16[128, 64] #strides(72, 1) #pad #swizzle",
    "new reg r: f32[8]",
    "new global w: f32[N]",
    "new acc 16",
    "v[i, j] = e",
    "v[i, j] += e #tf32",
    "v[i] -= e; v[i] *= e; v[i] max= e; v[i] min= e",
    "v = max(v, e)",
    "let x = A[i:16, k:8]",
    "let row = A[i]",
    "if i < N and not (j == 0 or j > 3) { v[i] = 0 } else if i == N { v[i] = 1 } else { v[i] = 2 }",
    "if i < N { v[i] = 0 }\nelse { v[i] = 1 }",
    "anchor load(A[i:16])",
    "atomic H[b[i]] += 1",
    "x = select(i > 0, A[i - 1], 0.0)",
    "x = f32(y) + i8(z) + fma(a, b, c) - inf * nan / 1e-6 + 1.0 % 0x1F",
    "x = true; y = false",
    "b[i] = A[idx[i] + 1, j] #unique",
    "v[i:16, j:8] = f(A[i:16], B[0:K, j:8])",
    "f(A[i:16], b)",
    "g()",
    "reg x: f16[8] = fragment(a, mma16816.a, lane)",
    "reg x = e",
    'asm("bar.sync 0;")',
    'asm("x \\" y", out: a, b, in: c, clobber: "memory")',
    "fn f(a: T[m, n], out b: T[m]) { par m i { b[i] = sum n j { a[i, j] } } }",
    "fn gelu(x: f32): f32 { return 0.5 * x * (1.0 + erf(x * 0.7071067811865476)) }",
    "fn nothing(x: f32) { return }",
    "m = maximum N i { abs(A[i]) } - minimum N i { A[i] } * prod 2..N i, M j #ordered { A[i] }",
    "x = f(sum K k {\n    A[k]\n}, 1)",
    "x = a - -b",
    "x = -(-a)",
    "x = not (not a)",
    "x = (a + b) * c - (d - (e - f)) / (g / h)",
    "x = (a == b) == (c < d)",
    "if a != b { x = 0 }",
    "x = a +\n    b\n    * c\n    and d",
    "x = A[i,\n      j]",
    "{}".join(("par N i ", "")),
]


@pytest.mark.parametrize("text", [MATMUL, SEED, MMA, *STATEMENTS])
def test_every_form_of_the_reference_is_read_and_printing_it_is_the_identity(text: str) -> None:
    module = parse_text(text)
    printed = print_module(module)
    again = parse_text(printed)
    assert again == module
    assert print_module(again) == printed


@pytest.mark.parametrize("text", [MATMUL, SEED])
def test_a_text_in_canonical_form_is_printed_as_it_stands(text: str) -> None:
    assert print_module(parse_text(text)) == text


def test_the_tree_of_a_band_is_as_documented() -> None:
    module = parse_text("par M i, N j #tile(64, 64) { C[i, j] = sum K k { A[i, k] } }")
    (band,) = module.items
    m, n, k, i, j = (s.Name(name=name) for name in ("M", "N", "K", "i", "j"))
    size = s.AttrArg(value=s.IntLit(value=64, text="64"))
    body = s.View(name="A", subscripts=(i, s.Name(name="k")))
    value = s.Reduce(op="sum", dims=(s.Dim(extent=k, index="k"),), body=body)
    assign = s.Assign(target=s.View(name="C", subscripts=(i, j)), op="=", value=value)
    assert band == s.Par(
        dims=(s.Dim(extent=m, index="i"), s.Dim(extent=n, index="j")),
        attrs=(s.Attr(name="tile", args=(size, size)),),
        body=s.Block(body=(assign,)),
    )


def test_spans_cover_what_they_name() -> None:
    module = parse_text("x = (a + b) * c")
    (assign,) = module.items
    assert isinstance(assign, s.Assign) and isinstance(assign.value, s.Binary)
    assert assign.span.text == "x = (a + b) * c"
    assert assign.value.span.text == "(a + b) * c"
    assert assign.value.left.span.text == "a + b"


def test_a_bare_file_is_named_after_its_stem() -> None:
    assert parse(SourceText("dir/my-scan.tex", "x = 1")).name == "my_scan"
    assert parse(SourceText("2d.tex", "x = 1")).name == "_2d"
    assert parse(SourceText("sum.tex", "x = 1")).name == "sum_"
    assert parse_text("x = 1").name == "main"


def test_an_empty_text_is_an_empty_module() -> None:
    assert parse_text("").items == ()
    assert parse_text("\n ;\n;; \n-- only this\n").dangling == (s.Comment(text=" only this"),)


def test_two_minus_signs_after_a_sign_are_not_a_comment() -> None:
    assert parse_text("x = a--b") == parse_text("x = a - (-b)")
    (commented,) = parse_text("x = a --b").items
    assert commented.trivia == s.Trivia(trailing=s.Comment(text="b"))


def test_windows_newlines_and_a_byte_order_mark_are_read() -> None:
    assert parse_text("\ufeffx = 1\r\ny = 2\r\n") == parse_text("x = 1\ny = 2\n")
