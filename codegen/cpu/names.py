"""Python identifiers for the names of a program, and index expressions written with them.

Names of the source are kept where they can be; a name that Python or the emitted module uses gets an underscore, and
so does one that would meet another. Nothing else of the user's text reaches the module but printable comments.
"""

import builtins
import keyword
import re

from texpr.grammar.ast import Condition, IndexExpr
from texpr.grammar.index.operators import OPERATORS
from texpr.grammar.index.text import LOGIC, python, text
from texpr.grammar.operators import OPERATORS as VALUE_OPERATORS
from texpr.grammar.source import Span

INDEX_FUNCTIONS = {
    word: row.value
    for op, row in OPERATORS.items()
    if not row.between and not hasattr(builtins, word := row.python or op.value)
}
"""The operators of index expressions that are called, and are no functions of Python."""
FLOAT_FUNCTIONS = frozenset(row.cpu.format(name) for row in VALUE_OPERATORS.values() for name in ("f32", "f64")) - {""}
MODULE_NAMES = (
    frozenset(INDEX_FUNCTIONS)
    | FLOAT_FUNCTIONS
    | frozenset(
        """
    STORAGE absolute add_c add_r add_rc at blocks boolean code core exchange each failed finding finding_type
    first float32 float64 floordiv half hold inf inline int16 int32 int64 int8 keep mod mul_c mul_r multiply nan new
    njit opaque np odd_f32 odd_f32_of_i64 old peek pointer prange restrict run shl shr sub_c to_i16 to_i32 to_i64
    to_i8 to_u32 to_u8 task tasks last uint16 uint32 uint8 void workspace zeros
    """.split()  # noqa: SIM905 -- a list of 70 lines says no more
    )
)
_PREFIXES = ("pointer_", "stack_", "decode_", "encode_", "running_")
_RESERVED = MODULE_NAMES | set(keyword.kwlist) | set(keyword.softkwlist) | set(dir(builtins))


class Names:
    """Distinct identifiers for distinct (kind, name) pairs, deterministic in the order of asking. `named` has those of
    the values that the text names since it was last cleared: what a function uses."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._used: set[str] = set()
        self.named: set[str] = set()

    def of(self, kind: str, name: str) -> str:
        """The identifier of a name; `kind` keeps apart what the language keeps apart (buffer, index, launch …)."""
        key = (kind, name)
        if key not in self._given:
            text = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
            if text[0].isdigit() or text.startswith("__"):
                text = f"v{text}"
            while text in _RESERVED or text in self._used or text.startswith(_PREFIXES):
                text = f"v_{text}" if text.startswith(_PREFIXES) else f"{text}_"
            self._used.add(text)
            self._given[key] = text
        return self._given[key]

    def value(self, name: str) -> str:
        """The identifier of a value where the text reads it, which is noted in `named`."""
        identifier = self.of("value", name)
        self.named.add(identifier)
        return identifier

    def text(self, tree: IndexExpr | Condition, level: int = LOGIC) -> str:
        """An index expression on i64 variables, or a condition, in Python; `level` is the precedence of what stands
        around it."""
        return text(tree, python(lambda leaf: self.value(leaf.name))).at(level)

    def reserve(self, kind: str, name: str, identifier: str) -> None:
        """Give a name of the emitter's own, which no source can hold, an identifier of `MODULE_NAMES`."""
        self._given[kind, name] = identifier

    def fresh(self, stem: str) -> str:
        """An identifier that no other name has."""
        number = 0
        while f"{stem}{number}" in self._used or f"{stem}{number}" in _RESERVED:
            number += 1
        self._used.add(f"{stem}{number}")
        return f"{stem}{number}"


def file_name(span_name: str) -> str:
    """The last part of a source's name as it may stand in a comment: printable ASCII on one line, no folder, so that
    the text does not depend on where the program lies."""
    return "".join(c if " " <= c <= "~" else "?" for c in span_name.replace("\\", "/").rsplit("/", 1)[-1])[-80:]


def place(span: Span) -> str:
    """`file.tex:12` for a comment."""
    return f"{file_name(span.source.name)}:{span.line}"
