"""Leaf statements in C++.

m = 0.0f;                                                  a bind
tx::f32 m = 0.0f;                                          of a scalar that begins with it
s += x;                                                    accumulations
m = tx::max(m, X(i, k));
C(i, j) = tx::fma(A(i, k), B(k, j), C(i, j));
tx::atomic<tx::Add>(H(b), 1);                              indivisible
"""

from texpr.codegen.cuda.access import Access, Element
from texpr.codegen.cuda.expr import Value, apply, cast, emit_value
from texpr.codegen.cuda.literals import value_type
from texpr.grammar.ast import AccOp, Fn
from texpr.grammar.permissions import adds_below, may_contract, may_hasten, promises_unique
from texpr.grammar.types import F32, F64
from texpr.polyhedral.mapped.operators import Generic

_ATOMIC = {AccOp.ADD: "tx::Add", AccOp.MUL: "tx::Mul", AccOp.MAX: "tx::Max", AccOp.MIN: "tx::Min"}
_COMBINES = {AccOp.ADD: Fn.ADD, AccOp.MUL: Fn.MUL, AccOp.MAX: Fn.MAX, AccOp.MIN: Fn.MIN}
_SHORT = {AccOp.ADD: "+=", AccOp.MUL: "*="}


def statement(node: Generic, access: Access, *, begins: bool) -> str:
    """The text of a statement. `begins`: with this bind a scalar begins to live."""
    strict = not may_contract(node.leaf)
    attrs, store = node.leaf.attrs, node.store
    around = access.around(strict=strict, fast=may_hasten(attrs), below=adds_below(attrs))
    if store is None:
        return f"tx::anchor({access.out.use(emit_value(node.leaf.value, around))});"
    target = access.element(store.buffer, store.subscripts, writes=True)
    access.out.use(target.value)
    value = emit_value(node.leaf.value, around)
    access.out.use(value)
    variable = access.tensors[store.buffer].variable
    if store.op is None:
        if promises_unique(node.leaf) and variable is None:
            return f"tx::store_unique({target.value.text}, {cast(value, target.value.dtype).text});"
        return bind(target, value, declared(store.buffer, access) if begins else "")
    if store.atomic and variable is None:
        return f"tx::atomic<{_ATOMIC[store.op]}>({target.value.text}, {value.text});"
    return _update(target, store.op, value, strict=strict)


def declared(name: str, access: Access) -> str:
    """`const tx::f32 `: what stands before a scalar where it begins; compilers warn of one that nothing reads."""
    tensor = access.tensors[name]
    assert tensor.variable is not None
    idle = "" if tensor.variable.read else "[[maybe_unused]] "
    return f"{idle}{'const ' if tensor.variable.constant else ''}{value_type(tensor.dtype)} "


def bind(target: Element, value: Value, kind: str = "") -> str:
    """The element takes the value."""
    text = cast(value, target.value.dtype).text
    if target.remote:
        return f"{target.value.text}.store({target.where}, {text});"
    return f"{kind}{target.value.text} = {text};"


def _update(target: Element, op: AccOp, value: Value, *, strict: bool) -> str:
    """The old value is widened to the type of the new one, combined there, and rounded once."""
    old, dtype = target.value, value.dtype
    contracted = op is AccOp.ADD and value.product is not None
    if op in _SHORT and old.dtype == dtype and dtype in (F32, F64) and not strict and not contracted:
        return f"{old.text} {_SHORT[op]} {value.text};"
    combined = apply(_COMBINES[op], (cast(old, dtype), value), dtype, strict=strict)
    return bind(target, combined)
