# ruff: noqa: F821, N803 -- kernels are read, not run: sizes stand in strings, tensors have capitals
"""Where the text of a function comes from, what spans point at, and the limits of reading it."""

import linecache
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from front_end import from_text, refusal

import texpr.language as tx
from texpr.grammar import syntax
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.python.function import parse_function
from texpr.language import f32, par, seq


class Indented:
    def f(A: f32["N"], größer: f32):  # noqa: N805 -- read, never a method
        pass

    def g(A: f32["N"]):  # noqa: N805 -- read, never a method
        for i in par("N", "#tile(64"):
            A[i] = "ä" + (A[i] + None)


def test_carets_are_right_in_an_indented_function_after_wide_characters() -> None:
    failure = refusal(Indented.g)
    found = [d.primary.span for d in failure.diagnostics if d.primary is not None]
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    for span, text in zip(found, ("(", '"ä"', "None"), strict=True):
        assert lines[span.line - 1][span.column - 1 :].startswith(text)
        assert span.text == text


def test_the_span_of_a_string_s_part_is_the_part() -> None:
    def f(A: f32["N"]):
        for i in par("N - M"):
            A[i] = 1.0

    kernel = parse_function(f).items[0]
    assert isinstance(kernel, syntax.KernelDef)
    loop = kernel.body.body[0]
    assert isinstance(loop, syntax.Par) and isinstance(loop.dims[0].extent, syntax.Binary)
    assert loop.dims[0].extent.right.span.text == "M"
    assert loop.dims[0].index_span.text == "i"


def test_the_decorator_s_strings_are_blamed_where_they_stand() -> None:
    def decorator(*attrs: str, **options: str) -> Any:
        return lambda function: function

    @decorator("#threads(256) #(", where="N % 8 == ")
    def f(A: f32["N"]):
        A[0] = 1.0

    failure = refusal(f, attrs=("#threads(256) #(",), where="N % 8 == ")
    assert [d.primary.span.text for d in failure.diagnostics if d.primary] == ["(", '"N % 8 == "']


def test_control_characters_are_refused_in_comments_too() -> None:
    f = from_text("def f(A: f32['N']):\n    A[0] = 1.0  # \u202e\n", "controls.py")
    assert [d.code for d in refusal(f).diagnostics] == ["E0104"]


def test_a_function_without_source_is_refused_with_the_way_round() -> None:
    scope: dict[str, Any] = dict(vars(tx))
    exec("def f(A: f32['N']):\n    A[0] = 1.0\n", scope)
    for function in (scope["f"], len, Indented, 3, lambda A: A, np.sin):
        failure = refusal(function)
        assert [d.code for d in failure.diagnostics] == ["E0106"]
        assert failure.diagnostics[0].help


def test_a_file_that_changed_since_import_is_refused() -> None:
    f = from_text("def f(A: f32['N']):\n    A[0] = 1.0\n", "changed.py")
    for text in (
        "def g(A: f32['N']):\n    pass\n",
        "x = 1\n",
        "def f(B: f32['N']):\n    pass\n",
        "def f(:\n",
        "",
    ):
        linecache.cache["changed.py"] = (len(text), None, text.splitlines(keepends=True), "changed.py")
        assert [d.code for d in refusal(f).diagnostics] == ["E0106"]


def test_limits_are_diagnostics() -> None:
    nested = "def f(A: f32['N']):\n    A[0] = " + "(" * 90 + "A[0]" + " + 1)" * 90 + "\n"
    assert parse_function(from_text(nested, "nested.py")).name == "f"
    chain = "def f(A: f32['N']):\n    A[0] = " + " and ".join(["A[0] > 0"] * 200) + "\n"
    assert [d.code for d in refusal(from_text(chain, "chain_and.py")).diagnostics] == ["E0103"]
    long = "def f(A: f32['N']):\n    A[0] = 1.0\n" + "    # long\n" * 120_000 + "    A[0] = 2.0\n"
    assert [d.code for d in refusal(from_text(long, "long.py")).diagnostics] == ["E0103"]
    many = "def f(A: f32['N']):\n" + "    del A\n" * 500
    text = many.replace("del A", "import os")
    assert len(refusal(from_text(text, "many.py")).diagnostics) == 20


def test_a_shallow_stack_is_a_diagnostic_too() -> None:
    text = "def f(A: f32['N']):\n    A[0] = " + "(" * 80 + "A[0]" + " + 1)" * 80 + "\n"
    f = from_text(text, "shallow.py")

    def dive(left: int) -> object:
        if left:
            return dive(left - 1)
        try:
            return parse_function(f)
        except TExprError as failure:
            return failure.diagnostics[0].code

    depth = sys.getrecursionlimit()
    frame: FrameType | None = sys._getframe()
    used = 0
    while frame is not None:
        frame, used = frame.f_back, used + 1
    results = [dive(depth - used - spare) for spare in (60, 120, 400)]
    assert all(result == "E0103" or isinstance(result, syntax.Module) for result in results)
    assert results[0] == "E0103"


def test_threads_read_one_function_at_once() -> None:
    def f(A: f32["N"]):
        for i in par("N", "#tile(64)"):
            A[i] = sum(A[k] for k in seq("N - 1"))

    expected, found = parse_function(f), []
    threads = [threading.Thread(target=lambda: found.append(parse_function(f))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8
