"""Where a loop picks: which of its conditional binds are updates of a pair, whatever their text.

    new better ; better = select(m[j], best < abs(X[j]), false) ; if better { best = abs(X[j]) ; at = N - 1 - j }

What is bound under the condition is the state. Nothing else in the loop binds it, and nothing reads it but one
comparison in the condition, of a value with the state, which the binds leave as that value, term for term:

    state best     after best = abs(X[j])     abs(X[j])
    state X[at]    after at = j               X[j]

So what is rounded when it is kept (`best: bf16` of a value in f32) is no pick, nor is a condition with an `else`. All
that is bound is a function of the indices, of arrays, and of the value.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Cast,
    Condition,
    Const,
    Expr,
    Fn,
    Gather,
    If,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexValue,
    IndexVar,
    Kernel,
    New,
    Node,
    Op,
    Read,
    Select,
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.core import statements, value_size
from texpr.grammar.index.expr import ONE, add, multiply, names, subtract
from texpr.grammar.index.interval import most
from texpr.grammar.types import I32, I64, DType
from texpr.grammar.walk import fold, rewrite, walk
from texpr.polyhedral.facts import size_ranges
from texpr.polyhedral.map.picks import AT, BEST, MONOID, Pick
from texpr.polyhedral.walk import map_reads, subscript_names, subscript_reads, value_reads

_TURNED = {Fn.GT: Fn.LT, Fn.GE: Fn.LE, Fn.LT: Fn.GT, Fn.LE: Fn.GE}
_ON_VALUES = {
    IndexOp.ADD: Fn.ADD,
    IndexOp.SUB: Fn.SUB,
    IndexOp.MUL: Fn.MUL,
    IndexOp.DIV: Fn.FLOORDIV,
    IndexOp.MOD: Fn.MOD,
    IndexOp.MIN: Fn.MIN,
    IndexOp.MAX: Fn.MAX,
}
MOST_I32 = 2**31 - 1
LARGEST = 1000  # nodes of a value that is compared with others


def picks(kernel: Kernel, loops: Sequence[Seq]) -> tuple[Pick, ...]:
    """The picks of the innermost of some nested loops, over all of them."""
    indices = {loop.index for loop in loops}
    asked = [stmt for stmt in _of_iteration(loops[-1].body) if isinstance(stmt, If)]
    if not asked or any(not names(loop.extent).isdisjoint(indices) for loop in loops[1:]):
        return ()  # of a triangle iterations have no number
    finder = _Finder(kernel, loops)
    return tuple(pick for stmt in asked if (pick := finder.pick(stmt)) is not None)


def _of_iteration(stmts: Sequence[Stmt]) -> Iterator[Stmt]:
    """The statements that an iteration runs at most once."""
    for stmt in stmts:
        yield stmt
        if isinstance(stmt, If):
            yield from _of_iteration(stmt.then + stmt.orelse)


def _reads(stmt: Stmt) -> tuple[Read, ...]:
    match stmt:
        case Bind() | Accumulate() | Atomic():
            return value_reads(stmt.value) + subscript_reads(stmt.subscripts)
        case Anchor(value=value):
            return value_reads(value)
        case If(condition=Read() as condition):
            return value_reads(condition)
        case _:
            return ()


class _Finder:
    def __init__(self, kernel: Kernel, loops: Sequence[Seq]) -> None:
        self.loops, inside = loops, tuple(statements(loops[-1].body))
        self.own = {s.buffer for s in inside if isinstance(s, New)}
        self.moving = {s.index for s in (*loops, *inside) if isinstance(s, Seq)}
        self.reads = [read.buffer for stmt in inside for read in _reads(stmt)]
        binds = [s for s in inside if isinstance(s, Bind | Accumulate | Atomic)]
        self.written = [s.buffer for s in binds]
        alone = [s for s in _of_iteration(loops[-1].body) if isinstance(s, Bind)]
        self.meaning = {s.buffer: s for s in alone if s.buffer in self.own and self.written.count(s.buffer) == 1}
        self.simple = not any(isinstance(s, Asm) for s in inside)
        counts = [most(loop.extent, size_ranges(kernel)) for loop in loops]
        number: IndexExpr = IndexVar(name=loops[0].index)
        total: int | None = counts[0]
        for loop, count in zip(loops[1:], counts[1:], strict=True):
            number = add(multiply(number, loop.extent), IndexVar(name=loop.index))
            total = None if total is None or count is None else total * count
        dtype = I32 if total is not None and total <= MOST_I32 else I64
        self.iteration = IndexValue(index=number, dtype=dtype)

    def pick(self, taken: If) -> Pick | None:
        """A condition as a pick."""
        binds = tuple(s for s in taken.then if isinstance(s, Bind))
        bound = {bind.buffer for bind in binds}
        if taken.orelse or not binds or len(binds) != len(taken.then) or not self.simple:
            return None
        if any(b.buffer in self.own or not self._is_fixed(b.subscripts) for b in binds):
            return None
        asked = self._asked(taken.condition, bound)
        if asked is None:
            return None
        asking, compare = asked
        for value, state, fn in _sides(compare):
            asks = [read for read in value_reads(state) if read.buffer in bound]
            alone = all(self.written.count(read.buffer) == 1 for read in asks)
            if asks and alone and len(asks) == sum(self.reads.count(name) for name in bound):
                ends = self._ends(binds, value)
                same = self._meant(self._left(state, binds)) == self._meant(value)
                if same and self._changes_alone(state, bound) and ends is not None:
                    return Pick(
                        asking=asking,
                        compare=compare,
                        fn=fn,
                        value=value,
                        state=state,
                        taken=taken,
                        iteration=self.iteration,
                        ends=ends,
                    )
        return None

    def _is_fixed(self, subscripts: Sequence[Subscript]) -> bool:
        """Whether a place is the same one in all iterations."""
        gathered = any(isinstance(subscript, Gather) for subscript in subscripts)
        return not gathered and subscript_names(tuple(subscripts)).isdisjoint(self.moving)

    def _changes_alone(self, state: Expr, bound: Set[str]) -> bool:
        """Whether a value changes by the state alone."""
        others = {read.buffer for read in value_reads(state)} - bound
        return names(state).isdisjoint(self.moving) and others.isdisjoint(self.own | set(self.written))

    def _asked(self, condition: Condition | Read, bound: Set[str]) -> tuple[Bind, Op] | None:
        """The comparison with the state, a part of a condition of which all have to hold, and the bind that has it."""
        if not isinstance(condition, Read) or condition.buffer not in self.meaning:
            return None
        if self.reads.count(condition.buffer) != 1:
            return None
        bind = self.meaning[condition.buffer]
        for part in _parts(bind.value):
            if isinstance(part, Read) and part.buffer in self.meaning:
                further = self._asked(part, bound)
                if further is not None:
                    return further
            elif isinstance(part, Op) and any(read.buffer in bound for read in value_reads(part)):
                return bind, part
        return None

    def _left(self, state: Expr, binds: Sequence[Bind]) -> Expr:
        """The state as the binds under the condition leave it."""
        left = {(bind.buffer, bind.subscripts): bind.value for bind in binds}
        return rewrite(map_reads(state, lambda read: left.get((read.buffer, read.subscripts), read)), _as_index)

    def _ends(self, binds: Sequence[Bind], value: Expr) -> tuple[Bind, ...] | None:
        """The binds as functions of what was picked: the value itself, or what its iteration tells."""
        at: Expr = Read(buffer=AT, subscripts=(), dtype=self.iteration.dtype)
        at = at if at.dtype == I64 else Cast(operand=at, dtype=I64)
        back: dict[str, Expr] = {}
        for loop in self.loops[:0:-1]:
            extent = IndexValue(index=loop.extent)
            back[loop.index] = Op(fn=Fn.MOD, args=(at, extent), dtype=I64)
            at = Op(fn=Fn.FLOORDIV, args=(at, extent), dtype=I64)
        back[self.loops[0].index] = at
        best = Read(buffer=BEST, subscripts=(), dtype=value.dtype)
        found: list[Bind] = []
        for bind in binds:
            meant = self._meant(bind.value)
            if meant == self._meant(value):
                own: Expr | None = best
            elif _widens(meant.dtype, value.dtype) and Cast(operand=meant, dtype=value.dtype) == self._meant(value):
                own = Cast(operand=best, dtype=bind.value.dtype)
            else:
                own = self._at_iteration(meant, back)
            if own is None:
                return None
            found.append(Bind(id=bind.id, buffer=bind.buffer, subscripts=bind.subscripts, value=own, span=bind.span))
        return tuple(found)

    def _meant(self, value: Expr) -> Expr:
        """A value with what the scalars of an iteration stand for."""
        while value_size(value) <= LARGEST and (inside := map_reads(value, self._stands_for)) != value:
            value = inside
        return value

    def _stands_for(self, read: Read) -> Expr:
        return self.meaning[read.buffer].value if read.buffer in self.meaning else read

    def _at_iteration(self, value: Expr, back: Mapping[str, Expr]) -> Expr | None:
        """A value for the iteration that data tells; None where it is a function of more than that."""
        read = {r.buffer for r in value_reads(value)}
        if not read.isdisjoint(self.own | set(self.written)) or not names(value) & self.moving <= back.keys():
            return None
        if any(isinstance(node, Condition) and names(node) & back.keys() for node in walk(value)):
            return None

        def change(node: Node) -> Node:
            match node:
                case IndexValue(index=index, dtype=dtype) if names(index) & back.keys():
                    return _cast(_on_values(index, back), dtype)
                case Read(subscripts=subscripts):
                    return replace(node, subscripts=tuple(_gathered(s, back) for s in subscripts))
                case Cast(operand=operand, dtype=dtype):
                    return _cast(operand, dtype)
                case _:
                    return node

        return rewrite(value, change, lambda node: not isinstance(node, IndexExpr | Condition))


def _sides(compare: Op) -> Iterator[tuple[Expr, Expr, Fn]]:
    """A comparison as one of a value with a state, in both ways."""
    if compare.fn in MONOID and not compare.args[0].dtype.is_bool:
        left, right = compare.args
        yield left, right, compare.fn
        yield right, left, _TURNED[compare.fn]


def _parts(value: Expr) -> Iterator[Expr]:
    """The parts of a condition that all have to hold."""
    match value:
        case Select(condition=first, then=then, other=Const(value=False)):
            if not isinstance(first, Condition):
                yield from _parts(first)
            yield from _parts(then)
        case _:
            yield value


def _widens(narrow: DType, wide: DType) -> bool:
    """Whether a conversion there and back gives the same value."""
    return narrow.kind == wide.kind and narrow.bits <= wide.bits


def _as_index(node: Node) -> Node:
    """A subscript that is an index expression, also where data had it."""
    return node.value.index if isinstance(node, Gather) and isinstance(node.value, IndexValue) else node


def _gathered(subscript: Subscript, back: Mapping[str, Expr]) -> Subscript:
    if isinstance(subscript, Gather) or not names(subscript) & back.keys():
        return subscript
    return Gather(value=_on_values(subscript, back))


def _on_values(index: IndexExpr, back: Mapping[str, Expr]) -> Expr:
    """An index expression of which some indices are data."""

    def of(node: IndexExpr, parts: list[Expr]) -> Expr:
        match node:
            case IndexConst(value=value):
                return Const(value=value, dtype=I64)
            case IndexVar(name=name) if name in back:
                return back[name]
            case IndexBinary() if not names(node) & back.keys():
                return IndexValue(index=node)
            case IndexBinary(op=IndexOp.CEILDIV, right=right):
                more = Op(fn=Fn.ADD, args=(parts[0], IndexValue(index=subtract(right, ONE))), dtype=I64)
                return Op(fn=Fn.FLOORDIV, args=(more, parts[1]), dtype=I64)
            case IndexBinary(op=op):
                return Op(fn=_ON_VALUES[op], args=tuple(parts), dtype=I64)
            case _:
                return IndexValue(index=node)

    return fold(index, of)


def _cast(value: Expr, dtype: DType) -> Expr:
    """The value in another type; the number of an iteration, which was widened, goes back as it came."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Cast) and value.operand.dtype == dtype and isinstance(value.operand, Read):
        return value.operand
    return Cast(operand=value, dtype=dtype)
