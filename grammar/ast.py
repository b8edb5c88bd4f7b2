"""The core tree: one kernel after checking, with sugar gone. No later stage knows which front end wrote it.

What the checker has settled:

- Every loop has one index; bands share a `band` number. Index, buffer and size names are unique in the kernel, so an
  index that two sibling loops call `i` is `i` and `i_1` here (`Par.source_name` keeps the author's word).
- `low..high` loops run from 0; the shift is in the subscripts. `fn` bodies are inlined (`call_spans` has the chain of
  call sites, outermost first), views and `let` views are composed into subscripts, a scalar `let` is a rank-0 local
  with one bind, `reg` is a local and a bind per element, reductions are a bind of the identity and a `Seq` of
  accumulations, `v -= e` is an accumulation of `-e`.
- Conversions are explicit: both operands of an `Op` have its operand type, and `Bind.value.dtype` is the buffer's.
  An accumulation computes `v = cast(buffer.dtype, op(cast(value.dtype, v), value))`, `value.dtype` being the type that
  the update is computed in.
- A data-dependent condition is a bind to a fresh rank-0 bool local (`If.condition` is a `Read` of it): it has one
  value for the iteration that owns the threads. `a and b` on values is `Select(a, b, false)`, `or` likewise: lazy.
- Integer semantics: wrap on overflow; `floordiv` and `mod` floor, and give 0 for a divisor 0; shift counts outside
  0..bits-1 shift everything out. Float semantics: IEEE, `min`/`max` propagate NaN, `round` ties to even.

    par M i { C[i] = sum K k { A[i, k] } }
    Par(i, SizeVar M, (Bind S0 C[i] = 0.0, Seq(k, SizeVar K, (Accumulate S1 C[i] add Read A[i, k]))))
"""

from dataclasses import field, fields, replace
from enum import StrEnum

from texpr.grammar.index.operators import CompareOp as CompareOp
from texpr.grammar.index.operators import IndexOp as IndexOp
from texpr.grammar.operators import Fn as Fn
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import BOOL, I64, DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


def operands(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside a node, in text order."""
    if isinstance(node, IndexBinary):  # most nodes are index expressions
        return (node.left, node.right)
    parts = _PARTS.get(type(node))
    if parts is None:
        parts = parts_of(type(node))
    if not parts:
        return ()
    found: list[Node] = []
    for name in parts:
        held = getattr(node, name)
        if isinstance(held, Node):
            found.append(held)
        elif isinstance(held, tuple):
            found += [item for item in held if isinstance(item, Node)]
    return tuple(found)


def parts_of(kind: type[Node]) -> tuple[str, ...]:
    """The fields of a kind of node that may hold nodes."""
    known = _PARTS.get(kind)
    if known is None:
        plain = (Span, DType, int, str, bool, int | float | bool, tuple[Span, ...], IndexOp, CompareOp, Fn, AccOp, Role)
        known = _PARTS[kind] = tuple(f.name for f in fields(kind) if f.type not in plain)
    return known


_PARTS: dict[type[Node], tuple[str, ...]] = {}


# ---- index expressions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConst(Node):
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexVar(Node):
    """A loop index, by its unique name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeVar(Node):
    """A size that is not bound (yet)."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBinary(Node):
    op: IndexOp
    left: "IndexExpr"
    right: "IndexExpr"


IndexExpr = IndexConst | IndexVar | SizeVar | IndexBinary


# ---- affine conditions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Node):
    op: CompareOp
    left: IndexExpr
    right: IndexExpr


@dataclass(frozen=True, slots=True, kw_only=True)
class And(Node):
    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Or(Node):
    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Not(Node):
    part: "Condition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Always(Node):
    """`true` or `false` as a condition."""

    value: bool


Condition = Compare | And | Or | Not | Always


# ---- values ----------------------------------------------------------------------------------------------------


COMPARISONS = frozenset({Fn.EQ, Fn.NE, Fn.LT, Fn.LE, Fn.GT, Fn.GE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Const(Node):
    """A literal in its settled type; floats keep their float64 value and are rounded once, to `dtype`."""

    value: int | float | bool
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexValue(Node):
    """An index or size expression used as a value."""

    index: IndexExpr
    dtype: DType = I64


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionValue(Node):
    """An affine condition used as a value."""

    condition: Condition
    dtype: DType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather(Node):
    """A subscript that is read from data: an integer value, converted to i64."""

    value: "Expr"


Subscript = IndexExpr | Gather


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Node):
    """The value of one element; rank 0 has no subscripts."""

    buffer: str
    subscripts: tuple[Subscript, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Op(Node):
    fn: Fn
    args: tuple["Expr", ...]
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast(Node):
    """Conversion as the Numerics section says: floats round to nearest even, f8 saturates, float to integer truncates
    and saturates with NaN to 0, integers wrap, bool is 0 or 1, and non-zero (NaN too) is true."""

    operand: "Expr"
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Node):
    """Only the chosen arm is evaluated; an affine condition restricts the arms' accesses."""

    condition: "Condition | Expr"
    then: "Expr"
    other: "Expr"
    dtype: DType


Expr = Const | IndexValue | ConditionValue | Read | Op | Cast | Select


# ---- buffers and sizes -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attr(Node):
    """`#name(args)`: an argument is a value expression of sizes, or a word such as `col`; `levels[k]` is the word
    before the colon of argument k, or None.

    Two attributes exist only here: `collective` on a `fully par` or an `Intrinsic` that a call placed inside a
    `fully par` (its lanes are the caller's threads, so its reference runs once for all of them), and
    `clobber("memory" | "cc")` on an `Asm`."""

    name: str
    args: tuple[IndexExpr | str, ...] = ()
    levels: tuple[str | None, ...] = ()


class Role(StrEnum):
    """What a buffer is: an array argument, a scalar argument, or a `new`."""

    PARAM = "param"
    SCALAR = "scalar"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer(Node):
    """A buffer. `shape` counts elements per dimension; `strides` are in elements, None for row-major and dense.

    `direction` is in, out or inout as the author declared it, None to be inferred by the proofs; a scalar is `in`.
    `memory` is the author's placement: reg, shared or global. `flat` marks a buffer of a bare program: any dense
    array with at least `shape[0]` elements is accepted for it. `given` is the shape of the arrays that callers pass,
    where a schedule sees the same elements with another one.
    """

    name: str
    dtype: DType
    shape: tuple[IndexExpr, ...]
    strides: tuple[IndexExpr, ...] | None = None
    role: Role
    direction: str | None = None
    memory: str | None = None
    align: int = 16
    attrs: tuple[Attr, ...] = ()
    flat: bool = False
    source_name: str = ""
    given: tuple[IndexExpr, ...] | None = None

    @property
    def as_given(self) -> "Buffer":
        """The parameter as callers know it."""
        return self if self.given is None else replace(self, shape=self.given, given=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size(Node):
    """A size of the kernel in order of appearance; `default` is the value of a `size` constant."""

    name: str
    default: int | None = None


# ---- statements ------------------------------------------------------------------------------------------------


class AccOp(StrEnum):
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Node):
    call_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)
    attrs: tuple[Attr, ...] = ()

    def has(self, name: str) -> bool:
        """Whether the attribute `#name` stands on this statement."""
        return any(attr.name == name for attr in self.attrs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Par(Statement):
    """One parallel loop; consecutive loops of a band are nested directly and share `band`. The band's attributes
    stand on each of its loops. `low` is what the author's index is where this one is 0, for messages."""

    index: str
    source_name: str
    extent: IndexExpr
    band: int
    fully: bool = False
    body: tuple["Stmt", ...]
    low: IndexExpr = field(default=IndexConst(value=0), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seq(Statement):
    index: str
    source_name: str
    extent: IndexExpr
    body: tuple["Stmt", ...]
    low: IndexExpr = field(default=IndexConst(value=0), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind(Statement):
    """`id` numbers the leaf statements in text order: S0, S1, …"""

    id: str
    buffer: str
    subscripts: tuple[Subscript, ...]
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulate(Statement):
    id: str
    op: AccOp
    buffer: str
    subscripts: tuple[Subscript, ...]
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomic(Statement):
    id: str
    op: AccOp
    buffer: str
    subscripts: tuple[Subscript, ...]
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class New(Statement):
    """The buffer is fresh and undefined from here to the end of the block."""

    buffer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class If(Statement):
    condition: Condition | Read
    then: tuple["Stmt", ...]
    orelse: tuple["Stmt", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor(Statement):
    id: str
    value: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class AsmOperand(Node):
    """mode is in, out or inout; the operand is a whole local buffer or one element of it."""

    mode: str
    buffer: str
    subscripts: tuple[Subscript, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asm(Statement):
    """Tokenised assembly; stands only in the `hardware` body of an `Intrinsic`, or in a kernel without a meaning on
    this machine (interpreting or emitting it is an error)."""

    id: str
    text: str
    operands: tuple[AsmOperand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrinsic(Statement):
    """A call of a `fn` with a `reference`: the interpreter and the proofs use the reference body; `hardware` is what
    a target with that instruction runs. Both bodies are inlined at this call."""

    name: str
    reference: tuple["Stmt", ...]
    hardware: tuple["Stmt", ...]


Leaf = Bind | Accumulate | Atomic | Anchor
Stmt = Par | Seq | If | New | Leaf | Asm | Intrinsic


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel(Node):
    """A checked kernel: parameters in declared order, then locals in order of their `new`.

    `facts` are the conditions of `where`, over sizes only. `sizes` are the names free in shapes and extents.
    """

    name: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Size, ...]
    facts: tuple[Condition, ...] = ()
    attrs: tuple[Attr, ...] = ()
    body: tuple[Stmt, ...]
    bare: bool = False

    @property
    def params(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.role is not Role.LOCAL)

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name; KeyError when there is none."""
        for candidate in self.buffers:
            if candidate.name == name:
                return candidate
        raise KeyError(name)
