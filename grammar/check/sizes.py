"""Which names of a kernel are sizes, and in a bare program which are buffers.

A name is a size when it stands free in a shape, a stride or an extent (in a bare program also in a subscript). A view
of a bare program whose name nothing declares is a buffer. Both come in the order of the text.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from texpr.grammar import syntax
from texpr.grammar.check.scope import BUILTINS
from texpr.grammar.source import Span


class FreeNames:
    """The free names of a kernel: `sizes` and, for a bare program, `views`, each with its first place."""

    def __init__(self, known: frozenset[str], *, bare: bool) -> None:
        self.bound = [set(known)]
        self.bare = bare
        self.sizes: dict[str, Span] = {}
        self.views: dict[str, Span] = {}

    @contextmanager
    def scoped(self) -> Iterator[None]:
        self.bound.append(set())
        try:
            yield
        finally:
            self.bound.pop()

    def is_bound(self, name: str) -> bool:
        return any(name in names for names in self.bound)

    # ---- places where a free name is a size

    def size(self, e: syntax.Expr | syntax.Range) -> None:
        """An expression in a shape or an extent: its free names are sizes."""
        match e:
            case syntax.Range():
                self.size(e.low)
                self.size(e.high)
            case syntax.Name():
                if not self.is_bound(e.name) and e.name not in BUILTINS:
                    self.sizes.setdefault(e.name, e.span)
            case syntax.Unary():
                self.size(e.operand)
            case syntax.Binary():
                self.size(e.left)
                self.size(e.right)
            case syntax.Call():
                for arg in e.args:
                    if not isinstance(arg, syntax.Slice):
                        self.size(arg)
            case syntax.View() | syntax.Reduce():
                self.expression(e)
            case _:
                pass

    def attributes(self, attrs: tuple[syntax.Attr, ...]) -> None:
        for attr in attrs:
            if attr.name == "strides":
                for arg in attr.args:
                    self.size(arg.value)

    def dims(self, dims: tuple[syntax.Dim, ...]) -> None:
        for dim in dims:
            self.size(dim.extent)
            self.bound[-1].add(dim.index)

    # ---- everything else

    def subscript(self, e: syntax.Expr | syntax.Slice) -> None:
        if isinstance(e, syntax.Slice):
            self.subscript(e.start)
            self.size(e.extent)
        elif self.bare:
            self.size(e)
        else:
            self.expression(e)

    def expression(self, e: syntax.Expr | syntax.Slice) -> None:
        match e:
            case syntax.Slice():
                self.subscript(e)
            case syntax.View():
                self.view(e)
            case syntax.Unary():
                self.expression(e.operand)
            case syntax.Binary():
                self.expression(e.left)
                self.expression(e.right)
            case syntax.Call():
                for arg in e.args:
                    self.expression(arg)
            case syntax.Reduce():
                with self.scoped():
                    self.dims(e.dims)
                    for let in e.lets:
                        self.statement(let)
                    self.expression(e.body)
            case _:
                pass

    def view(self, e: syntax.View) -> None:
        if self.bare and not self.is_bound(e.name):
            self.views.setdefault(e.name, e.span)
        for subscript in e.subscripts:
            self.subscript(subscript)

    def block(self, block: syntax.Block) -> None:
        with self.scoped():
            for statement in block.body:
                self.statement(statement)

    def statement(self, s: syntax.Stmt) -> None:
        match s:
            case syntax.Par() | syntax.Seq():
                with self.scoped():
                    self.dims(s.dims)
                    self.block(s.body)
            case syntax.Assign() | syntax.Atomic():
                self.expression(s.target)
                self.expression(s.value)
            case syntax.New():
                for e in (s.type.shape or ()) if s.type is not None else ():
                    self.size(e)
                if s.flat_extent is not None:
                    self.size(s.flat_extent)
                self.attributes(s.attrs)
                self.bound[-1].add(s.name)
            case syntax.Let():
                self.expression(s.value)
                self.bound[-1].add(s.name)
            case syntax.Reg():
                for e in (s.type.shape or ()) if s.type is not None else ():
                    self.size(e)
                self.expression(s.value)
                self.bound[-1].add(s.name)
            case syntax.If():
                self.expression(s.condition)
                self.block(s.then)
                if isinstance(s.orelse, syntax.If):
                    self.statement(s.orelse)
                elif s.orelse is not None:
                    self.block(s.orelse)
            case syntax.Anchor():
                self.expression(s.value)
            case syntax.Asm():
                for operand in s.operands:
                    self.expression(operand.value)
            case syntax.CallStmt():
                self.expression(s.call)
            case syntax.Return():
                if s.value is not None:
                    self.expression(s.value)
            case syntax.SizeDef():
                self.bound[-1].add(s.name)
