"""The cases of a mapping beside a kernel: what their conditions may ask, and what is known of it before a call.

    M % 128 == 0 and stride(A, 0) % 8 == 0      for A: f32[M, K] with K = 24   ->   M % 128 == 0

A condition asks for sizes, for strides, which a kernel declares over its sizes, and for the remainder of an address by
a number, which is all that a call is kept by. What the bound sizes decide is no case any more.
"""

from collections.abc import Mapping
from dataclasses import replace

from texpr.grammar.ast import (
    And,
    Compare,
    CompareOp,
    Condition,
    IndexBinary,
    IndexExpr,
    IndexOp,
    IndexVar,
    Kernel,
    Or,
    Role,
    SizeVar,
)
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.decide import decide
from texpr.grammar.index.expr import combine, const, constant_value
from texpr.grammar.index.text import in_words
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.layout.declared import declared_layout
from texpr.polyhedral.layout.normal import strides
from texpr.polyhedral.mapped.candidate import Case, Cases, Choices, address_of, stride_of


def resolved(kernel: Kernel, cases: Cases, sizes: Mapping[str, int]) -> Choices:
    """The cases with strides and the bound `sizes` in their conditions, without those that are decided; a candidate
    where none is left. Raises E0401 for a condition on what the kernel has not."""
    known = _known(kernel, sizes)
    addresses = {address_of(b.name).name for b in kernel.params if b.role is Role.PARAM}
    open_cases: list[Case] = []
    for number, case in enumerate(cases.cases):
        when = _checked(case.when, known, addresses, f"the condition of case {number}, `{in_words(case.when)}`,")
        truth = decide(when)
        if truth:
            return _of(open_cases, replace(cases, otherwise=case.candidate))
        if truth is None:
            open_cases.append(replace(case, when=when))
    return _of(open_cases, cases)


def _of(open_cases: list[Case], cases: Cases) -> Choices:
    return replace(cases, cases=tuple(open_cases)) if open_cases else cases.otherwise


def _known(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, IndexExpr]:
    """What each name stands for: free sizes for themselves."""
    known: dict[str, IndexExpr] = {size.name: SizeVar(name=size.name) for size in kernel.sizes}
    known |= {name: const(value) for name, value in sizes.items()}
    for buffer in kernel.params:
        steps = strides(declared_layout(buffer)) or ()
        known |= {stride_of(buffer.name, dim).name: step for dim, step in enumerate(steps)}
    return known


def _checked(when: Condition, known: Mapping[str, IndexExpr], addresses: set[str], where: str) -> Condition:
    asked = [node for node in walk(when) if isinstance(node, IndexVar | SizeVar)]
    for node in asked:
        if node.name not in known and node.name not in addresses:
            names = ", ".join([*known, *sorted(addresses)]) or "none"
            raise fail("E0401", f"{where} asks for {node.name[:80]}, which the kernel has not", help=f"it has {names}")
    remainders = [
        node.left
        for node in walk(when)
        if isinstance(node, IndexBinary) and node.op is IndexOp.MOD and (constant_value(node.right) or 0) > 0
    ]
    for node in asked:
        if node.name in addresses and not any(node is remainder for remainder in remainders):
            raise fail(
                "E0401",
                f"{where} asks for {node.name} itself",
                help=f"ask for its remainder by a number: {node.name} % 16 == 0",
            )

    def change(node: Condition | IndexExpr) -> Condition | IndexExpr:
        match node:
            case IndexVar(name=name) | SizeVar(name=name):
                return node if name in addresses else known[name]
            case IndexBinary(op=op, left=left, right=right):
                return combine(op, left, right)
            case And(parts=parts) | Or(parts=parts):
                left_open = tuple(part for part in parts if decide(part) is not isinstance(node, And))
                return left_open[0] if len(left_open) == 1 else replace(node, parts=left_open)
            case _:
                return node

    return rewrite(when, change)


def judged_at(when: Condition, hints: Mapping[str, int]) -> Mapping[str, int]:
    """The representative sizes of a case: the greatest that its condition allows, of which it says that."""
    found = dict(hints)
    for part in when.parts if isinstance(when, And) else (when,):
        if isinstance(part, Compare) and part.op in (CompareOp.LE, CompareOp.EQ) and isinstance(part.left, SizeVar):
            most = constant_value(part.right)
            found.update({part.left.name: most} if most is not None else {})
    return found


def in_case(wrong: TExprError, case: Case | None) -> TExprError:
    """What is wrong with a candidate of cases, with the case that it is of."""
    which = "otherwise" if case is None else f"when {in_words(case.when)}"
    return TExprError([replace(d, notes=(*d.notes, f"of the mapping's candidate {which}")) for d in wrong.diagnostics])
