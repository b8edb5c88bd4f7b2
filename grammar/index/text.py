"""Index expressions and conditions as text: one walk, and a dialect for each language that they are written in.

    text(2 * i + N / 4 < M, LANGUAGE)      2 * i + N / 4 < M
    text(…, python(names))                 2 * i + N // 4 < M
    text(…, JSON)                          ["<", ["+", ["*", 2, "i"], ["/", "N", 4]], "M"]

A dialect gives a value of its own to every node from those of its operands. C++, where widths matter, is in
`codegen/cuda/index.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from texpr.grammar.ast import (
    Always,
    And,
    Compare,
    CompareOp,
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
from texpr.grammar.index.operators import BETWEEN, CALLED, OPERATORS
from texpr.grammar.records import dataclass
from texpr.grammar.walk import fold

T = TypeVar("T")


class Dialect(Protocol[T]):
    """How a language writes numbers, names, operators and conditions."""

    def constant(self, value: int) -> T: ...
    def name(self, leaf: IndexVar | SizeVar) -> T: ...
    def binary(self, op: IndexOp, left: T, right: T) -> T: ...
    def compare(self, op: CompareOp, left: T, right: T) -> T: ...
    def every(self, parts: Sequence[T]) -> T: ...
    def some(self, parts: Sequence[T]) -> T: ...
    def negation(self, part: T) -> T: ...
    def always(self, value: bool) -> T: ...


def text(tree: IndexExpr | Condition, dialect: Dialect[T]) -> T:
    """The expression or condition in a dialect."""

    def write(node: IndexExpr | Condition, parts: list[T]) -> T:
        match node:
            case IndexBinary():
                return dialect.binary(node.op, parts[0], parts[1])
            case IndexVar() | SizeVar():
                return dialect.name(node)
            case IndexConst():
                return dialect.constant(node.value)
            case Compare():
                return dialect.compare(node.op, parts[0], parts[1])
            case And():
                return dialect.every(parts)
            case Or():
                return dialect.some(parts)
            case Not():
                return dialect.negation(parts[0])
            case Always(value=truth):
                return dialect.always(truth)

    return fold(tree, write)


# ---- operators between their operands --------------------------------------------------------------------------


LOGIC, RELATION, SIGNED, SUM, PRODUCT, ATOM = range(6)  # how tightly a text binds


@dataclass(frozen=True, slots=True)
class Written:
    """A text, how tightly it binds, and the operator or the number that it is; `divides`: a quotient or a remainder
    stands in its product, and what is put before it would be divided too."""

    text: str
    level: int = ATOM
    op: IndexOp | None = None
    value: int | None = None
    divides: bool = False

    def at(self, level: int) -> str:
        """The text, in brackets where it binds less tightly than `level`."""
        return self.text if self.level >= level else f"({self.text})"


def _named(leaf: IndexVar | SizeVar) -> str:
    return leaf.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Infix:
    """A dialect with operators between operands: `signs` for those, `calls` for the others. `regroups`: sums of sums
    and products of products need no brackets; `brackets`: every operand that has parts gets them."""

    signs: Mapping[IndexOp, str]
    calls: Mapping[IndexOp, str]
    spelled: Callable[[IndexVar | SizeVar], str] = _named
    regroups: bool = False
    brackets: bool = False
    words: tuple[str, str, str] = ("and", "or", "not ")
    truths: tuple[str, str] = ("false", "true")

    def constant(self, value: int) -> Written:
        return Written(str(value), ATOM if value >= 0 else SIGNED, value=value)

    def name(self, leaf: IndexVar | SizeVar) -> Written:
        return Written(self.spelled(leaf))

    def binary(self, op: IndexOp, left: Written, right: Written) -> Written:
        row = OPERATORS[op]
        if op in self.calls:
            return Written(f"{self.calls[op]}({left.text}, {right.text})", op=op)
        own, sign = SUM if row.between == "sum" else PRODUCT, self.signs[op]
        if op is IndexOp.ADD and right.value is not None and right.value < 0:
            sign, right = self.signs[IndexOp.SUB], self.constant(-right.value)
        same = self.regroups and right.op is op and row.regroups and not right.divides
        first, second = (ATOM, ATOM) if self.brackets else (own, own if same else own + 1)
        divides = row.divides or (left.divides and left.level == own)
        return Written(f"{left.at(first)} {sign} {right.at(second)}", own, op, divides=divides)

    def compare(self, op: CompareOp, left: Written, right: Written) -> Written:
        return Written(f"{left.text} {op.value} {right.text}", RELATION)

    def every(self, parts: Sequence[Written]) -> Written:
        return self._joined(parts, self.words[0], True)

    def some(self, parts: Sequence[Written]) -> Written:
        return self._joined(parts, self.words[1], False)

    def _joined(self, parts: Sequence[Written], word: str, empty: bool) -> Written:
        if not parts:
            return self.always(empty)
        return Written(f" {word} ".join(part.at(RELATION) for part in parts), LOGIC)

    def negation(self, part: Written) -> Written:
        return Written(f"{self.words[2]}({part.text})")

    def always(self, value: bool) -> Written:
        return Written(self.truths[value])


LANGUAGE = Infix(signs=BETWEEN, calls=CALLED)
_PYTHON = {op: row.python or op.value for op, row in OPERATORS.items()}


def in_words(tree: IndexExpr | Condition, level: int = LOGIC) -> str:
    """The expression or condition in the language's own words, in brackets where it binds less tightly than `level`."""
    return text(tree, LANGUAGE).at(level)


def python(spelled: Callable[[IndexVar | SizeVar], str]) -> Infix:
    """Python on integers, with the names that `spelled` gives."""
    calls = {op: _PYTHON[op] for op in CALLED}
    return Infix(signs=_PYTHON, calls=calls, spelled=spelled, regroups=True, truths=("False", "True"))


# ---- JSON ------------------------------------------------------------------------------------------------------


class Json:
    """The data of a manifest: numbers, names, and lists [op, operands…]; codegen/manifest.py says more."""

    def constant(self, value: int) -> Any:
        return value

    def name(self, leaf: IndexVar | SizeVar) -> Any:
        return leaf.name

    def binary(self, op: IndexOp, left: Any, right: Any) -> Any:
        return [op.value, left, right]

    def compare(self, op: CompareOp, left: Any, right: Any) -> Any:
        return [op.value, left, right]

    def every(self, parts: Sequence[Any]) -> Any:
        return ["and", *parts]

    def some(self, parts: Sequence[Any]) -> Any:
        return ["or", *parts]

    def negation(self, part: Any) -> Any:
        return ["not", part]

    def always(self, value: bool) -> Any:
        return ["true" if value else "false"]


JSON: Dialect[Any] = Json()
