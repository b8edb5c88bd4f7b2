"""Places in a core tree, and trees that differ in one block: what every move is made of."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from texpr.grammar.ast import (
    Anchor,
    Asm,
    Attr,
    If,
    IndexExpr,
    IndexVar,
    Intrinsic,
    Kernel,
    Leaf,
    New,
    Node,
    Par,
    Role,
    Seq,
    Stmt,
)
from texpr.grammar.core import children, statements
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.expr import substitute
from texpr.grammar.permissions import is_order
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.walk import rewrite

Block = tuple[Stmt, ...]
Loop = Par | Seq
Values = Mapping[str, IndexExpr]  # of indices, by name
BLOCKS = ("body", "then", "orelse")


def unfit(why: str, span: Span, label: str = "", help: str | None = None) -> TExprError:
    """E0404: a move does not fit the program."""
    return fail("E0404", why, span, label, help=help)


def label_of(stmt: Stmt) -> str | None:
    """The name by which moves call a statement; None for a `new`, and for what has nothing in it."""
    match stmt:
        case Par(index=index) | Seq(index=index):
            return index
        case New():
            return None
        case If():
            return next((label for inner in children(stmt) if (label := label_of(inner)) is not None), None)
        case Intrinsic(name=name):
            return name
        case _:
            return stmt.id


@dataclass(frozen=True, slots=True)
class Place:
    """A statement: the one `at` so many from the start of a block, which is a field of the statement at `parent`, or
    the kernel's body."""

    block: Block
    at: int
    parent: "Place | None" = None
    field: str = "body"

    @property
    def stmt(self) -> Stmt:
        return self.block[self.at]

    @property
    def around(self) -> tuple[Stmt, ...]:
        """The statements around it, outermost first."""
        return () if self.parent is None else (*self.parent.around, self.parent.stmt)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops around it, outermost first."""
        return tuple(s for s in self.around if isinstance(s, Par | Seq))


def places(kernel: Kernel) -> Iterator[Place]:
    """Every statement, outer before inner; the bodies of intrinsics are not entered."""
    work: list[tuple[Place | None, str, Block]] = [(None, "body", kernel.body)]
    while work:
        parent, field, block = work.pop()
        for at, stmt in enumerate(block):
            place = Place(block, at, parent, field)
            yield place
            work += [(place, name, getattr(stmt, name)) for name in BLOCKS if hasattr(stmt, name)]


def place_of(kernel: Kernel, name: str) -> Place:
    """The outermost statement that moves call so. E0404 where there is none."""
    found = next((place for place in places(kernel) if label_of(place.stmt) == name), None)
    if found is None:
        raise unfit(f"there is no loop or statement {name[:80]!r} to move", kernel.span)
    return found


def loop_of(kernel: Kernel, index: str) -> tuple[Place, Loop]:
    """The loop of that index. E0404 where there is none."""
    for place in places(kernel):
        if isinstance(place.stmt, Par | Seq) and place.stmt.index == index:
            return place, place.stmt
    raise unfit(f"there is no loop {index[:80]!r} to move", kernel.span)


def neighbours(kernel: Kernel, first: str, second: str) -> tuple[Place, Place]:
    """Two statements that follow one another, `new`s between them aside. E0404 where they do not."""
    one, two = place_of(kernel, first), place_of(kernel, second)
    while one.block is not two.block and one.parent is not None:  # an `if` and what is in it have one label
        one = one.parent
    between = one.block[one.at + 1 : two.at]
    if one.block is not two.block or two.at <= one.at or not all(isinstance(s, New) for s in between):
        raise unfit(f"`{second}` does not follow `{first}`", two.stmt.span, "this one")
    return one, two


def with_block(kernel: Kernel, place: Place, block: Block) -> Kernel:
    """The kernel with another block in the place of one."""
    while place.parent is not None:
        parent = place.parent
        stmt = replace(parent.stmt, **{place.field: block})  # type: ignore[arg-type]  # a field of statements
        block = (*parent.block[: parent.at], stmt, *parent.block[parent.at + 1 :])
        place = parent
    return replace(kernel, body=block)


def movable(stmts: Block) -> None:
    """E0404 for what stays where the author put it: anchors, and bodies that hardware runs."""
    for stmt in statements(stmts):
        if isinstance(stmt, Anchor | Asm | Intrinsic) or (isinstance(stmt, Par) and stmt.fully):
            what = "an anchor" if isinstance(stmt, Anchor) else "what hardware runs"
            raise unfit(f"{what} stays where it is", stmt.span, "this cannot be moved")


def plain(loop: Loop, *, or_ordered: bool = False) -> None:
    """E0404 for a loop of which the author says how it runs."""
    for attr in loop.attrs:
        if not (or_ordered and is_order(attr)):
            raise unfit(f"`#{attr.name}` says how `{loop.source_name}` runs: it stays as it is", loop.span, "this loop")


def same_attrs(first: tuple[Attr, ...], second: tuple[Attr, ...]) -> bool:
    """Whether two lists of attributes say the same."""
    return sorted(map(repr, first)) == sorted(map(repr, second))


def with_values(stmts: Block, values: Values) -> Block:
    """The statements with indices replaced by expressions."""

    def change(node: Node) -> Node:
        return substitute(node, lambda leaf: values.get(leaf.name)) if isinstance(node, IndexExpr) else node

    return tuple(rewrite(stmt, change, into=lambda node: not isinstance(node, IndexExpr)) for stmt in stmts)


def tidy(kernel: Kernel) -> Kernel:
    """The kernel as the checker would leave it: locals in order of their `new`s, and a band for each
    nest of `par`s with nothing between them, of which the author says the same."""
    order = {s.buffer: n for n, s in enumerate(s for s in statements(kernel.body) if isinstance(s, New))}
    own = [b for b in kernel.buffers if b.role is not Role.LOCAL]
    locals = sorted(
        (b for b in kernel.buffers if b.role is Role.LOCAL and b.name in order), key=lambda b: order[b.name]
    )
    count = 0

    def numbered(node: Node) -> Node:
        nonlocal count
        if not isinstance(node, Par):
            return node
        inner = node.body[0] if len(node.body) == 1 else None
        if isinstance(inner, Par) and same_attrs(inner.attrs, node.attrs) and inner.fully is node.fully:
            return replace(node, band=inner.band)
        count += 1
        return replace(node, band=count)

    body = tuple(rewrite(stmt, numbered, into=lambda node: isinstance(node, Par | Seq | If)) for stmt in kernel.body)
    return replace(kernel, buffers=(*own, *locals), body=body)


def index(name: str) -> IndexVar:
    """The index of a loop, as an expression."""
    return IndexVar(name=name)


def leaves(stmts: Block) -> Iterator[Leaf]:
    """The statements that compute, in text order."""
    return (stmt for stmt in statements(stmts) if isinstance(stmt, Leaf))
