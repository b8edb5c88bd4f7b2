"""What tests of the Python front end share: the same tree as a text, the refusal, functions defined by a text."""

import linecache
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

import texpr.language as tx
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.python.function import parse_function
from texpr.grammar.text.parser import parse_text


def as_fn(function: FunctionType) -> SimpleNamespace:
    """What texpr.fn makes, as far as the front end looks."""
    return SimpleNamespace(__texpr_fn__=function)


def same(function: object, text: str, **options: Any) -> None:
    """The function and the text are one tree, and print alike."""
    from texpr.grammar.text.printer import print_module

    made, read = parse_function(function, **options), parse_text(text, name=getattr(function, "__name__", "main"))
    assert print_module(made) == print_module(read)
    assert made == read


def refusal(function: object, **options: Any) -> TExprError:
    with pytest.raises(TExprError) as failure:
        parse_function(function, **options)
    return failure.value


def names_of(text: str, name: str, **given: object) -> dict[str, Any]:
    """The names that a text defines beside the given ones; linecache keeps it, as it keeps a notebook's cell."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": name, **given}
    exec(compile(text, name, "exec"), names)
    return names


def from_text(text: str, name: str, function: str = "f", **given: object) -> Any:
    """A function of a text in which the words of the language and the given names are known."""
    return names_of(text, name, **vars(tx), **given)[function]
