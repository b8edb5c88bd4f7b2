"""Long sums: which elements may get more than 4096 additions in f32, and the kernel that carries those in f64.

An f32 has 24 bits, so the 2**27th one adds nothing to a sum of ones. So a sum makes at most 4096 additions into one f32
partial: where it is carried its chunks are summed in f32 and their sums in f64 (`partials`), and where it is not its
elements are f64 (`kept`). Here every long update gets a value in f64, and locals that are carried become f64:

    new s: f32 ; s = 0.0 ; seq K k { s += A[k] } ; C[i] = s
    new s: f64 ; s = f64(0.0) ; seq K k { s += f64(A[k]) } ; C[i] = f32(s)

Reads round to the declared type, so what is read is a sum that was rounded once (docs/language.md, Numerics).
`#ordered` keeps type and order. Statements, loops and accesses stay as they were proved.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Cast,
    Compare,
    CompareOp,
    Const,
    Expr,
    If,
    IndexConst,
    IndexExpr,
    Intrinsic,
    Kernel,
    New,
    Par,
    Read,
    Role,
    Seq,
    SizeVar,
    Stmt,
)
from texpr.grammar.diagnostics import Diagnostic, Label, Severity, TExprError
from texpr.grammar.index.expr import ZERO, const
from texpr.grammar.index.interval import Ranges, index_range, most
from texpr.grammar.permissions import keeps_order
from texpr.grammar.types import F32, F64, DType
from texpr.polyhedral import isl
from texpr.polyhedral.affine import coprime_columns
from texpr.polyhedral.isl import columns
from texpr.polyhedral.program import Access, Program, ProgramStatement
from texpr.polyhedral.walk import map_reads, map_subscripts

CHAIN = 4096  # additions at most into one f32 partial


def carried_wide(program: Program, long: frozenset[str], *, arrays: bool = True) -> Kernel:
    """The program's kernel with its `long` updates in f64. Arrays stay as they are where a register carries each
    element through all its additions, and where `arrays` is false."""
    kernel = program.kernel
    if not long:
        return kernel
    updates = [(statement, leaf) for statement in program.statements if (leaf := _update(statement)) is not None]
    targets = {leaf.buffer for _, leaf in updates if leaf.id in long}
    again = {leaf.buffer for statement, leaf in updates if leaf.id in long and _comes_back(program, statement)}
    wide = {
        b.name: b.dtype
        for b in kernel.buffers
        if b.role is Role.LOCAL and b.name in targets and (not b.shape or (arrays and b.name in again))
    }
    buffers = tuple(replace(b, dtype=F64) if b.name in wide else b for b in kernel.buffers)
    return replace(kernel, buffers=buffers, body=Widening(long, wide).block(kernel.body))


def long_updates(program: Program) -> frozenset[str]:
    """The `+=` in f32, by id, whose element may get more than `CHAIN` additions, those of all its updates together."""
    found: dict[str, list[tuple[str, int | None]]] = {}
    for statement in program.statements:
        leaf = _update(statement)
        if leaf is not None and leaf.value.dtype == F32 and not is_ordered(statement):
            found.setdefault(leaf.buffer, []).append((statement.id, additions(program, statement)))
    return frozenset(
        id
        for updates in found.values()
        if any(count is None for _, count in updates) or sum(count or 0 for _, count in updates) > CHAIN
        for id, _ in updates
    )


def warn_ordered(program: Program) -> Iterator[Diagnostic]:
    """W0303 for every long sum whose order the author keeps."""
    for statement in program.statements:
        leaf = _update(statement)
        if leaf is not None and leaf.value.dtype == F32 and is_ordered(statement):
            count = additions(program, statement)
            if count is None or count > CHAIN:
                many = "any number of" if count is None else str(count)
                yield Diagnostic(
                    code="W0303",
                    message=f"`#ordered` adds {many} terms to one f32, each rounded",
                    primary=Label(span=leaf.span),
                    severity=Severity.WARNING,
                    help="remove #ordered, sum in f64, or bound the size by `where`",
                )


def serial_additions(program: Program, ranges: Ranges) -> dict[str, int]:
    """For every buffer that something is added to, how many additions an element gets at most; what the `ranges` of
    the sizes leave open is left out."""
    found: dict[str, int | None] = {}
    for statement in program.statements:
        leaf = _update(statement)
        if leaf is not None:
            count, before = additions(program, statement, ranges), found.get(leaf.buffer, 0)
            found[leaf.buffer] = None if count is None or before is None else before + count
    return {name: count for name, count in found.items() if count is not None}


def _update(statement: ProgramStatement) -> Accumulate | Atomic | None:
    leaf = statement.leaf
    return leaf if isinstance(leaf, Accumulate | Atomic) and leaf.op is AccOp.ADD else None


def is_ordered(statement: ProgramStatement) -> bool:
    """Whether the author asks for the serial sum."""
    return keeps_order(statement.leaf) or any(keeps_order(loop.node) for loop in statement.loops)


def additions(program: Program, statement: ProgramStatement, sizes: Ranges | None = None) -> int | None:
    """How many instances of an update reach one element at most, while it lives; None where the ranges of the sizes
    (those of `where` unless others are given) leave it open."""
    known = size_ranges(program.kernel) if sizes is None else sizes
    return product(repeating(program, statement, known).values())


def repeating(program: Program, statement: ProgramStatement, sizes: Ranges) -> dict[int, int | None]:
    """The loops, by depth, whose iterations add to one element, with their greatest extents."""
    write = statement.write
    assert write is not None, "an update writes"
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = dict(sizes)
    turns: dict[int, int | None] = {}
    for depth, loop in enumerate(statement.loops):
        found = index_range(loop.extent, ranges)
        if found is not None:
            ranges[loop.index] = found
        if depth >= len(program.buffers[write.buffer].outer):
            turns[depth] = most(loop.extent, ranges)
    if product(turns.values()) is None or (product(turns.values()) or 0) > CHAIN:
        for depth in sorted(turns, key=lambda d: (turns[d] is not None, -(turns[d] or 0))):
            rest = {d: n for d, n in turns.items() if d != depth}
            if _tells(program, statement, write, set(rest)):
                turns = rest
    return turns


def product(turns: Iterable[int | None]) -> int | None:
    total: int | None = 1
    for count in turns:
        total = None if count is None or total is None else total * count
    return total


def _comes_back(program: Program, statement: ProgramStatement) -> bool:
    """Whether additions to one element are apart: not those of the `seq`s right around the update."""
    depths = sorted(repeating(program, statement, size_ranges(program.kernel)))
    innermost = list(range(len(statement.loops) - len(depths), len(statement.loops)))
    return depths != innermost or any(statement.loops[depth].parallel for depth in depths)


def _tells(program: Program, statement: ProgramStatement, write: Access, kept: set[int]) -> bool:
    """Whether an element, with the indices of the loops `kept` and of those around its buffer, tells the instance."""
    question = ("tells", statement.id, frozenset(kept))
    return program.work.once(question, lambda: _ask_tells(program, statement, write, kept))


def _ask_tells(program: Program, statement: ProgramStatement, write: Access, kept: set[int]) -> bool:
    known = kept | set(range(len(program.buffers[write.buffer].outer)))
    width = 2 * (columns(write.relation) + coprime_columns(write.subscripts))
    try:
        with program.work.limited(write.span, "counting the additions to one element", width):
            indices = isl.Map.identity(statement.domain.get_space().map_from_set())
            for depth in reversed(range(len(statement.loops))):
                if depth not in known:
                    indices = indices.project_out(isl.dim_type.out, depth, 1)
            reached = write.relation.intersect_domain(statement.domain).range_product(indices)
            return bool(program.facts.within(reached).is_injective())
    except TExprError:
        if program.work.exhausted:
            raise
        return False  # then more additions are counted than there are


def size_ranges(kernel: Kernel) -> Ranges:
    """The ranges of free sizes that `where` bounds by a number."""
    found: dict[str, tuple[IndexExpr, IndexExpr]] = {}
    for fact in kernel.facts:
        match fact:
            case Compare(op=CompareOp.LT | CompareOp.LE, left=SizeVar(name=name), right=IndexConst(value=value)):
                found[name] = (ZERO, const(value - (fact.op is CompareOp.LT)))
            case _:
                pass
    return found


class Widening:
    """Rewrites the statements: `long` updates get values in f64; reads, binds and updates of `wide` buffers, which are
    f64 in place of their declared types, are converted, and go to another buffer where `places` says so."""

    def __init__(
        self, long: frozenset[str], wide: Mapping[str, DType], places: Mapping[str, str] | None = None
    ) -> None:
        self.long = long
        self.wide = wide
        self.places = places or {}

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
                    value = as_type(value, F64)
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
        place = self.places.get(read.buffer, read.buffer)
        return as_type(replace(read, buffer=place, dtype=F64), declared)


def as_type(value: Expr, dtype: DType) -> Expr:
    """The value converted to a type, as it is where it has it."""
    if isinstance(value, Const) and value.value == 0 and dtype.is_float:
        return replace(value, dtype=dtype)
    return value if value.dtype == dtype else Cast(operand=value, dtype=dtype, span=value.span)


def narrow(value: Expr) -> Expr:
    """What a long update adds, before it was converted to f64."""
    return value.operand if isinstance(value, Cast) and value.dtype == F64 else value
