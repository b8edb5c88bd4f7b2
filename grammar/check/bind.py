"""Size binding: the names of sizes in a core kernel replaced by numbers, and what can then be checked."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from texpr.grammar import ast
from texpr.grammar.ast import Condition, IndexBinary, IndexConst, IndexExpr, IndexVar, SizeVar
from texpr.grammar.check.loops import EXACT, missed_range
from texpr.grammar.diagnostics import Diagnostic, Label, Severity, TExprError, did_you_mean, error
from texpr.grammar.index.decide import decide
from texpr.grammar.index.expr import I64_MAX, I64_MIN, constant_value, leaves, substitute
from texpr.grammar.index.operators import DIVISIONS
from texpr.grammar.index.text import in_words
from texpr.grammar.source import Span
from texpr.grammar.walk import rewrite, walk

N = TypeVar("N", bound=ast.Node)


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
        buffers = tuple(map(self.buffer, kernel.buffers))
        facts = tuple(fact for fact in map(self.fact, kernel.facts) if fact is not None)
        sizes = tuple(size for size in kernel.sizes if size.name not in self.values)
        if self.warnings is not None:
            self.warnings += [missed for loop in walk(kernel) for missed in self.misses(loop)]
        rest = self.tree(replace(kernel, buffers=(), facts=(), sizes=()))
        if self.errors:
            raise TExprError(self.errors)
        return replace(rest, buffers=buffers, facts=facts, sizes=sizes)

    def tree(self, root: N) -> N:
        """The tree with its index expressions bound."""
        return rewrite(
            root,
            lambda node: self.index(node) if isinstance(node, IndexExpr) else node,
            into=lambda node: not isinstance(node, IndexExpr),
        )

    # ---- index expressions and conditions

    def leaf(self, node: IndexVar | SizeVar) -> IndexExpr | None:
        value = self.values.get(node.name) if isinstance(node, SizeVar) else None
        return None if value is None else IndexConst(value=value, span=node.span)

    def index(self, e: IndexExpr) -> IndexExpr:
        """The expression bound; E0211 for a number that leaves 64 bits, and for a divisor that the sizes make 0."""
        result = e if isinstance(e, IndexVar) else substitute(e, self.leaf)
        for node in walk(result):
            if isinstance(node, IndexConst) and not I64_MIN <= node.value <= I64_MAX:
                message = f"`{in_words(e)}` does not fit 64 bits with these sizes"
                self.errors.append(error("E0211", message, _place(e.span)))
                return IndexConst(value=0, span=e.span)
            divisor = constant_value(node.right) if isinstance(node, IndexBinary) and node.op in DIVISIONS else None
            if isinstance(node, IndexBinary) and divisor is not None and divisor <= 0:
                message = f"`{node.op.value}` divides by {divisor} with these sizes"
                self.errors.append(error("E0211", message, _place(node.span)))
        return result

    def misses(self, loop: ast.Node) -> list[Diagnostic]:
        """W0302 for each division in the extent of a loop that the sizes make inexact."""
        found: list[Diagnostic] = []

        def inexact(node: IndexBinary, left: int, right: int) -> None:
            label = Label(span=node.span if node.span.source.text else loop.span)
            found.append(
                Diagnostic(
                    code="W0302", message=missed_range(left, right), primary=label, severity=Severity.WARNING,
                    help=EXACT,
                )
            )  # fmt: skip

        if isinstance(loop, ast.Par | ast.Seq):
            substitute(loop.extent, self.leaf, inexact)
        return found

    def fact(self, condition: Condition) -> Condition | None:
        """The fact with its sizes bound; None where it holds, an error where it does not."""
        bound = self.tree(condition)
        truth = decide(bound)
        if truth is None:
            return bound
        if not truth:
            names = dict.fromkeys(n.name for n in leaves(condition) if isinstance(n, SizeVar))
            given = ", ".join(f"{name} = {self.values[name]}" for name in names if name in self.values)
            message = f"`{in_words(condition)}` does not hold for {given}" if given else "a fact does not hold"
            witness = {name: self.values[name] for name in names if name in self.values}
            self.errors.append(error("E0211", message, _place(condition.span), witness=witness))
        return None

    def buffer(self, b: ast.Buffer) -> ast.Buffer:
        bound = self.tree(b)
        for extent in bound.shape:
            if isinstance(extent, IndexConst) and extent.value < 0:
                message = f"an extent of `{b.source_name or b.name}` is {extent.value} with these sizes"
                self.errors.append(error("E0211", message, _place(b.span)))
        return bound


def _place(span: Span) -> Span | None:
    return span if span.source.text else None
