"""Counts that bound a program from outside: what reaches a limit is accepted, one more is a diagnostic."""

from pathlib import Path

import pytest
from checked import core, refused
from front_end import as_fn, from_text, refusal

from texpr.grammar.check.assembly import MAX_TEXT as MAX_ASM
from texpr.grammar.check.context import MAX_CALLS, MAX_HEIGHT
from texpr.grammar.check.imports import MAX_FILE_BYTES, MAX_IMPORTS
from texpr.grammar.python import function as python
from texpr.grammar.python.embedded import MAX_TEXT
from texpr.grammar.python.function import parse_function
from texpr.grammar.python.types import MAX_ANNOTATION_TOKENS

COPY = "kernel f(A: f32[N]) { par N i { A[i] = 1.0 } }"


def test_the_files_that_a_program_imports_are_counted(tmp_path: Path) -> None:
    for number in range(MAX_IMPORTS + 1):
        (tmp_path / f"m{number}.tex").write_text(f"fn g{number}(x: f32) {{ return x }}\n")
    imports = [f"import m{number}\n" for number in range(MAX_IMPORTS + 1)]
    assert core("".join(imports[:-1]) + COPY, folder=tmp_path)
    assert refused("".join(imports) + COPY, folder=tmp_path) == [
        ("E0103", f"a program imports at most {MAX_IMPORTS} files")
    ]


def test_a_file_that_is_imported_has_a_greatest_size(tmp_path: Path) -> None:
    function = "fn g(x: f32) { return x }\n"
    padding = "-" * (MAX_FILE_BYTES - len(function))
    (tmp_path / "long.tex").write_text(function + padding)
    assert core(f"import long\n{COPY}", folder=tmp_path)
    (tmp_path / "long.tex").write_text(function + padding + "-")
    assert [code for code, _ in refused(f"import long\n{COPY}", folder=tmp_path)] == ["E0210"]


def chain(calls: int, around: str = "") -> str:
    """A kernel that calls functions nested `calls` deep, each inside the operators `around`."""
    functions = [f"fn g{n}(x: f32): f32 {{ return {around}g{n + 1}(x) }}\n" for n in range(calls - 1)]
    last = f"fn g{calls - 1}(x: f32): f32 {{ return x }}\n"
    return "".join(functions) + last + "kernel f(A: f32[N]) { par N i { A[i] = g0(A[i]) } }"


def test_calls_nest_to_a_depth() -> None:
    assert core(chain(MAX_CALLS))
    assert refused(chain(MAX_CALLS + 1)) == [("E0103", f"calls nest deeper than {MAX_CALLS}")]


def test_a_kernel_nests_to_a_height_after_inlining() -> None:
    message = f"the kernel nests deeper than {MAX_HEIGHT} after inlining"
    assert core(chain(4, "- " * 60))
    assert refused(chain(6, "- " * 60)) == [("E0103", message)]


def test_the_text_of_an_asm_has_a_greatest_length() -> None:
    def text(length: int) -> str:
        return f'kernel f(A: f32[32]) {{ fully par 32 l #align(32) #block {{ asm("{"n" * (length - 1)};") }} }}'

    assert core(text(MAX_ASM))
    assert [code for code, _ in refused(text(MAX_ASM + 1))] == ["E0213"]


def test_the_functions_that_a_python_kernel_calls_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["def g0(x: f32) -> f32:\n    return x\n\nh0 = as_fn(g0)\n\n"]
    lines += [f"def g{n}(x: f32) -> f32:\n    return h{n - 1}(x)\n\nh{n} = as_fn(g{n})\n\n" for n in range(1, 9)]
    f = from_text("".join([*lines, "def f(A: f32['N']):\n    A[0] = h8(A[0])\n"]), "counted.py", as_fn=as_fn)
    monkeypatch.setattr(python, "MAX_FUNCTIONS", 10)  # f and nine functions
    assert len(parse_function(f).items) == 10
    monkeypatch.setattr(python, "MAX_FUNCTIONS", 9)
    assert [d.code for d in refusal(f).diagnostics] == ["E0103"]


def test_strings_in_a_python_kernel_have_a_greatest_length() -> None:
    def kernel(length: int) -> object:
        extent = "N + " + "0" * (length - 4)
        return from_text(f"def f(A: f32['N']):\n    for i in par('{extent}'):\n        A[i] = 1.0\n", "string.py")

    assert parse_function(kernel(MAX_TEXT)).name == "f"
    assert [d.code for d in refusal(kernel(MAX_TEXT + 1)).diagnostics] == ["E0103"]


def test_the_parts_of_an_annotation_are_counted() -> None:
    def kernel(terms: int) -> object:
        extent = " + ".join(["N"] * terms)
        return from_text(f"def f(A: 'f32[{extent}]'):\n    A[0] = 1.0\n", "annotation.py")

    most = (MAX_ANNOTATION_TOKENS - 2) // 2  # `f32[`, `]`, the terms and the signs between them
    assert parse_function(kernel(most)).name == "f"
    found = refusal(kernel(most + 1)).diagnostics[0]
    assert (found.code, found.message) == ("E0103", f"the annotation has more than {MAX_ANNOTATION_TOKENS} parts")
