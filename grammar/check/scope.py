"""Names: what a name can stand for, and the scopes that hold them.

Shadowing is an error, so a scope chain is one table per block and a name has one meaning wherever it is visible.
"""

from collections.abc import Iterator
from dataclasses import field

from texpr.grammar import syntax
from texpr.grammar.ast import IndexExpr, Subscript
from texpr.grammar.check.typing import Value
from texpr.grammar.diagnostics import Label
from texpr.grammar.operators import BUILTINS
from texpr.grammar.records import dataclass
from texpr.grammar.refusals import refuse
from texpr.grammar.source import Span
from texpr.grammar.types import ELEMENT_TYPES, I64, DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One dimension of a buffer under a view: fixed at `start`, or running from it."""

    start: Subscript
    sliced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewName:
    """A buffer, or a renaming of its subscripts. `frozen_as` says why it cannot be written: "an `in` parameter"."""

    buffer: str
    parts: tuple[Part, ...]
    shape: tuple[IndexExpr, ...]
    frozen_as: str | None = None
    alias: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexName:
    """An index, a size, or a `let` of an index expression; as a value it has `dtype`."""

    index: IndexExpr
    what: str
    dtype: DType = I64


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueName:
    """A scalar parameter of a `fn` that stands for the argument's expression, or a `let` of a literal."""

    value: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeName:
    """A type parameter."""

    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class FnName:
    """A function and the scope of its module."""

    definition: syntax.FnDef
    module: "Scope"
    library: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """A name whose definition was refused: its uses are not reported again."""


Entity = ViewName | IndexName | ValueName | TypeName | FnName | Poison


def describe(entity: Entity) -> str:
    """What the name is, in the language's words."""
    match entity:
        case ViewName():
            return "a view" if entity.alias else entity.frozen_as or "a buffer"
        case IndexName():
            return entity.what
        case ValueName():
            return "a value"
        case TypeName():
            return "a type parameter"
        case FnName():
            return "a function"
        case Poison():
            return "a name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    entity: Entity
    span: Span


@dataclass(slots=True)
class Scope:
    """A chain of blocks. The outermost is a module's; `define` refuses every name that is visible already."""

    parent: "Scope | None" = None
    names: dict[str, Binding] = field(default_factory=dict)

    def lookup(self, name: str) -> Binding | None:
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def visible(self) -> Iterator[tuple[str, Binding]]:
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names.items()
            scope = scope.parent

    def known(self) -> frozenset[str]:
        """The visible names, without those of the library."""
        names = self.visible()
        return frozenset(n for n, b in names if not (isinstance(b.entity, FnName) and b.entity.library))

    def define(self, name: str, entity: Entity, span: Span) -> None:
        """Enter a name; E0202 where it has a meaning already. The name is entered all the same (the last wins), except
        over one whose definition was refused here.

        Only the library's functions are ordinary names, which a program may take for itself.
        """
        before = self.lookup(name)
        if before is not None and isinstance(before.entity, Poison) and name in self.names:
            return
        if before is not None and isinstance(before.entity, FnName) and before.entity.library:
            before = None
        if not isinstance(entity, Poison) or before is None:
            self.names[name] = Binding(entity=entity, span=span)
        if before is not None and not isinstance(before.entity, Poison):
            what = describe(before.entity)
            same = (Label(span=before.span, text=f"`{name}` is {what} here"),) if before.span.source.text else ()
            raise refuse(
                "E0202",
                f"`{name}` is {what} already",
                span,
                secondary=same,
                help="choose another name: shadowing is an error",
            )
        reserved = reserved_as(name)
        if reserved is not None:
            raise refuse("E0202", f"`{name}` is {reserved} of the language", span, help="choose another name")


def reserved_as(name: str) -> str | None:
    """What a name of the language is, or None for a free one."""
    if name in ELEMENT_TYPES:
        return "an element type"
    if name in BUILTINS:
        return "a function"
    return None
