"""Which names of a kernel are sizes, and in a bare program which are buffers.

A name is a size when it stands free in a shape, a stride or an extent (in a bare program also in a subscript). A view
of a bare program whose name nothing declares is a buffer. Both come in the order of the text.
"""

from collections.abc import Callable, Iterable
from typing import Any

from texpr.grammar import syntax
from texpr.grammar.attributes import names_sizes
from texpr.grammar.operators import BUILTINS
from texpr.grammar.source import Span

Task = tuple[Callable[[Any], list["Task"]], Any]  # a reader, which gives what is to be read next, and its node


class FreeNames:
    """The free names of what was read: `sizes` and, for a bare program, `views`, each with its first place."""

    def __init__(self, known: frozenset[str], *, bare: bool) -> None:
        self.bound = [set(known)]
        self.bare = bare
        self.sizes: dict[str, Span] = {}
        self.views: dict[str, Span] = {}

    def read_extents(self, extents: Iterable[syntax.Expr]) -> None:
        """Read what stands in a shape."""
        self._read((self._size, e) for e in extents)

    def read_attributes(self, attrs: tuple[syntax.Attr, ...]) -> None:
        """Read the attributes whose arguments name sizes."""
        self._read([(self._attributes, attrs)])

    def read_block(self, body: tuple[syntax.Stmt, ...]) -> None:
        """Read statements, in a block of their own."""
        self._read([(self._block, body)])

    def _read(self, tasks: Iterable[Task]) -> None:
        work = list(tasks)[::-1]
        while work:
            reader, node = work.pop()
            work += reader(node)[::-1]

    # ---- scopes

    def _is_bound(self, name: str) -> bool:
        return any(name in names for names in self.bound)

    def _bind(self, name: str) -> list[Task]:
        self.bound[-1].add(name)
        return []

    def _close(self, _: None) -> list[Task]:
        self.bound.pop()
        return []

    def _scoped(self, *tasks: Task) -> list[Task]:
        """The tasks in a block of their own."""
        self.bound.append(set())
        return [*tasks, (self._close, None)]

    # ---- places where a free name is a size

    def _size(self, e: syntax.Expr | syntax.Range | syntax.Slice) -> list[Task]:
        """An expression in a shape or an extent: its free names are sizes."""
        match e:
            case syntax.Range():
                return [(self._size, e.low), (self._size, e.high)]
            case syntax.Name():
                if not self._is_bound(e.name) and e.name not in BUILTINS:
                    self.sizes.setdefault(e.name, e.span)
                return []
            case syntax.Unary():
                return [(self._size, e.operand)]
            case syntax.Binary():
                return [(self._size, e.left), (self._size, e.right)]
            case syntax.Call():
                return [(self._size, arg) for arg in e.args if not isinstance(arg, syntax.Slice)]
            case syntax.View() | syntax.Reduce():
                return self._expression(e)
            case _:
                return []

    def _attributes(self, attrs: tuple[syntax.Attr, ...]) -> list[Task]:
        return [(self._size, arg.value) for attr in attrs if names_sizes(attr.name) for arg in attr.args]

    def _dims(self, dims: tuple[syntax.Dim, ...]) -> list[Task]:
        return [task for dim in dims for task in ((self._size, dim.extent), (self._bind, dim.index))]

    # ---- everything else

    def _subscript(self, e: syntax.Expr | syntax.Slice) -> list[Task]:
        if isinstance(e, syntax.Slice):
            return [(self._subscript, e.start), (self._size, e.extent)]
        return self._size(e) if self.bare else self._expression(e)

    def _expression(self, e: syntax.Expr | syntax.Slice) -> list[Task]:
        match e:
            case syntax.Slice():
                return self._subscript(e)
            case syntax.View():
                if self.bare and not self._is_bound(e.name):
                    self.views.setdefault(e.name, e.span)
                return [(self._subscript, part) for part in e.subscripts]
            case syntax.Unary():
                return [(self._expression, e.operand)]
            case syntax.Binary():
                return [(self._expression, e.left), (self._expression, e.right)]
            case syntax.Call():
                return [(self._expression, arg) for arg in e.args]
            case syntax.Reduce():
                lets: Iterable[Task] = ((self._statement, let) for let in e.lets)
                return self._scoped((self._dims, e.dims), *lets, (self._expression, e.body))
            case _:
                return []

    def _block(self, body: tuple[syntax.Stmt, ...]) -> list[Task]:
        return self._scoped(*((self._statement, s) for s in body))

    def _statement(self, s: syntax.Stmt) -> list[Task]:
        match s:
            case syntax.Par() | syntax.Seq():
                return self._scoped((self._dims, s.dims), (self._block, s.body.body))
            case syntax.Assign() | syntax.Atomic():
                return [(self._expression, s.target), (self._expression, s.value)]
            case syntax.New():
                extents = (*((s.type.shape or ()) if s.type is not None else ()), s.flat_extent)
                shape: Iterable[Task] = ((self._size, e) for e in extents if e is not None)
                return [*shape, (self._attributes, s.attrs), (self._bind, s.name)]
            case syntax.Reg():
                extents = (s.type.shape or ()) if s.type is not None else ()
                return [*((self._size, e) for e in extents), (self._expression, s.value), (self._bind, s.name)]
            case syntax.Let():
                return [(self._expression, s.value), (self._bind, s.name)]
            case syntax.If():
                orelse: Iterable[Task] = ()
                if s.orelse is not None:
                    orelse = [
                        (self._statement, s.orelse) if isinstance(s.orelse, syntax.If) else (self._block, s.orelse.body)
                    ]
                return [(self._expression, s.condition), (self._block, s.then.body), *orelse]
            case syntax.Asm():
                return [(self._expression, operand.value) for operand in s.operands]
            case syntax.Anchor() | syntax.Return():
                return [(self._expression, s.value)] if s.value is not None else []
            case syntax.CallStmt():
                return [(self._expression, s.call)]
            case syntax.SizeDef():
                return self._bind(s.name)
