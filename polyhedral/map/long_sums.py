"""Long sums in f64: the kernel that carries those whose elements may get more than 4096 additions in f32.

An f32 has 24 bits, so the 2**27th one adds nothing to a sum of ones. So a sum makes at most 4096 additions into one f32
partial: where it is carried its chunks are summed in f32 and their sums in f64 (`partials`), and where it is not its
elements are f64 (`kept`). Here every long update gets a value in f64, and locals that are carried become f64:

    new s: f32 ; s = 0.0 ; seq K k { s += A[k] } ; C[i] = s
    new s: f64 ; s = f64(0.0) ; seq K k { s += f64(A[k]) } ; C[i] = f32(s)

Reads round to the declared type, so what is read is a sum that was rounded once (docs/language.md, Numerics).
`#ordered` keeps type and order. Statements, loops and accesses stay as they were proved.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Cast,
    Const,
    Expr,
    If,
    Intrinsic,
    Kernel,
    New,
    Node,
    Par,
    Read,
    Role,
    Seq,
    Stmt,
)
from texpr.grammar.types import F32, F64, DType
from texpr.grammar.walk import rewrite
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.program import Program, ProgramStatement
from texpr.polyhedral.prove.additions import repeating, update_of
from texpr.polyhedral.walk import map_reads, map_subscripts


def carried_wide(program: Program, long: frozenset[str], *, arrays: bool = True) -> Kernel:
    """The program's kernel with its `long` updates in f64. Arrays stay as they are where a register carries each
    element through all its additions, and where `arrays` is false."""
    kernel = program.kernel
    if not long:
        return kernel
    updates = [(statement, leaf) for statement in program.statements if (leaf := update_of(statement)) is not None]
    targets = {leaf.buffer for _, leaf in updates if leaf.id in long}
    again = {leaf.buffer for statement, leaf in updates if leaf.id in long and _comes_back(program, statement)}
    wide = {
        b.name: b.dtype
        for b in kernel.buffers
        if b.role is Role.LOCAL and b.name in targets and (not b.shape or (arrays and b.name in again))
    }
    buffers = tuple(replace(b, dtype=F64) if b.name in wide else b for b in kernel.buffers)
    return replace(kernel, buffers=buffers, body=Widening(long, wide).block(kernel.body))


def _comes_back(program: Program, statement: ProgramStatement) -> bool:
    """Whether additions to one element are apart: not those of the `seq`s right around the update."""
    depths = sorted(repeating(program, statement, size_ranges(program.kernel)))
    innermost = list(range(len(statement.loops) - len(depths), len(statement.loops)))
    return depths != innermost or any(statement.loops[depth].parallel for depth in depths)


class Widening:
    """Rewrites the statements: `long` updates get values in f64; reads, binds and updates of `wide` buffers, which are
    f64 (or of the type in `types`) in place of their declared types, are converted, and go to another buffer where
    `places` says so."""

    def __init__(
        self,
        long: frozenset[str],
        wide: Mapping[str, DType],
        places: Mapping[str, str] | None = None,
        types: Mapping[str, DType] | None = None,
    ) -> None:
        self.long = long
        self.wide = wide
        self.places = places or {}
        self.types = types or {}

    def block(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(self._statement(stmt) for stmt in stmts)

    def _statement(self, stmt: Stmt) -> Stmt:
        match stmt:
            case Par() | Seq():
                return replace(stmt, body=self.block(stmt.body))
            case If():
                return replace(stmt, then=self.block(stmt.then), orelse=self.block(stmt.orelse))
            case Intrinsic():
                return replace(stmt, reference=self.block(stmt.reference))
            case Anchor():
                return replace(stmt, value=self._value(stmt.value))
            case Bind() | Accumulate() | Atomic():
                value = self._value(stmt.value)
                if stmt.buffer in self.wide or stmt.id in self.long:
                    value = as_type(value, self.types.get(stmt.buffer, F64))
                place = self.places.get(stmt.buffer, stmt.buffer)
                return replace(stmt, buffer=place, value=value, subscripts=map_subscripts(stmt.subscripts, self._read))
            case New() | Asm():
                return stmt
            case _:
                assert_never(stmt)

    def _value(self, value: Expr) -> Expr:
        return map_reads(value, self._read)

    def _read(self, read: Read) -> Expr:
        declared = self.wide.get(read.buffer)
        if declared is None:
            return read
        place, dtype = self.places.get(read.buffer, read.buffer), self.types.get(read.buffer, F64)
        return as_type(replace(read, buffer=place, dtype=dtype), declared)


def as_type(value: Expr, dtype: DType) -> Expr:
    """The value converted to a type, as it is where it has it."""
    if isinstance(value, Const) and value.value == 0 and dtype.is_float:
        return replace(value, dtype=dtype)
    return value if value.dtype == dtype else Cast(operand=value, dtype=dtype, span=value.span)


def direct(value: Expr) -> Expr:
    """The value without conversions of an f32 to f64 and back."""

    def change(node: Node) -> Node:
        match node:
            case Cast(operand=Cast(operand=inner, dtype=through), dtype=dtype) if through == F64 and inner.dtype == F32:
                return as_type(inner, dtype)
            case _:
                return node

    return rewrite(value, change)


def narrow(value: Expr) -> Expr:
    """What a long update adds, before it was converted to f64. Only sums of floats are made wide: the conversion of an
    integer is its author's, and the least value of its type is not less than all of f64."""
    if isinstance(value, Cast) and value.dtype == F64 and value.operand.dtype.is_float:
        return value.operand
    return value
