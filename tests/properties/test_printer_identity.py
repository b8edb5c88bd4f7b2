"""Printing a surface tree and parsing the text gives the same tree, whatever the tree."""

import re
from dataclasses import replace
from functools import partial
from typing import TypeVar
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from texpr.grammar import syntax as s
from texpr.grammar.text import printer
from texpr.grammar.text.lexer import FORBIDDEN
from texpr.grammar.text.parser import parse_text
from texpr.grammar.text.printer import print_module
from texpr.grammar.text.wrapping import wrapped
from texpr.grammar.words import FUNCTION_NAMES, KEYWORDS, RESERVED, TYPE_NAMES

S = TypeVar("S", bound=s.Statement)

letters = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,4}", fullmatch=True)
declared = st.one_of(st.sampled_from("ijkMNKABC"), letters.filter(lambda w: w not in RESERVED))
used = st.one_of(declared, letters.filter(lambda w: w not in KEYWORDS))
called = st.one_of(declared, st.sampled_from(TYPE_NAMES + FUNCTION_NAMES))
levels = st.sampled_from([None, "shared", "global", "reg"])

integers = st.integers(0, 2**64 - 1).flatmap(
    lambda n: st.sampled_from([s.IntLit(value=n, text=str(n)), s.IntLit(value=n, text=f"0x{n:X}")])
)
floats = st.one_of(
    st.floats(min_value=0, allow_nan=False, allow_infinity=False).map(repr).filter(lambda t: re.search(r"[.e]", t)),
    st.sampled_from(["inf", "nan", "1e-6", "1E+9", "007.500"]),
).map(lambda text: s.FloatLit(text=text))
strings = st.from_regex(r'([^"\\\x00-\x1f]|\\[^\x00-\x1f]){0,6}', fullmatch=True).filter(
    lambda text: not FORBIDDEN.search(text)
)
leaves = st.one_of(
    integers,
    floats,
    st.booleans().map(lambda value: s.BoolLit(value=value)),
    used.map(lambda name: s.Name(name=name)),
    st.builds(s.Member, owner=used, name=used),
)
BINARY = ["+", "-", "*", "/", "%", "==", "!=", "<=", ">=", "<", ">", "and", "or"]


def _grown(inner: st.SearchStrategy[s.Expr]) -> st.SearchStrategy[s.Expr]:
    parts = st.one_of(inner, st.builds(s.Slice, start=inner, extent=inner))
    some = st.lists(parts, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(s.Unary, op=st.sampled_from(["-", "not"]), operand=inner),
        st.builds(s.Binary, op=st.sampled_from(BINARY), left=inner, right=inner),
        st.builds(s.View, name=used, subscripts=some),
        st.builds(s.Call, name=called, args=st.one_of(st.just(()), some)),
        st.builds(s.Call, name=st.just("select"), args=some),
        st.builds(
            s.Reduce,
            op=st.sampled_from(["sum", "prod", "maximum", "minimum"]),
            dims=_dims(inner),
            attrs=_attrs(inner),
            lets=st.lists(st.builds(s.Let, name=declared, value=inner), max_size=2).map(tuple),
            body=inner,
        ),
    )


def _dims(inner: st.SearchStrategy[s.Expr]) -> st.SearchStrategy[tuple[s.Dim, ...]]:
    extents = st.one_of(inner, st.builds(s.Range, low=inner, high=inner))
    return st.lists(st.builds(s.Dim, extent=extents, index=declared), min_size=1, max_size=2).map(tuple)


def _attrs(inner: st.SearchStrategy[s.Expr]) -> st.SearchStrategy[tuple[s.Attr, ...]]:
    args = st.lists(st.builds(s.AttrArg, level=st.one_of(st.none(), used), value=inner), max_size=2).map(tuple)
    return st.lists(st.builds(s.Attr, name=used, args=args), max_size=2).map(tuple)


exprs: st.SearchStrategy[s.Expr] = st.recursive(leaves, _grown, max_leaves=8)
simple_exprs: st.SearchStrategy[s.Expr] = st.recursive(leaves, _grown, max_leaves=3)
dims = _dims(simple_exprs)
attrs = _attrs(leaves)
types = st.builds(
    s.TypeExpr,
    element=used,
    shape=st.one_of(st.none(), st.lists(simple_exprs, max_size=2).map(tuple)),
)
comments = st.builds(
    s.Comment,
    text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
    .filter(lambda text: not FORBIDDEN.search(text))
    .map(str.rstrip),
    blank_before=st.booleans(),
)
trivia = st.builds(
    s.Trivia,
    leading=st.lists(comments, max_size=2).map(tuple),
    trailing=st.one_of(st.none(), comments.map(lambda c: replace(c, blank_before=False))),
    blank_before=st.booleans(),
)
views = st.builds(s.View, name=used, subscripts=st.lists(simple_exprs, min_size=1, max_size=2).map(tuple))
calls = st.builds(s.Call, name=called, args=st.lists(simple_exprs, max_size=2).map(tuple))
names = used.map(lambda name: s.Name(name=name))
ops = st.sampled_from(["=", "+=", "-=", "*=", "max=", "min="])


def _is_a_size(expr: s.Expr) -> bool:
    """False for `f32[4]`, which the parser takes for a type without its colon."""
    return not (isinstance(expr, s.View | s.Name) and expr.name in TYPE_NAMES)


simple = st.one_of(
    st.builds(s.Assign, trivia=trivia, target=st.one_of(views, names, calls), op=ops, value=exprs, attrs=attrs),
    st.builds(s.Atomic, trivia=trivia, target=st.one_of(views, names), op=ops, value=exprs, attrs=attrs),
    st.builds(s.New, trivia=trivia, level=levels, name=declared, type=types, attrs=attrs),
    st.builds(s.New, trivia=trivia, level=levels, name=declared, flat_extent=exprs.filter(_is_a_size), attrs=attrs),
    st.builds(s.Let, trivia=trivia, name=declared, value=exprs),
    st.builds(s.Reg, trivia=trivia, name=declared, type=st.one_of(st.none(), types), value=exprs),
    st.builds(s.Anchor, trivia=trivia, value=exprs),
    st.builds(s.CallStmt, trivia=trivia, call=calls),
    st.builds(s.Return, trivia=trivia, value=st.one_of(st.none(), exprs)),
    st.builds(s.SizeDef, trivia=trivia, name=declared, value=st.one_of(st.none(), exprs)),
    st.builds(
        s.Asm,
        trivia=trivia,
        text=st.builds(s.StringLit, text=strings),
        operands=st.lists(
            st.builds(
                s.AsmOperand,
                label=st.sampled_from(["in", "out", "inout", "clobber"]),
                value=st.one_of(simple_exprs, st.builds(s.StringLit, text=strings)),
            ),
            max_size=3,
        ).map(tuple),
    ),
)


def _settled(items: list[S], dangling: list[s.Comment]) -> tuple[tuple[S, ...], tuple[s.Comment, ...]]:
    """The first thing between braces has no empty line before it."""
    if not items:
        return (), tuple(replace(c, blank_before=c.blank_before and n > 0) for n, c in enumerate(dangling))
    first = items[0].trivia
    if first.leading:
        first = replace(first, leading=(replace(first.leading[0], blank_before=False), *first.leading[1:]))
    else:
        first = replace(first, blank_before=False)
    return (replace(items[0], trivia=first), *items[1:]), tuple(dangling)


def _blocks(inner: st.SearchStrategy[s.Stmt]) -> st.SearchStrategy[s.Block]:
    return st.builds(_settled, st.lists(inner, max_size=3), st.lists(comments, max_size=2)).map(
        lambda parts: s.Block(body=parts[0], dangling=parts[1])
    )


def _nested(inner: st.SearchStrategy[s.Stmt]) -> st.SearchStrategy[s.Stmt]:
    blocks = _blocks(inner)
    last = st.builds(s.If, condition=exprs, then=blocks, orelse=st.one_of(st.none(), blocks))
    return st.one_of(
        st.builds(s.Par, trivia=trivia, dims=dims, attrs=attrs, body=blocks, fully=st.booleans()),
        st.builds(s.Seq, trivia=trivia, dims=dims, attrs=attrs, body=blocks),
        st.builds(s.If, trivia=trivia, condition=exprs, then=blocks, orelse=st.one_of(st.none(), blocks, last)),
    )


statements: st.SearchStrategy[s.Stmt] = st.recursive(simple, _nested, max_leaves=4)
blocks = _blocks(statements)
params = st.lists(
    st.builds(
        s.Param,
        direction=st.sampled_from([None, "in", "out", "inout"]),
        name=declared,
        type=types,
        attrs=attrs,
    ),
    max_size=3,
).map(tuple)
items: st.SearchStrategy[s.Item] = st.one_of(
    statements,
    st.builds(s.Import, trivia=trivia, path=st.lists(used, min_size=1, max_size=3).map(tuple)),
    st.builds(
        s.KernelDef,
        trivia=trivia,
        name=declared,
        params=params,
        where=st.lists(simple_exprs, max_size=2).map(tuple),
        attrs=attrs,
        body=blocks,
    ),
    st.builds(
        s.FnDef,
        trivia=trivia,
        name=declared,
        params=params,
        result=st.one_of(st.none(), types),
        attrs=attrs,
        reference=st.one_of(st.none(), blocks),
        body=blocks,
    ),
)
modules = st.builds(_settled, st.lists(items, max_size=3), st.lists(comments, max_size=2)).map(
    lambda parts: s.Module(name="main", items=parts[0], dangling=parts[1])
)


@settings(max_examples=100, deadline=None)
@given(modules)
def test_printing_then_parsing_is_the_identity_on_modules(module: s.Module) -> None:
    printed = print_module(module)
    assert parse_text(printed) == module
    assert print_module(parse_text(printed)) == printed


@settings(max_examples=60, deadline=None)
@given(modules, st.integers(10, 60))
def test_breaking_lines_anywhere_keeps_the_tree(module: s.Module, columns: int) -> None:
    with patch.object(printer, "wrapped", partial(wrapped, columns=columns)):
        printed = print_module(module)
        assert parse_text(printed) == module
        assert print_module(parse_text(printed)) == printed


@settings(max_examples=300, deadline=None)
@given(exprs)
def test_printing_then_parsing_is_the_identity_on_expressions(expr: s.Expr) -> None:
    module = s.Module(name="main", items=(s.Let(name="x", value=expr),))
    assert parse_text(print_module(module)) == module


def test_a_reduction_that_ends_in_a_minus_keeps_its_statements_apart() -> None:
    module = parse_text("par sum 9 i { let first = 0.25; -first } i {}\n")
    with patch.object(printer, "wrapped", partial(wrapped, columns=10)):
        printed = print_module(module)
    assert "let first = 0.25;\n" in printed
    assert parse_text(printed) == module
