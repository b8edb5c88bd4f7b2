"""What a name of a Python function's body stands for: a constant, a word of the language, a type, a `fn`, a library.

Nothing is run: a name is looked up in the function's cells, globals and builtins, a dotted name only through modules,
and an object is known by the attributes that `texpr.language` and the decorators set (`__texpr_word__`,
`__texpr_type__`, `__texpr_module__`, `__texpr_fn__`).
"""

import math
import re
import sys
from types import FunctionType, ModuleType
from typing import TypeVar

from texpr.grammar import syntax
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.text.limits import MAX_FLOAT_DIGITS, MAX_INTEGER
from texpr.grammar.types import ELEMENT_TYPES
from texpr.grammar.words import FUNCTION_NAMES, RESERVED

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")

LOOPS = ("par", "seq", "fully_par")
STATEMENT_WORDS = ("new", "reg", "atomic", "attr", "anchor", "asm")
REDUCTIONS = {"sum": "sum", "prod": "prod", "max": "maximum", "min": "minimum", "maximum": "maximum",
              "minimum": "minimum"}  # fmt: skip
TYPE_WORDS = ("inp", "out", "inout", "size")
DIRECTIONS = {"inp": "in", "out": "out", "inout": "inout"}
WORDS = frozenset(
    (*LOOPS, *STATEMENT_WORDS, *REDUCTIONS, *TYPE_WORDS, *FUNCTION_NAMES, *ELEMENT_TYPES, "select", "fragment")
)  # fmt: skip
"""Names that mean themselves in a body where Python gives them no other object."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the language, in its Python spelling (`fully_par`, `max`)."""

    name: str


@dataclass(frozen=True, slots=True)
class TypeObject:
    """An object of `texpr.language`: a type, with a shape where one was given."""

    direction: str | None
    element: str
    shape: tuple[object, ...] | None
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LibraryPath:
    """`std`, `std.mma`, or the function `std.mma.name` of one."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FnObject:
    """An object that texpr.fn made; `function` is the Python function under it, `reference` the one that gives its
    meaning where the body is one that only hardware can run."""

    function: FunctionType
    reference: FunctionType | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    value: int | float | bool


@dataclass(frozen=True, slots=True)
class Unknown:
    """No such name in Python: a size, or a mistake that the checker finds."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A Python object that has no meaning in TExpr; `what` names its type."""

    what: str


@dataclass(frozen=True, slots=True)
class NotRun:
    """What a name of a file stands for that was read and not run: a value that only running the file gives."""


Meaning = Word | TypeObject | LibraryPath | FnObject | Constant | Unknown | Foreign | NotRun


def type_object(value: object) -> TypeObject | None:
    """The type that a language object stands for; None for any other object, also a malformed one."""
    parts = _attribute(value, "__texpr_type__")
    if not (isinstance(parts, tuple) and len(parts) == 4):
        return None
    direction, element, shape, attributes = parts
    if not (isinstance(element, str) and isinstance(attributes, tuple) and isinstance(shape, tuple | None)):
        return None
    if not (direction is None or isinstance(direction, str)):
        return None
    return TypeObject(direction, element, shape, tuple(str(attribute) for attribute in attributes))


def _attribute(value: object, name: str) -> object:
    try:
        return getattr(value, name, None)
    except Exception:  # a foreign object's own __getattr__ may raise anything; then it is not ours
        return None


def _number(value: object) -> int | float | bool | None:
    """A Python or NumPy scalar as a plain number; None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    match value:
        case bool():
            return value
        case int():
            return int.__add__(value, 0)
        case float():
            return float.__add__(value, 0.0) if value else float.__abs__(value) * math.copysign(1.0, value)
        case _:
            return None


def meaning_of(value: object, name: str) -> Meaning:
    """The meaning of a Python object that is bound to `name`."""
    if isinstance(value, NotRun):
        return value
    number = _number(value)
    if number is not None:
        return Constant(number)
    if isinstance(value, ModuleType):
        return Foreign("a module")
    word = _attribute(value, "__texpr_word__")
    if isinstance(word, str):
        return Word(word)
    of_type = type_object(value)
    if of_type is not None:
        return of_type
    path = _attribute(value, "__texpr_module__")
    if isinstance(path, tuple) and all(isinstance(part, str) for part in path):
        return LibraryPath(path)
    if isinstance(value, TypeVar):
        return TypeObject(None, value.__name__, None, ())
    function = _attribute(value, "__texpr_fn__")
    if isinstance(function, FunctionType):
        reference = _attribute(value, "__texpr_reference__")
        return FnObject(function, reference if isinstance(reference, FunctionType) else None)
    kind = type(value).__name__
    return Foreign("a builtin function" if kind == "builtin_function_or_method" else f"a {kind}")


class Names:
    """The names that a function sees outside itself."""

    def __init__(self, function: FunctionType) -> None:
        code = function.__code__
        self.own = frozenset((*code.co_varnames, *code.co_cellvars))
        self._globals = function.__globals__
        self._builtins: dict[str, object] = dict(vars(sys.modules["builtins"]))
        self._cells: dict[str, object] = {}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                self._cells[name] = cell.cell_contents
            except ValueError:  # the enclosing function has not assigned it yet
                continue

    def meaning(self, name: str, attributes: tuple[str, ...] = ()) -> Meaning:
        """What `name.attribute…` stands for; dots are followed through modules and libraries only."""
        if name in self.own:
            return Unknown()
        if name in self._cells:
            value = self._cells[name]
        elif name in self._globals:
            value = self._globals[name]
        elif not attributes and name in WORDS:
            return TypeObject(None, name, None, ()) if name in ELEMENT_TYPES else Word(name)
        elif name in self._builtins:
            value = self._builtins[name]
        else:
            return Unknown()
        if value is self._builtins.get(name) and name in WORDS and not attributes:
            return TypeObject(None, name, None, ()) if name in ELEMENT_TYPES else Word(name)
        for number, attribute in enumerate(attributes):
            if isinstance(value, NotRun):
                return value
            path = _attribute(value, "__texpr_module__")
            if isinstance(path, tuple):
                return LibraryPath((*path, *attributes[number:]))
            if not isinstance(value, ModuleType):
                return Foreign("an attribute of an object")
            value = _attribute(value, attribute)
            if value is None:
                return Foreign("an unknown name of a module")
        return meaning_of(value, name)


def is_identifier(name: str) -> bool:
    """Whether a Python name can be declared in TExpr: ASCII and not reserved."""
    return IDENTIFIER.fullmatch(name) is not None and name not in RESERVED


def literal(value: int | float | bool, span: Span, text: str | None = None) -> syntax.Expr | None:
    """A number as TExpr spells it; `text` is the author's spelling where TExpr shares it. None: too large."""
    match value:
        case bool():
            return syntax.BoolLit(value=value, span=span)
        case int():
            if abs(value) > MAX_INTEGER:
                return None
            shared = text is not None and re.fullmatch(r"0x[0-9a-fA-F]+|[0-9]+", text) is not None
            spelled = text if shared and text is not None else str(abs(value))
            positive: syntax.Expr = syntax.IntLit(value=abs(value), text=spelled, span=span)
        case float():
            shared = (
                text is not None
                and len(text) <= MAX_FLOAT_DIGITS
                and re.fullmatch(r"[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", text) is not None
            )
            spelled = text if shared and text is not None else repr(abs(value))
            positive = syntax.FloatLit(text=spelled, span=span)
    negative = value < 0 or (isinstance(value, float) and math.copysign(1.0, value) < 0 and not math.isnan(value))
    return syntax.Unary(op="-", operand=positive, span=span) if negative else positive
