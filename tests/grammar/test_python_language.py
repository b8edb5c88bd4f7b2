# ruff: noqa: F821, N803 -- kernels are read, not run: sizes stand in strings, tensors have capitals
"""The words of `texpr.language`: complete, light, and of use only in a function that is read."""

import subprocess
import sys
from pathlib import Path

import pytest
from front_end import as_fn

import texpr.grammar
import texpr.language as tx
from texpr.grammar import syntax
from texpr.grammar.check.stage import check
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.python.function import parse_function
from texpr.grammar.text.parser import parse_text
from texpr.grammar.words import FUNCTION_NAMES, TYPE_NAMES
from texpr.language import atomic, exp, f16, f32, fragment, i8, inp, new, par, relu, seq


@pytest.mark.parametrize("name", [*tx.__all__, "bool"])
def test_a_word_outside_a_decorated_function_says_where_it_belongs(name: str) -> None:
    word = getattr(tx, name)
    if name in ("inp", "out", "inout", "type_parameter"):
        return
    with pytest.raises(TExprError, match="only inside a decorated function") as failure:
        word(1)
    assert failure.value.diagnostics[0].code == "E0212"


def test_every_function_of_the_language_has_a_name_in_python() -> None:
    builtin = {"abs", "min", "max", "round", "pow"}
    prelude = Path(texpr.grammar.__file__).parent / "std" / "prelude.tex"
    library = [item.name for item in parse_text(prelude.read_text()).items if isinstance(item, syntax.FnDef)]
    assert set(tx.__all__) | builtin >= {*FUNCTION_NAMES, *library}
    assert {name for name in TYPE_NAMES if getattr(tx, name).__texpr_type__[1] == name} == set(TYPE_NAMES)


def test_the_checker_blames_the_line_of_the_python_file() -> None:
    def twice(x: f32) -> f32:
        return x * unknown_factor

    twice_fn = as_fn(twice)

    def f(A: f32["N"]):
        for i in par("N"):
            A[i, 0] = twice_fn(A[i])
            A[i] = 1.0 + missing

    with pytest.raises(TExprError) as failure:
        check(parse_function(f))
    found = {(d.code, d.primary.span.text, d.primary.span.line) for d in failure.value.diagnostics if d.primary}
    first = f.__code__.co_firstlineno
    assert ("E0203", "A[i, 0]", first + 2) in found
    assert ("E0201", "missing", first + 3) in found
    assert all(Path(d.primary.span.source.name) == Path(__file__) for d in failure.value.diagnostics if d.primary)


def test_a_checked_python_kernel_is_the_checked_text() -> None:
    def f(A: f32["M", "K"], s: f32, C: f32["M"]):
        for i in par("M"):
            best = new(f32)
            best = s
            for k in seq("K"):
                best = max(best, A[i, k])
            C[i] = relu(best) / sum(exp(A[i, k] - best) for k in seq("K"))

    text = """kernel f(A: f32[M, K], s: f32, C: f32[M]) { par M i { new best: f32; best = s
        seq K k { best max= A[i, k] }
        C[i] = relu(best) / sum K k { exp(A[i, k] - best) } } }"""
    assert check(parse_function(f)) == check(parse_text(text))


def test_with_atomic_outside_a_decorated_function_says_so() -> None:
    with pytest.raises(TExprError, match="only inside"), atomic:
        pass
    with pytest.raises(TExprError, match="only inside"):
        fragment[0] = 1


def test_malformed_annotations_are_refused_where_they_are_evaluated() -> None:
    for make in (lambda: inp(3), lambda: inp(inp(f32)), lambda: inp(f32, 3), lambda: f32["N"]["M"], lambda: inp()):
        with pytest.raises(TExprError):
            make()


def test_types_show_as_they_are_written() -> None:
    assert repr(inp(f16["M", 8], "#align(4)")) == "in f16[M, 8] #align(4)"
    assert repr(f32) == "f32"
    assert repr(i8["N", "#align(4)"]) == "i8[N] #align(4)"


def test_the_front_end_imports_neither_lark_nor_numpy() -> None:
    code = (
        "import sys, texpr.grammar.python.function, texpr.language; "
        "print([m for m in ('lark', 'numpy', 'islpy', 'z3') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
