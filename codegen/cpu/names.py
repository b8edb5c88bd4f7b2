"""Python identifiers for the names of a program, and index expressions as Python text.

Names of the source are kept where they can be; a name that Python or the emitted module uses gets an underscore, and
so does one that would meet another. Nothing else of the user's text reaches the module but printable comments.
"""

import builtins
import keyword
import re
from typing import assert_never

from texpr.grammar.ast import (
    Always,
    And,
    Compare,
    Condition,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    Not,
    Or,
    SizeVar,
)
from texpr.grammar.source import Span

MODULE_NAMES = frozenset(
    """
    STORAGE absolute add_c add_r add_rc blocks boolean ceil ceildiv code core cos erf exchange each exp exp2 expm1
    fabs failed finding finding_type first float32 float64 floor floordiv fma half inf inline int16 int32 int64
    int8 keep log log1p log2
    maximum minimum mod mul_c mul_r nan new njit opaque np odd_f32 odd_f32_of_i64 old peek pointer power prange
    restrict rint run shl shr sigmoid_f32 sigmoid_f64 sin sqrt sub_c tanh to_i16 to_i32 to_i64 to_i8
    to_u32 to_u8 task tasks last uint16 uint32 uint8 void workspace xlogy_f32 xlogy_f64 zeros
    """.split()  # noqa: SIM905 -- a list of 70 lines says no more
)
_PREFIXES = ("pointer_", "stack_", "decode_", "encode_")
_RESERVED = MODULE_NAMES | set(keyword.kwlist) | set(keyword.softkwlist) | set(dir(builtins))


class Names:
    """Distinct identifiers for distinct (kind, name) pairs, deterministic in the order of asking."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._used: set[str] = set()

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


_LEVEL = {IndexOp.ADD: 1, IndexOp.SUB: 1, IndexOp.MUL: 2, IndexOp.DIV: 2, IndexOp.MOD: 2}
_SIGN = {IndexOp.ADD: "+", IndexOp.SUB: "-", IndexOp.MUL: "*", IndexOp.DIV: "//", IndexOp.MOD: "%"}


def index_text(expr: IndexExpr, names: Names, level: int = 0) -> str:
    """An index expression as Python text on i64 variables; `level` is the precedence of what stands around it."""
    match expr:
        case IndexConst(value=value):
            return str(value) if value >= 0 or level == 0 else f"({value})"
        case IndexVar(name=name) | SizeVar(name=name):
            return names.of("value", name)
        case IndexBinary(op=IndexOp.CEILDIV | IndexOp.MIN | IndexOp.MAX as op, left=left, right=right):
            return f"{op.value}({index_text(left, names)}, {index_text(right, names)})"
        case IndexBinary(op=IndexOp.ADD, left=left, right=IndexConst(value=value)) if value < 0:
            text = f"{index_text(left, names, 1)} - {-value}"
            return f"({text})" if level > 1 else text
        case IndexBinary(op=op, left=left, right=right):
            mine = _LEVEL[op]
            same = isinstance(right, IndexBinary) and right.op is op and op in (IndexOp.ADD, IndexOp.MUL)
            inner = mine if same else mine + 1
            text = f"{index_text(left, names, mine)} {_SIGN[op]} {index_text(right, names, inner)}"
            return f"({text})" if level > mine else text
        case _:
            assert_never(expr)


def condition_text(condition: Condition, names: Names, top: bool = True) -> str:
    """An affine condition as Python text."""
    match condition:
        case Compare(op=op, left=left, right=right):
            return f"{index_text(left, names, 1)} {op.value} {index_text(right, names, 1)}"
        case And(parts=parts):
            text = " and ".join(condition_text(p, names, False) for p in parts) or "True"
        case Or(parts=parts):
            text = " or ".join(condition_text(p, names, False) for p in parts) or "False"
        case Not(part=part):
            return f"not ({condition_text(part, names)})"
        case Always(value=value):
            return str(value)
        case _:
            assert_never(condition)
    return text if top else f"({text})"
