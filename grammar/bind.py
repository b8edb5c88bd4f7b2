"""Size binding: the names of sizes in a core kernel replaced by numbers, and what can then be checked."""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from texpr.grammar import ast
from texpr.grammar.ast import Condition, IndexConst, IndexExpr, IndexVar, SizeVar
from texpr.grammar.core import condition_leaves
from texpr.grammar.depth import deep_recursion
from texpr.grammar.diagnostics import Diagnostic, Label, Severity, TExprError, did_you_mean, error
from texpr.grammar.index.expr import COMPARE, I64_MAX, I64_MIN, leaves, substitute
from texpr.grammar.index.text import in_words
from texpr.grammar.loops import EXACT, missed_range
from texpr.grammar.source import Span


def free_sizes(kernel: ast.Kernel) -> tuple[str, ...]:
    """Names of the sizes that are neither bound nor constants, in order of appearance."""
    return tuple(size.name for size in kernel.sizes if size.default is None)


def bind_sizes(kernel: ast.Kernel, sizes: Mapping[str, int], *, warnings: list[Diagnostic] | None = None) -> ast.Kernel:
    """The kernel with `sizes`, and the defaults of its constants, in place of the names; constants are folded.

    Facts that become true are dropped. E0211: an unknown name, a negative or too large size, a fact that does not
    hold. Inexact divisions in extents are appended to `warnings` (W0302).

        par N / 4 i { … } with N = 10   ->   par 2 i { … }, and a warning: 8 to 9 of 10 are missed
    """
    check_sizes(kernel, sizes)
    values = {size.name: size.default for size in kernel.sizes if size.default is not None} | dict(sizes)
    with deep_recursion():
        return _Binder(kernel, values, warnings).bound()


def check_sizes(kernel: ast.Kernel, sizes: Mapping[str, int]) -> None:
    """E0211 for names that are not sizes of the kernel and for values that are not sizes."""
    known = [size.name for size in kernel.sizes]
    found: list[Diagnostic] = []
    for name, value in sizes.items():
        if name not in known:
            otherwise = "its sizes are " + ", ".join(known) if known else "it has no sizes"
            message = f"`{name}` is not a size of `{kernel.name}`"
            found.append(error("E0211", message, help=did_you_mean(name, known, otherwise)))
        elif isinstance(value, bool) or not isinstance(value, int):
            found.append(error("E0211", f"the size `{name}` is an integer, {value!r} was given"))
        elif not 0 <= value <= I64_MAX:
            found.append(error("E0211", f"the size `{name}` is from 0 to 2^63 - 1, {value} was given"))
    if found:
        raise TExprError(found)


class _Binder:
    def __init__(self, kernel: ast.Kernel, values: dict[str, int], warnings: list[Diagnostic] | None) -> None:
        self.kernel = kernel
        self.values = values
        self.warnings = warnings
        self.errors: list[Diagnostic] = []

    def bound(self) -> ast.Kernel:
        kernel = self.kernel
        facts = tuple(fact for fact in map(self.fact, kernel.facts) if fact is not None)
        result = replace(
            kernel,
            buffers=tuple(self.buffer(b) for b in kernel.buffers),
            sizes=tuple(size for size in kernel.sizes if size.name not in self.values),
            facts=facts,
            attrs=self.attrs(kernel.attrs),
            body=self.block(kernel.body),
        )
        if self.errors:
            raise TExprError(self.errors)
        return result

    # ---- index expressions and conditions

    def leaf(self, node: IndexVar | SizeVar) -> IndexExpr | None:
        value = self.values.get(node.name) if isinstance(node, SizeVar) else None
        return None if value is None else IndexConst(value=value, span=node.span)

    def index(self, e: IndexExpr) -> IndexExpr:
        result = substitute(e, self.leaf)
        for constant in leaves(result):
            if isinstance(constant, IndexConst) and not I64_MIN <= constant.value <= I64_MAX:
                message = f"`{in_words(e)}` does not fit 64 bits with these sizes"
                self.errors.append(error("E0211", message, _place(e.span)))
                return IndexConst(value=0, span=e.span)
        self.divisors(result)
        return result

    def divisors(self, e: IndexExpr) -> None:
        """E0211 for a divisor that the sizes make 0."""
        stack = [e]
        while stack:
            node = stack.pop()
            if not isinstance(node, ast.IndexBinary):
                continue
            stack += (node.left, node.right)
            divides = node.op in (ast.IndexOp.DIV, ast.IndexOp.MOD, ast.IndexOp.CEILDIV)
            if divides and isinstance(node.right, IndexConst) and node.right.value <= 0:
                message = f"`{node.op.value}` divides by {node.right.value} with these sizes"
                self.errors.append(error("E0211", message, _place(node.span)))

    def extent(self, e: IndexExpr, span: Span) -> IndexExpr:
        def inexact(node: ast.IndexBinary, left: int, right: int) -> None:
            if self.warnings is not None:
                label = Label(span=node.span if node.span.source.text else span)
                self.warnings.append(
                    Diagnostic(
                        code="W0302", message=missed_range(left, right), primary=label, severity=Severity.WARNING,
                        help=EXACT,
                    )
                )  # fmt: skip

        substitute(e, self.leaf, inexact)
        return self.index(e)

    def fact(self, condition: Condition) -> Condition | None:
        """The fact with its sizes bound; None where it holds, an error where it does not."""
        bound = self.condition(condition)
        truth = decide(bound)
        if truth is None:
            return bound
        if not truth:
            names = dict.fromkeys(n.name for n in condition_leaves(condition) if isinstance(n, SizeVar))
            given = ", ".join(f"{name} = {self.values[name]}" for name in names if name in self.values)
            message = f"`{in_words(condition)}` does not hold for {given}" if given else "a fact does not hold"
            witness = {name: self.values[name] for name in names if name in self.values}
            self.errors.append(error("E0211", message, _place(condition.span), witness=witness))
        return None

    def condition(self, c: Condition) -> Condition:
        match c:
            case ast.Compare():
                return replace(c, left=self.index(c.left), right=self.index(c.right))
            case ast.And() | ast.Or():
                return replace(c, parts=tuple(self.condition(part) for part in c.parts))
            case ast.Not():
                return replace(c, part=self.condition(c.part))
            case ast.Always():
                return c
        assert_never(c)

    # ---- values and statements

    def subscripts(self, subscripts: tuple[ast.Subscript, ...]) -> tuple[ast.Subscript, ...]:
        return tuple(
            replace(s, value=self.value(s.value)) if isinstance(s, ast.Gather) else self.index(s) for s in subscripts
        )

    def value(self, e: ast.Expr) -> ast.Expr:
        match e:
            case ast.Const():
                return e
            case ast.IndexValue():
                return replace(e, index=self.index(e.index))
            case ast.ConditionValue():
                return replace(e, condition=self.condition(e.condition))
            case ast.Read():
                return replace(e, subscripts=self.subscripts(e.subscripts))
            case ast.Op():
                return replace(e, args=tuple(self.value(arg) for arg in e.args))
            case ast.Cast():
                return replace(e, operand=self.value(e.operand))
            case ast.Select():
                chosen: Condition | ast.Expr
                if isinstance(e.condition, Condition):
                    chosen = self.condition(e.condition)
                else:
                    chosen = self.value(e.condition)
                return replace(e, condition=chosen, then=self.value(e.then), other=self.value(e.other))
        assert_never(e)

    def block(self, body: tuple[ast.Stmt, ...]) -> tuple[ast.Stmt, ...]:
        return tuple(self.statement(s) for s in body)

    def statement(self, s: ast.Stmt) -> ast.Stmt:
        attrs = self.attrs(s.attrs)
        match s:
            case ast.Par():
                return replace(
                    s, attrs=attrs, extent=self.extent(s.extent, s.span), low=self.index(s.low), body=self.block(s.body)
                )
            case ast.Seq():
                return replace(
                    s, attrs=attrs, extent=self.extent(s.extent, s.span), low=self.index(s.low), body=self.block(s.body)
                )
            case ast.If():
                condition: Condition | ast.Read = s.condition
                if isinstance(condition, ast.Read):
                    condition = replace(condition, subscripts=self.subscripts(condition.subscripts))
                else:
                    condition = self.condition(condition)
                return replace(
                    s, attrs=attrs, condition=condition, then=self.block(s.then), orelse=self.block(s.orelse)
                )
            case ast.Bind():
                return replace(s, attrs=attrs, subscripts=self.subscripts(s.subscripts), value=self.value(s.value))
            case ast.Accumulate() | ast.Atomic():
                return replace(s, attrs=attrs, subscripts=self.subscripts(s.subscripts), value=self.value(s.value))
            case ast.Anchor():
                return replace(s, attrs=attrs, value=self.value(s.value))
            case ast.New():
                return replace(s, attrs=attrs)
            case ast.Asm():
                operands = tuple(
                    o if o.subscripts is None else replace(o, subscripts=self.subscripts(o.subscripts))
                    for o in s.operands
                )
                return replace(s, attrs=attrs, operands=operands)
            case ast.Intrinsic():
                return replace(s, attrs=attrs, reference=self.block(s.reference), hardware=self.block(s.hardware))
        assert_never(s)

    def attrs(self, attrs: tuple[ast.Attr, ...]) -> tuple[ast.Attr, ...]:
        if not any(attr.args for attr in attrs):
            return attrs
        return tuple(
            replace(attr, args=tuple(arg if isinstance(arg, str) else self.index(arg) for arg in attr.args))
            for attr in attrs
        )

    def buffer(self, b: ast.Buffer) -> ast.Buffer:
        shape = tuple(self.index(e) for e in b.shape)
        for extent in shape:
            if isinstance(extent, IndexConst) and extent.value < 0:
                message = f"an extent of `{b.source_name or b.name}` is {extent.value} with these sizes"
                self.errors.append(error("E0211", message, _place(b.span)))
        strides = None if b.strides is None else tuple(self.index(e) for e in b.strides)
        return replace(b, shape=shape, strides=strides, attrs=self.attrs(b.attrs))


def _place(span: Span) -> Span | None:
    return span if span.source.text else None


def decide(c: Condition) -> bool | None:
    """Whether a condition holds, where constants decide it."""
    match c:
        case ast.Always():
            return c.value
        case ast.Compare(left=IndexConst(value=a), right=IndexConst(value=b)):
            return bool(COMPARE[c.op](a, b))
        case ast.Compare():
            return None
        case ast.Not():
            part = decide(c.part)
            return None if part is None else not part
        case ast.And() | ast.Or():
            parts = [decide(part) for part in c.parts]
            absorbing = isinstance(c, ast.Or)
            if absorbing in parts:
                return absorbing
            return None if None in parts else not absorbing
    assert_never(c)
