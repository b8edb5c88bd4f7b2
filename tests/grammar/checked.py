"""What tests of the checker share: the core of a text, its printed lines, and the findings that refuse it."""

from typing import Any

import pytest

from texpr.grammar import ast
from texpr.grammar.check.stage import check, show
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.source import SourceText
from texpr.grammar.text.parser import parse


def core(text: str, **given: Any) -> tuple[ast.Kernel, ...]:
    return check(parse(SourceText("t.tex", text)), **given)


def lines(text: str, **given: Any) -> list[str]:
    """The lines of the only kernel's core."""
    (kernel,) = core(text, **given)
    return [line.strip() for line in show(kernel).splitlines()]


def elementwise(value: str, params: str = "A: f32[N], B: f32[N]", target: str = "B[i]", op: str = "=") -> str:
    """The core of one statement in a `par`."""
    return lines(f"kernel f({params}) {{ par N i {{ {target} {op} {value} }} }}")[-1]


def refused(text: str, **given: Any) -> list[tuple[str, str]]:
    with pytest.raises(TExprError) as found:
        core(text, **given)
    return [(d.code, d.message) for d in found.value.diagnostics]
