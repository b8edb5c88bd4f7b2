"""The reserved words of the language, as plain tuples, for the lexer, both front ends and the checks of names.

A reserved word is never an identifier: not of a kernel, buffer, size, index, attribute or module.
Library functions written in TExpr (`gelu`, `silu`, ...) are ordinary names and are not listed here.
"""

from typing import Final

from texpr.grammar.operators import FUNCTIONS

KEYWORDS: Final[tuple[str, ...]] = (
    "kernel", "fn", "import", "size", "where",
    "par", "seq", "fully", "new", "let", "reg", "if", "else", "anchor", "atomic", "asm", "return", "reference",
    "in", "out", "inout", "shared", "global",
    "select", "sum", "prod", "maximum", "minimum",
    "and", "or", "not", "inf", "nan", "true", "false",
)  # fmt: skip
"""Words with a place of their own in the grammar."""

TYPE_NAMES: Final[tuple[str, ...]] = (
    "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u32", "u8", "bool",
)  # fmt: skip
"""Element types; in an expression the name of a type is its cast."""

FUNCTION_NAMES: Final[tuple[str, ...]] = tuple(FUNCTIONS)
"""Functions that the language itself gives a meaning."""

STATEMENT_WORDS: Final[tuple[str, ...]] = (
    "kernel", "fn", "import", "size", "par", "seq", "fully", "new", "let", "reg", "if", "anchor", "atomic", "asm",
    "return",
)  # fmt: skip
"""Keywords that only ever begin a statement or a declaration."""

RESERVED: Final[frozenset[str]] = frozenset(KEYWORDS + TYPE_NAMES + FUNCTION_NAMES)
"""All words that may not be declared."""
