"""The state of reading one function: what its names are, and what was found wrong so far.

A reader is a function of a `Context` and a part of Python's tree. It never stops at an error: it keeps the diagnostic
and puts a placeholder into the tree, which is then not returned, so that all errors of a function come at once.
"""

import ast
from collections.abc import Set as AbstractSet
from typing import Literal

from texpr.grammar import syntax
from texpr.grammar.attributes import forgotten_hash
from texpr.grammar.diagnostics import Diagnostic, Label, TExprError, error
from texpr.grammar.index.operators import CALLED
from texpr.grammar.python.comments import comments_of
from texpr.grammar.python.embedded import read_attributes, read_extent
from texpr.grammar.python.names import WORDS, FnObject, Meaning, Names, NotRun, Unknown, Word, is_identifier
from texpr.grammar.python.source import FunctionSource
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.types import ELEMENT_TYPES
from texpr.grammar.words import RESERVED

FOREIGN_HELP = (
    "allowed are words of texpr.language, indices, sizes, parameters, numbers of the enclosing scope, and functions "
    "under @texpr.fn"
)

OF_INTEGERS = frozenset({"abs", "bitand", "bitor", "bitxor", "shl", "shr", *CALLED.values()})
NAMED_EXTENTS = 'an extent has the name that the annotation gives it: A: f32["N"], then par("N")'
NOT_RUN_HELP = "assign it a number that is written out, or import the file in Python, where its code runs"


def is_attribute(node: ast.expr) -> bool:
    """Whether an argument is a string that begins with `#`."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lstrip().startswith("#")


@dataclass(frozen=True, slots=True)
class Binding:
    """What a name of the body is; `integer` says that its values are known to be integers."""

    kind: Literal["index", "let", "buffer"]
    integer: bool
    span: Span


def instead_of(name: str) -> str:
    """What to call in the place of a Python function."""
    word = name.rpartition(".")[2]
    own = {"float": "write f32(x)", "int": "write i32(x)", "range": 'write for i in seq("N")', "len": NAMED_EXTENTS}
    if word in WORDS:
        return f"take `{word}` from texpr.language"
    return own.get(name, "call a function under @texpr.fn, or one of texpr.language")


class Context:
    """The scopes of one function's body; collects diagnostics, called `fn` objects and imported libraries. `kind` says
    whether `return` has a meaning."""

    def __init__(self, found: FunctionSource, kind: Literal["kernel", "fn"]) -> None:
        self.found = found
        self.kind = kind
        self.names = Names(found.function)
        self.diagnostics: list[Diagnostic] = []
        self.callees: dict[int, FnObject] = {}
        self.imports: dict[tuple[str, ...], Span] = {}
        self.sizes: set[str] = set()
        self.shapes: dict[str, tuple[str, ...]] = {}  # of the parameters, as TExpr writes them
        self.scopes: list[dict[str, Binding]] = [{}]
        self.lets: list[syntax.Let] | None = None  # of the reduction whose element is read, where `:=` may stand
        self.not_run: set[ast.AST] = set()  # names whose values are not known, told already
        self.literal_span: Span | None = None  # set while the text of a string annotation is read
        self.type_parameters: AbstractSet[str] = frozenset()
        self.atomic = False  # under `with atomic`
        self.attrs: tuple[syntax.Attr, ...] = ()  # of `with attr`
        self.assignments = 0
        self.comments = comments_of(found)
        self.block_stop = 0  # where the last block ended

    # ---- names and errors ----

    def span(self, node: ast.AST) -> Span:
        return self.literal_span or self.found.span(node)

    def refuse(self, code: str, message: str, node: ast.AST | Span, help: str | None = None, label: str = "") -> None:
        if node in self.not_run:
            return
        span = node if isinstance(node, Span) else self.literal_span or self.found.first_line_span(node)
        self.diagnostics.append(error(code, message, span, label, help=help))

    def placeholder(self, node: ast.AST) -> syntax.Expr:
        """What stands in a tree that an error was found in; such a tree is never returned to the caller."""
        return syntax.IntLit(value=0, text="0", span=self.span(node))

    def lookup(self, name: str) -> Binding | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def declare(self, name: str, binding: Binding) -> None:
        """Bind a name in the innermost block; E0202 where it is visible already, E0105 where it is reserved."""
        old = self.lookup(name)
        if not is_identifier(name):
            what = "is a reserved word of TExpr" if name in RESERVED else "is not an ASCII identifier"
            self.refuse("E0105", f"`{name}` {what}", binding.span, "choose another name")
        elif old is not None:
            self.diagnostics.append(
                error(
                    "E0202",
                    f"`{name}` is defined already",
                    binding.span,
                    secondary=(Label(span=old.span, text="first defined here"),),
                    help="a name is given once; use another name, or a buffer: x = new(f32)",
                )
            )
        elif name in self.sizes:
            self.refuse("E0202", f"`{name}` is a size of this function", binding.span, "use another name")
        self.scopes[-1][name] = binding

    def meaning(self, node: ast.expr) -> tuple[str, Meaning] | None:
        """The dotted name that a node spells and what it stands for; None for any other expression. E0106 where only
        running the file tells; what that name would be refused for is then not told as well."""
        place = node
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        dotted = ".".join((node.id, *reversed(attributes)))
        if self.lookup(node.id) is not None or node.id in self.sizes:
            return dotted, Unknown()
        meaning = self.names.meaning(node.id, tuple(reversed(attributes)))
        if isinstance(meaning, NotRun) and place not in self.not_run:
            self.refuse("E0106", f"what `{dotted}` is, only running the file tells", place, NOT_RUN_HELP)
            self.not_run.add(place)
        return dotted, meaning

    def is_word(self, node: ast.expr, name: str) -> bool:
        found = self.meaning(node)
        return found is not None and found[1] == Word(name)

    # ---- strings ----

    def extent_text(self, text: str, span: Span) -> syntax.Expr | syntax.Range:
        try:
            return read_extent(text, span)
        except TExprError as failure:
            self.diagnostics += failure.diagnostics
            return syntax.IntLit(value=0, text="0", span=span)

    def attributes(self, node: ast.expr) -> tuple[syntax.Attr, ...]:
        """The attributes of a string that begins with `#`; anything else is an error."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.attribute_text(node.value, self.span(node))
        self.refuse("E0105", "an attribute is a string that begins with `#`", node, 'write "#unroll"')
        return ()

    def lacks_hash(self, text: str, node: ast.AST | Span, *, called: bool = False) -> bool:
        """Whether a string is an attribute but for its `#`; it is refused then. `called`: a bare word may be a size."""
        word = forgotten_hash(text)
        if word is None or (called and "(" not in text):
            return False
        help = f'write "#{text.strip()}"'
        self.refuse("E0105", f"`{word}` is an attribute, and attributes begin with `#`", node, help)
        return True

    def attribute_text(self, text: str, span: Span) -> tuple[syntax.Attr, ...]:
        if self.lacks_hash(text, span):
            return ()
        if not text.lstrip().startswith("#"):
            self.refuse("E0105", "an attribute is a string that begins with `#`", span, 'write "#unroll"')
            return ()
        try:
            return read_attributes(text, span)
        except TExprError as failure:
            self.diagnostics += failure.diagnostics
            return ()

    # ---- integers ----

    def is_integer(self, tree: syntax.Expr | syntax.Slice) -> bool:
        """Whether the values of an expression are known to be integers from what the function declares."""
        match tree:
            case syntax.IntLit():
                return True
            case syntax.Name(name=name) | syntax.View(name=name):
                binding = self.lookup(name)
                return isinstance(tree, syntax.Name) if binding is None else binding.integer
            case syntax.Unary(op="-"):
                return self.is_integer(tree.operand)
            case syntax.Binary(op="+" | "-" | "*" | "/" | "%"):
                return self.is_integer(tree.left) and self.is_integer(tree.right)
            case syntax.Reduce():
                return self.is_integer(tree.body)
            case syntax.Call(name="select"):
                return all(self.is_integer(arm) for arm in tree.args[1:])
            case syntax.Call(name=name) if name in OF_INTEGERS:
                return all(self.is_integer(argument) for argument in tree.args)
            case syntax.Call(name=name):
                return name in ELEMENT_TYPES and ELEMENT_TYPES[name].is_integer
            case _:
                return False
