"""The surface tree: what the author wrote, as both front ends build it and as `texpr fmt` prints it.

Names are unresolved, bands are kept, `let`, `fn`, reductions and slices are still there, comments are trivia of the
statement that they stand by. `printer.print_module` then `parser.parse` is the identity on this tree. Spans are out
of equality; comments and literal spellings are in it.

    par M i, N j #tile(64, 64) {        Par(dims=(Dim(M, i), Dim(N, j)), attrs=(Attr(tile),), body=Block(
        C[i, j] = sum K k { A[i, k] }       Assign(target=View(C, (i, j)), op="=", value=Reduce("sum", (Dim(K, k),), …))
    }                                   ))
"""

from dataclasses import field

from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A tree node: its place in the text."""

    span: Span = field(default=NO_SPAN, compare=False, repr=False)


# ---- expressions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IntLit(Node):
    """An integer literal. `text` is its spelling (`0x10`)."""

    value: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatLit(Node):
    """A float literal, spelled as in the text; `inf` and `nan` are ones. `value` is its float64 value."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoolLit(Node):
    value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StringLit(Node):
    """The text between the quotes of an `asm` string, escapes kept as written."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Node):
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Node):
    """`mma16816.a`: a member of an intrinsic's table."""

    owner: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Node):
    """op is `-` or `not`."""

    op: str
    operand: "Expr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Node):
    """op is one of + - * / % == != <= >= < > and or."""

    op: str
    left: "Expr"
    right: "Expr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(Node):
    """`start : extent` as a subscript."""

    start: "Expr"
    extent: "Expr"


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Node):
    """`name[subscripts]`."""

    name: str
    subscripts: tuple["Expr | Slice", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """A function, a cast (`f32(x)`) or an intrinsic; also `select(c, a, b)`."""

    name: str
    args: tuple["Expr | Slice", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce(Node):
    """`sum K k { let t = e; t * t }`; op is sum, prod, maximum or minimum."""

    op: str
    dims: tuple["Dim", ...]
    attrs: tuple["Attr", ...] = ()
    lets: tuple["Let", ...] = ()
    body: "Expr"


Expr = IntLit | FloatLit | BoolLit | StringLit | Name | Member | Unary | Binary | View | Call | Reduce


# ---- parts of statements ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment(Node):
    """`text` begins after the two minus signs and is kept as written, right-stripped.

    `blank_before`: one empty line stands before a comment that has a line of its own.
    """

    text: str
    blank_before: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trivia:
    """Comments on lines of their own before a statement, and the one after it on its last line.

    `blank_before` keeps one empty line before the statement's own first line (after `leading`, whose comments keep
    theirs); the first thing of a block or text has none.
    """

    leading: tuple[Comment, ...] = ()
    trailing: Comment | None = None
    blank_before: bool = False


NO_TRIVIA = Trivia()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttrArg(Node):
    """`128`, or `block: 128` where `level` is the word before the colon."""

    level: str | None = None
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Attr(Node):
    """`#name(args)`; `has_args` tells `#unroll` from `#unroll()`, which is an error of the parser."""

    name: str
    args: tuple[AttrArg, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(Node):
    """`low..high`: the index runs from low to high - 1."""

    low: Expr
    high: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Dim(Node):
    """One loop of a band: `extent index`."""

    extent: Expr | Range
    index: str
    index_span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeExpr(Node):
    """`f16[M, K]`; `shape` is None where no brackets stand. `element` may be a type parameter."""

    element: str
    shape: tuple[Expr, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Param(Node):
    """`[in|out|inout] name: type attrs`; `type` is None only in a `fn` written in Python without an annotation."""

    direction: str | None = None
    name: str
    type: TypeExpr
    attrs: tuple[Attr, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Node):
    """Statements between braces; `dangling` are the comments before the closing brace."""

    body: tuple["Stmt", ...]
    dangling: tuple[Comment, ...] = ()


# ---- statements ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Node):
    trivia: Trivia = NO_TRIVIA


@dataclass(frozen=True, slots=True, kw_only=True)
class Par(Statement):
    """A band of parallel loops; `fully` promises hardware threads truly at once."""

    dims: tuple[Dim, ...]
    attrs: tuple[Attr, ...] = ()
    body: Block
    fully: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seq(Statement):
    dims: tuple[Dim, ...]
    attrs: tuple[Attr, ...] = ()
    body: Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(Statement):
    """`target op value`; op is one of = += -= *= max= min=. A `Call` target is `fragment(…) = r`."""

    target: View | Name | Call
    op: str
    value: Expr
    attrs: tuple[Attr, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomic(Statement):
    target: View | Name
    op: str
    value: Expr
    attrs: tuple[Attr, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class New(Statement):
    """`new [level] name: type attrs`; the seed's `new acc 16` has `flat_extent` and no `type`."""

    level: str | None = None
    name: str
    type: TypeExpr | None = None
    flat_extent: Expr | None = None
    attrs: tuple[Attr, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Let(Statement):
    """`let name = value`; the value may be a view with slices (a name for that view)."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Reg(Statement):
    """`reg name: type = value`."""

    name: str
    type: TypeExpr | None = None
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class If(Statement):
    """`orelse` is a block, or another `If` for `else if`."""

    condition: Expr
    then: Block
    orelse: "Block | If | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor(Statement):
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class AsmOperand(Node):
    """`label: value, value`: label is in, out, inout or clobber."""

    label: str
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Asm(Statement):
    text: StringLit
    operands: tuple[AsmOperand, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStmt(Statement):
    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Return(Statement):
    value: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeDef(Statement):
    """`size BM = 128`: a compile-time constant, at file or kernel level; without a value, a size that is given from
    outside though it stands in no shape."""

    name: str
    value: Expr | None = None


Stmt = Par | Seq | Assign | Atomic | New | Let | Reg | If | Anchor | Asm | CallStmt | Return | SizeDef


# ---- items -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Import(Statement):
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDef(Statement):
    name: str
    params: tuple[Param, ...]
    where: tuple[Expr, ...] = ()
    attrs: tuple[Attr, ...] = ()
    body: Block


@dataclass(frozen=True, slots=True, kw_only=True)
class FnDef(Statement):
    """`result` is the type of the returned value; `reference` the meaning of a body that only hardware can run."""

    name: str
    params: tuple[Param, ...]
    result: TypeExpr | None = None
    attrs: tuple[Attr, ...] = ()
    reference: Block | None = None
    body: Block


Item = Import | KernelDef | FnDef | SizeDef | Stmt


@dataclass(frozen=True, slots=True, kw_only=True)
class Module(Node):
    """A whole text. Bare statements are one kernel, named after the file, and do not mix with `kernel` items."""

    name: str
    items: tuple[Item, ...]
    dangling: tuple[Comment, ...] = ()
