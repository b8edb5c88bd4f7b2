"""Habits of other languages: the first message says TExpr's way, and one mistake is one message."""

import pytest

from texpr.grammar.diagnostics import Diagnostic, TExprError
from texpr.grammar.text.parser import parse_text
from texpr.grammar.text.printer import print_module

BODY = " {\n        A[i] = 1.0;\n    }\n}\n"
KERNEL = "kernel k(A: f32[N]) {\n    "


def found(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(TExprError) as caught:
        parse_text(text)
    return caught.value.diagnostics


@pytest.mark.parametrize(
    ("header", "loop"),
    [
        ("for (int i = 0; i < n; i++)", "n i"),
        ("for (int i = 0; i < n; ++i)", "n i"),
        ("for (i = 0; i < n; i = i + 1)", "n i"),
        ("for (size_t j = 0; j != n * 2; j += 1)", "n * 2 j"),
        ("for (let i = 2; i < N - 1; i++)", "2..N - 1 i"),
        ("for (int i = 0; i <= n; i++)", "n + 1 i"),
        ("for (int i = 0;\n         i < n;\n         i++)", "n i"),
        ("for (int i = 0; i < f(a, b); i++)", "f(a, b) i"),
        ("for (int i = 0; i < n; i += 2)", "N i"),
        ("for (int i = n; i > 0; i--)", "N i"),
        ("for (unsigned i = 0u; i < 16u; i++)", "N i"),
        ("for (;;)", "N i"),
        ("for (auto& x : xs; ; )", "N i"),
        ("for (int i = 0; i < a && i < b; i++)", "N i"),
    ],
)
@pytest.mark.parametrize(
    "body", [BODY, "\n        A[i] = 1.0;\n}\n", " A[i] = 1.0 }"], ids=["braces", "line", "same line"]
)
def test_a_loop_of_c_is_one_mistake_with_the_loop_to_write(header: str, loop: str, body: str) -> None:
    (one,) = found(KERNEL + header + body)
    assert one.message == "there is no `for` in TExpr"
    assert one.help is not None and (f"`seq {loop} {{ … }}`" in one.help or "&&" in header)


def test_loops_of_c_in_one_another_are_a_mistake_each() -> None:
    first, second = found(
        f"{KERNEL}for (int i = 0; i < n; i++) for (int j = 0; j < m; j++) {{\n A[i] += 1.0;\n }}\n}}\n"
    )
    assert "seq n i" in (first.help or "") and "seq m j" in (second.help or "")


def test_what_is_wrong_in_the_body_of_a_loop_of_c_and_after_it_is_said_too() -> None:
    text = f"{KERNEL}for (int i = 0; i < n; i++) {{\n A[i] = = 1.0\n }}\n A[0] = ) 1\n}}\nkernel b() {{ x = = 2 }}\n"
    assert [d.primary.span.line for d in found(text) if d.primary] == [2, 3, 5, 7]


def test_a_forbidden_character_in_a_loop_of_c_is_still_said() -> None:
    assert {d.code for d in found(f"{KERNEL}for (int i = 0; \x01 i < n; i++){BODY}")} == {"E0101", "E0104"}


@pytest.mark.parametrize("word", ["par", "seq"])
def test_a_loop_of_texpr_with_the_header_of_c_is_one_mistake(word: str) -> None:
    (one,) = found(f"{KERNEL}{word} (int i = 0; i < N; i++){BODY}")
    assert one.message == "a loop names its extent, not its steps" and "seq N i" in (one.help or "")


@pytest.mark.parametrize(
    ("header", "loop"),
    [
        ("for i in range(n):", "n i"),
        ("for i in range(2, n - 1):", "2..n - 1 i"),
        ("for i in range(0, n):", "n i"),
        ("for i in range(0, n, 2):", "N i"),
        ("for i in par(N):", "N i"),
        ("for i, x in enumerate(xs):", "N i"),
    ],
)
def test_a_loop_of_python_is_one_mistake_with_the_loop_to_write(header: str, loop: str) -> None:
    (one,) = found(f"{KERNEL}{header}\n        A[i] = 1.0\n}}\n")
    assert one.message == "there is no `for` in TExpr" and f"seq {loop} {{" in (one.help or "")
    assert len(found(f"{header}\n    A[i] = 1.0\n")) == 1


@pytest.mark.parametrize("text", ["while (x > 0) {", "while x > 0:", "while true {", "loop {", "do {"])
def test_a_loop_without_an_extent_says_that_loops_have_one(text: str) -> None:
    closing = "\n}" if text.endswith("{") else ""
    (one,) = found(f"{KERNEL}{text}\n A[0] = 1.0{closing}\n}}\n")
    assert "extent" in (one.help or "") and "`if`" in (one.help or "")


@pytest.mark.parametrize(
    ("line", "help"),
    [
        ("// why, it's so", "comments begin with `--`"),
        ("/* why\n it's so */", "comments begin with `--`"),
        ("# why", "comments begin with `--`"),
        ("#pragma unroll", "attributes stand behind the loop: `seq N i #unroll { … }`"),
        ("#pragma omp parallel for", "attributes stand behind the loop: `seq N i #unroll { … }`"),
        ("#include <cuda.h>", "write `import std.mma`"),
        ("#define BM 128", "write `size BM = 128`"),
        ("A[i][j] = 1.0", "`A[i, j]` holds all subscripts"),
    ],
)
def test_a_line_of_another_language_is_one_mistake_with_its_mend(line: str, help: str) -> None:
    for text in (f"{line}\n{KERNEL}par N i {{ A[i] = 1.0 }}\n}}\n", f"{KERNEL}{line}\n par N i {{ A[i] = 1.0 }}\n}}\n"):
        (one,) = found(text)
        assert one.help == help


def test_semicolons_after_statements_and_blocks_are_no_mistake() -> None:
    plain = "kernel k(A: f32[N]) {\n    par N i { A[i] = 1.0 }\n}\n"
    ended = "kernel k(A: f32[N]) {\n    par N i { A[i] = 1.0; ; };\n};\n"
    assert print_module(parse_text(ended)) == print_module(parse_text(plain))


@pytest.mark.parametrize("text", ["for ", "for (", "for (;", "for (;)", "for i in x:\n", "for ((((;", "par (;) "])
def test_many_broken_headers_are_at_most_twenty_messages(text: str) -> None:
    assert 1 <= len(found(text * 2000)) <= 20


def test_words_of_other_languages_stay_names() -> None:
    shown = print_module(parse_text("par N i { loop[i] = repeat[i] + do[i]\n until[i] = f32(i) }"))
    assert "loop[i] = repeat[i] + do[i]\n" in shown and "until[i] = f32(i)\n" in shown
