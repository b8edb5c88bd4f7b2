"""Every form that the language reference shows is read, printed, and read back the same."""

from pathlib import Path

import pytest

from texpr.grammar import syntax as s
from texpr.grammar.source import SourceText
from texpr.grammar.text.parser import parse, parse_text
from texpr.grammar.text.printer import print_module

FORMS = (Path(__file__).parent / "language_forms.txt").read_text(encoding="utf-8").split("====\n")
ROOT = Path(__file__).parents[2]
FILES = sorted(
    path for folder in ("grammar/std", "examples", "tests/kernels") for path in (ROOT / folder).glob("*.tex")
)


def test_there_are_forms_and_files() -> None:
    assert len(FORMS) > 50
    assert len(FILES) > 50


@pytest.mark.parametrize("text", FORMS)
def test_every_form_of_the_reference_is_read_and_printing_it_is_the_identity(text: str) -> None:
    module = parse_text(text)
    printed = print_module(module)
    again = parse_text(printed)
    assert again == module
    assert print_module(again) == printed


@pytest.mark.parametrize("text", FORMS[:2], ids=["matmul", "seed"])
def test_a_text_in_canonical_form_is_printed_as_it_stands(text: str) -> None:
    assert print_module(parse_text(text)) == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_program_of_the_project_is_read_and_printed_the_same(path: Path) -> None:
    module = parse(SourceText(path.name, path.read_text(encoding="utf-8")))
    assert parse(SourceText(path.name, print_module(module))) == module


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


@pytest.mark.parametrize(
    "joined",
    [
        *(f"x = a {op}\n\n b" for op in ("+", "-", "*", "/", "%", "==", "!=", "<=", ">=", "<", ">", "and", "or")),
        *(f"x = a\n -- c\n {op} b" for op in ("+", "-", "*", "/", "%", "==", "!=", "<=", ">=", "<", ">", "and", "or")),
        *(f"x {op}\n 1" for op in ("=", "+=", "-=", "*=", "max=", "min=")),
        "x = not\n a",
        "par N i,\n M j { }",
        "par 0..\n N i { }",
        "par N i\n{ }",
        "par N i\n#block\n{ }",
        "if a { }\nelse\n{ }",
        "kernel f()\nwhere N > 1,\nM > 1\n{ }",
        "fn f()\nreference\n{ }\n{ }",
        "x = f(\n\na\n,\nb\n)",
        "x = A[\na\n:\nb\n]",
        "x = sum K k {\n\na\n\n}",
    ],
)
def test_a_newline_is_blank_where_the_statement_goes_on(joined: str) -> None:
    one_line = joined.replace(" -- c\n", " ").replace("\n", " ")
    assert print_module(parse_text(joined)).split() == ["--", "c"] * ("-- c" in joined) + one_line_words(one_line)


def one_line_words(text: str) -> list[str]:
    return print_module(parse_text(text)).split()


@pytest.mark.parametrize(
    "text", ["x = 1\ny = 2", "x = 1;y = 2", "par N i { }\ny = 2", "par N i { } y = 2", "f(a)\nf(b)"]
)
def test_a_newline_a_semicolon_or_a_closing_brace_ends_a_statement(text: str) -> None:
    assert len(parse_text(text).items) == 2
