"""The walk over the core tree: every leaf with its loops, domain and accesses, before element spaces are known.

Affine conditions restrict domains (an `if`) or single accesses (a select arm). A data-dependent `if` becomes a
`DataGuard` of the statements inside, and each of them begins by reading the condition. The `reference` body stands
for an intrinsic.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import field

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Anchor,
    Asm,
    Atomic,
    Bind,
    Cast,
    Condition,
    ConditionValue,
    Const,
    Expr,
    Gather,
    If,
    IndexValue,
    Intrinsic,
    Kernel,
    Leaf,
    New,
    Op,
    Par,
    Read,
    Select,
    Seq,
    Stmt,
    Subscript,
)
from texpr.grammar.diagnostics import Diagnostic, TExprError, error
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.walk import walk
from texpr.polyhedral import isl
from texpr.polyhedral.affine import BeyondLimitError, NotAffineError, Scope, extend
from texpr.polyhedral.facts import Facts, sizes_in
from texpr.polyhedral.program import AccessMode, DataGuard, LoopDim

MAX_LOOPS = 24  # around one statement
MAX_DEPTH = 400  # blocks and operators over one another


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccessDraft:
    """An access before its buffer's element space is known; `domain` has the points at which it happens."""

    buffer: str
    mode: AccessMode
    subscripts: tuple[Subscript, ...]
    domain: isl.Set
    must: bool
    op: AccOp | None = None
    span: Span = field(repr=False)

    @property
    def gathered(self) -> bool:
        return any(isinstance(subscript, Gather) for subscript in self.subscripts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatementDraft:
    id: str
    leaf: Leaf
    loops: tuple[LoopDim, ...]
    scope: Scope
    domain: isl.Set
    accesses: tuple[AccessDraft, ...]
    position: tuple[int | str, ...]
    guards: tuple[DataGuard, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BufferDraft:
    """Where a buffer lives: inside the loops of `scope`, at the points of `domain`."""

    scope: Scope
    domain: isl.Set


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifted:
    statements: tuple[StatementDraft, ...]
    buffers: dict[str, BufferDraft]


def lift(kernel: Kernel, work: isl.Work, facts: Facts, diagnostics: list[Diagnostic]) -> Lifted:
    """Statements in text order, and the home of every buffer. Refusals (E0307, E0308, E0502) go to `diagnostics`."""
    lifting = _Walk(diagnostics)
    counter = _Counter()
    if facts.together:
        whole = _outermost(work, facts, facts.sizes)
        lifting.buffers |= {param.name: BufferDraft(scope=whole.scope, domain=whole.domain) for param in kernel.params}
        lifting.block(kernel.body, whole, counter)
        return Lifted(statements=tuple(lifting.statements), buffers=lifting.buffers)
    named = _sizes_of_buffers(kernel)
    for param in kernel.params:
        home = _outermost(work, facts, named[param.name])
        lifting.buffers[param.name] = BufferDraft(scope=home.scope, domain=home.domain)
    for statement in kernel.body:
        used = sizes_in([statement]).union(*(named[buffer] for buffer in _buffers_in(statement)))
        lifting.block((statement,), _outermost(work, facts, used), counter)
    return Lifted(statements=tuple(lifting.statements), buffers=lifting.buffers)


def _outermost(work: isl.Work, facts: Facts, names: Iterable[str]) -> "_Block":
    """Outside all loops, with the sizes of some names."""
    scope = Scope(facts.connected(names), (), work)
    return _Block(scope=scope, domain=facts.around(scope.universe()))


def _sizes_of_buffers(kernel: Kernel) -> dict[str, set[str]]:
    """The sizes that the shape and the subscripts of every buffer name."""
    found = {buffer.name: sizes_in(buffer.shape) for buffer in kernel.buffers}
    for node in walk(kernel):
        if isinstance(node, Read | Bind | Accumulate | Atomic):
            found[node.buffer] |= sizes_in(node.subscripts)
    return found


def _buffers_in(statement: Stmt) -> set[str]:
    return {n.buffer for n in walk(statement) if isinstance(n, Read | Bind | Accumulate | Atomic | New)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """What surrounds a block."""

    scope: Scope
    domain: isl.Set
    loops: tuple[LoopDim, ...] = ()
    position: tuple[int | str, ...] = ()
    guards: tuple[DataGuard, ...] = ()


class _Counter:
    """The next child number of a loop body; the branches of an `if` share it."""

    def __init__(self) -> None:
        self.value = 0

    def next(self) -> int:
        self.value += 1
        return self.value - 1


Inside = tuple[tuple[Stmt, ...], _Block, _Counter]
"""A block inside a statement."""


class _Walk:
    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = diagnostics
        self.statements: list[StatementDraft] = []
        self.buffers: dict[str, BufferDraft] = {}
        self.conditions = 0

    def block(self, body: tuple[Stmt, ...], around: _Block, counter: _Counter) -> None:
        """A block and those inside it, in text order."""
        work = [(statement, around, counter, 0) for statement in reversed(body)]
        while work:
            statement, around, counter, depth = work.pop()
            try:
                if depth > MAX_DEPTH:
                    raise _too_deep(statement.span)
                inside = self.statement(statement, around, counter)
            except NotAffineError as reason:
                self.diagnostics.append(not_affine(statement.span, reason, "this statement"))
            except TExprError as refused:
                self.diagnostics += refused.diagnostics
            else:
                work += [
                    (s, block, count, depth + 1) for body, block, count in reversed(inside) for s in reversed(body)
                ]

    def statement(self, statement: Stmt, around: _Block, counter: _Counter) -> tuple[Inside, ...]:
        """Takes in a statement; the blocks inside it, in text order."""
        match statement:
            case Par() | Seq():
                return (self.loop(statement, around, counter.next()),)
            case If():
                return self.branches(statement, around, counter)
            case New():
                self.buffers[statement.buffer] = BufferDraft(scope=around.scope, domain=around.domain)
            case Intrinsic():
                return ((statement.reference, around, counter),)
            case Asm():
                raise TExprError(
                    [
                        error(
                            "E0502",
                            "assembly outside a function with a `reference` has no meaning that can be proved",
                            statement.span,
                            help="put it in a `fn` and state its meaning in a `reference` block",
                        )
                    ]
                )
            case Bind() | Accumulate() | Atomic() | Anchor():
                self.leaf(statement, around, counter.next())
        return ()

    def loop(self, loop: Par | Seq, around: _Block, number: int) -> Inside:
        if len(around.loops) >= MAX_LOOPS:
            raise _too_deep(loop.span)
        scope = around.scope.inner(loop.index, loop.extent)
        with scope.work.limited(loop.span, "the range of this loop", scope.width, isl.BUILDING):
            try:
                extent = scope.value(loop.extent)
            except NotAffineError as reason:
                raise TExprError([not_affine(loop.extent.span, reason, "this extent")]) from None
            inside = scope.below(scope.index(loop.index), extent)
            domain = extend(around.domain, scope).intersect(inside)
        dim = LoopDim(
            index=loop.index,
            parallel=isinstance(loop, Par),
            extent=loop.extent,
            node=loop,
        )
        inner = _Block(
            scope=scope,
            domain=domain,
            loops=(*around.loops, dim),
            position=(*around.position, number, loop.index),
            guards=around.guards,
        )
        return loop.body, inner, _Counter()

    def branches(self, statement: If, around: _Block, counter: _Counter) -> tuple[Inside, ...]:
        condition = statement.condition
        if isinstance(condition, Read):
            number, self.conditions = self.conditions, self.conditions + 1
            guards = [
                (*around.guards, DataGuard(number=number, condition=condition, value=value, depth=len(around.loops)))
                for value in (True, False)
            ]
            then, other = (_inside(around, around.domain, guard) for guard in guards)
            return (statement.then, then, counter), (statement.orelse, other, counter)
        with around.scope.work.limited(statement.span, "this condition", around.scope.width, isl.BUILDING):
            holds = around.scope.holds(condition)
            parts = around.domain.intersect(holds), around.domain.subtract(holds)
        then, other = (_inside(around, part, around.guards) for part in parts)
        return (statement.then, then, counter), (statement.orelse, other, counter)

    def leaf(self, leaf: Leaf, around: _Block, number: int) -> None:
        accesses: list[AccessDraft] = []
        with around.scope.work.limited(leaf.span, "this statement", around.scope.width, isl.BUILDING):
            for guard in around.guards:
                accesses += _reads(guard.condition, around.scope, around.domain)
            accesses += _reads(leaf.value, around.scope, around.domain)
            if not isinstance(leaf, Anchor):
                for subscript in leaf.subscripts:
                    if isinstance(subscript, Gather):
                        accesses += _reads(subscript.value, around.scope, around.domain)
                accesses.append(_written(leaf, around.domain))
        self.statements.append(
            StatementDraft(
                id=leaf.id,
                leaf=leaf,
                loops=around.loops,
                scope=around.scope,
                domain=around.domain,
                accesses=tuple(accesses),
                position=(*around.position, number),
                guards=around.guards,
            )
        )


def _inside(around: _Block, domain: isl.Set, guards: tuple[DataGuard, ...]) -> _Block:
    return _Block(scope=around.scope, domain=domain, loops=around.loops, position=around.position, guards=guards)


def _reads(expr: Expr, scope: Scope, domain: isl.Set) -> Iterator[AccessDraft]:
    """The reads of an expression in evaluation order; a gather's own reads come before it."""
    work: list[AccessDraft | tuple[Expr, isl.Set, bool, int]] = [(expr, domain, True, 0)]
    while work:
        item = work.pop()
        if isinstance(item, AccessDraft):
            yield item
            continue
        node, domain, must, depth = item
        if depth > MAX_DEPTH:
            raise _too_deep(node.span)
        inside: list[tuple[Expr, isl.Set, bool]] = []
        match node:
            case Const() | IndexValue() | ConditionValue():
                pass
            case Read():
                work.append(
                    AccessDraft(
                        buffer=node.buffer,
                        mode=AccessMode.READ,
                        subscripts=node.subscripts,
                        domain=domain,
                        must=must,
                        span=node.span,
                    )
                )
                inside = [(s.value, domain, must) for s in node.subscripts if isinstance(s, Gather)]
            case Op(args=args):
                inside = [(arg, domain, must) for arg in args]
            case Cast(operand=operand):
                inside = [(operand, domain, must)]
            case Select(condition=condition, then=then, other=other):
                if isinstance(condition, ConditionValue):
                    condition = condition.condition
                if isinstance(condition, Condition):
                    holds = scope.holds(condition)
                    inside = [(then, domain.intersect(holds), must), (other, domain.subtract(holds), must)]
                else:
                    inside = [(condition, domain, must), (then, domain, False), (other, domain, False)]
        work += [(*each, depth + 1) for each in reversed(inside)]


def _written(leaf: Bind | Accumulate | Atomic, domain: isl.Set) -> AccessDraft:
    match leaf:
        case Bind():
            mode, op = AccessMode.WRITE, None
        case Accumulate():
            mode, op = AccessMode.ACCUMULATE, leaf.op
        case Atomic():
            mode, op = AccessMode.ATOMIC, leaf.op
    return AccessDraft(
        buffer=leaf.buffer,
        mode=mode,
        op=op,
        subscripts=leaf.subscripts,
        domain=domain,
        must=True,
        span=target_span(leaf),
    )


LEFT_SIDE = re.compile(r"(?:(?:atomic|let|reg)\s+)?(\w+)\s*(\[|[-+*]?=|(?:max|min)=)")


def target_span(leaf: Bind | Accumulate | Atomic) -> Span:
    """The span of the left side where the statement's text begins with one, else of the statement."""
    span, source = leaf.span, leaf.span.source
    match = LEFT_SIDE.match(source.text, span.start, span.end)
    if match is None:
        return span
    if match[2] != "[":
        return Span(source, match.start(1), match.end(1)) if not leaf.subscripts else span
    open_brackets = 0
    for position in range(match.start(2), span.end):
        open_brackets += {"[": 1, "]": -1}.get(source.text[position], 0)
        if open_brackets == 0:
            return Span(source, match.start(1), position + 1)
    return span


def not_affine(span: Span, reason: NotAffineError, what: str) -> Diagnostic:
    """E0308: `what` is outside the quasi-affine form, because of `reason`; E0307 where it is beyond a limit."""
    if isinstance(reason, BeyondLimitError):
        help = "bind the sizes, or write simpler subscripts and conditions"
        return error("E0307", f"{what} is beyond a limit of the proofs", span, str(reason), help=help)
    return error("E0308", f"{what} is not quasi-affine", span, str(reason), help="bind the size")


def _too_deep(span: Span) -> TExprError:
    return TExprError([error("E0307", "this is nested too deeply to be proved", span, help="split the statement")])
