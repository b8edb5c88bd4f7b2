"""The body of a launch as Numba Python: loops, guards, and one or two lines for each statement."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import assert_never

from texpr.codegen.cpu.carry import Carry, find_carries, is_left_in_parts, is_shared_update
from texpr.codegen.cpu.context import Check, Context, CpuTensor, Partial
from texpr.codegen.cpu.loops import emit_loop, emit_split
from texpr.codegen.cpu.names import place
from texpr.codegen.cpu.panels import emit_panel_product
from texpr.codegen.cpu.ranges import Branch, CpuNode, Range, Split, bound_ranges
from texpr.codegen.cpu.tally import Tally, find_tallies
from texpr.codegen.cpu.value import (
    Values,
    cast_text,
    constant_text,
    identity_text,
    is_contractible,
    unwrapped,
    update_text,
)
from texpr.grammar.ast import AccOp, Anchor, Atomic, Bind, Gather, IndexVar, Leaf, Read
from texpr.grammar.diagnostics import InternalError
from texpr.grammar.index.expr import ZERO
from texpr.grammar.index.text import RELATION, SUM
from texpr.grammar.permissions import keeps_order, may_contract
from texpr.grammar.types import DType
from texpr.polyhedral.map.inherited import UNIQUE_OVER
from texpr.polyhedral.mapped.expand import expand
from texpr.polyhedral.mapped.operators import Elementwise, Generic, Store
from texpr.polyhedral.mapped.tree import Define, Fresh


def emit_body(body: tuple[CpuNode, ...], context: Context) -> None:
    """Write the nodes of a body in order."""
    writer, names = context.writer, context.names
    for node in body:
        match node:
            case Define(index=index, digits=digits, offset=offset):
                parts = [
                    names.value(d.name) if d.weight == 1 else f"{d.weight} * {names.value(d.name)}" for d in digits
                ]
                parts += [] if offset == ZERO else [names.text(offset, SUM)]
                writer.line(f"{names.of('value', index)} = {' + '.join(parts) or '0'}")
            case Split():
                emit_split(node, names.value(node.source), context)
            case Fresh(buffer=buffer):
                fresh = context.tensor(buffer)
                if fresh.scalar:
                    writer.line(declaration(fresh))
            case Range():
                _emit_range(node, context)
            case Branch(condition=condition, body=inner, orelse=orelse):
                if isinstance(condition, Read):
                    text = unwrapped(Values(context, contract=False).value(condition))
                else:
                    text = names.text(condition)
                with writer.block(f"if {text}:"):
                    emit_body(inner, context)
                if orelse:
                    with writer.block("else:"):
                        emit_body(orelse, context)
            case Generic():
                _emit_generic(node, context)
            case Elementwise():
                if not emit_panel_product(node, context):
                    emit_body(bound_ranges((expand(node),)), context)
            case _:
                assert_never(node)


def declaration(tensor: CpuTensor) -> str:
    """The line that gives a scalar local its type; its value is never read before a bind."""
    return f"{tensor.identifier} = {constant_text(0, tensor.dtype)}"


def _emit_range(loop: Range, context: Context) -> None:
    dtypes = {name: t.dtype for name, t in context.tensors.items()}
    settled = frozenset(name for name, t in context.tensors.items() if t.scalar) | frozenset(context.carried)
    carries = find_carries(loop, dtypes, settled)
    opened = [(carry, *_open_carry(carry, context)) for carry in carries]
    tallies = find_tallies(loop, context.tensors, context.carried) if loop.cores and context.parallel else ()
    for tally in tallies:
        _open_tally(tally, context)
    emit_loop(loop, emit_body, context)
    for tally in tallies:
        _leave_tally(tally, context)
    for carry, variable, element in opened:
        del context.carried[carry.store.buffer]
        mark = context.marks.pop(carry.store.buffer, None)
        with _where_touched(carry, context):
            if context.parallel and is_left_in_parts(loop, carry):
                _leave_partial(carry, variable, element, mark, context)
            else:
                _close_carry(carry, variable, element, context)


@contextmanager
def _where_touched(carry: Carry, context: Context) -> Iterator[None]:
    """A block that runs where the loop touches the carried element; elsewhere the element need not exist."""
    names = context.names
    tests = [f"{names.text(low, SUM)} < {names.text(high, SUM)}" for low, high in carry.nonempty]
    tests += [names.text(condition, RELATION) for condition in carry.conditions]
    if not tests:
        yield
        return
    with context.writer.block(f"if {' and '.join(tests)}:"):
        yield


GOLDEN = 7046029254386353131  # an odd number that spreads products of indices over 64 bits


def _open_carry(carry: Carry, context: Context) -> tuple[str, str]:
    tensor = context.tensor(carry.store.buffer)
    variable = context.names.fresh("sum" if carry.op is AccOp.ADD else "acc")
    element = context.offset(tensor, carry.subscripts)
    shared = is_shared_update(carry.store, context.parallel)
    if shared or carry.nonempty or carry.conditions:
        context.writer.line(f"{variable} = {identity_text(carry.op, carry.dtype)}")
    if carry.marked:
        mark = context.marks[carry.store.buffer] = f"{variable}_touched"
        context.writer.line(f"{mark} = 0")
    if not shared:
        current = cast_text(_loaded(tensor, element), tensor.dtype, carry.dtype)
        with _where_touched(carry, context):
            context.writer.line(f"{variable} = {unwrapped(current)}")
    context.carried[carry.store.buffer] = variable
    return variable, element


def _close_carry(carry: Carry, variable: str, element: str, context: Context) -> None:
    tensor = context.tensor(carry.store.buffer)
    if is_shared_update(carry.store, context.parallel):
        _emit_atomic(tensor, element, carry.op, variable, carry.dtype, context)
    else:
        _store(tensor, element, cast_text(variable, carry.dtype, tensor.dtype), context)


def _leave_partial(carry: Carry, variable: str, element: str, mark: str | None, context: Context) -> None:
    tensor = context.tensor(carry.store.buffer)
    context.writer.line(f"{variable}_parts[task] = {variable}")
    context.writer.line(f"{variable}_done[task] = {mark or 1}")
    current = cast_text(_loaded(tensor, element), tensor.dtype, carry.dtype)
    result = update_text(carry.op, current, f"{variable}_parts[each]", carry.dtype, reorder=False, contract=False)
    stored = unwrapped(cast_text(result, carry.dtype, tensor.dtype))
    combine = f"{tensor.identifier}[{element}] = {stored}"
    context.partials.append(Partial(variable=variable, dtype=carry.dtype, combine=(combine,)))


def _open_tally(tally: Tally, context: Context) -> None:
    """The part's copies, of what changes no element."""
    tensor, writer = context.tensor(tally.tensor), context.writer
    own, count = context.names.fresh(f"{tensor.identifier}_tally"), tally.copies * tally.elements
    writer.line(f"{own} = stack_{tensor.dtype.name}({count})")
    with writer.block(f"for each in range({count}):"):
        writer.line(f"{own}[each] = {_nothing(tally.op, tensor.dtype)}")
    context.tallies[tally.tensor] = own, tally.copies, tally.elements


def _nothing(op: AccOp, dtype: DType) -> str:
    """The value that changes none, not 0 to -0 either."""
    return constant_text(-0.0, dtype) if op is AccOp.ADD and dtype.is_float else identity_text(op, dtype)


def _leave_tally(tally: Tally, context: Context) -> None:
    """The part's results, and how they come to the tensor."""
    tensor, writer = context.tensor(tally.tensor), context.writer
    (own, _, _), op, dtype = context.tallies.pop(tally.tensor), tally.op, tensor.dtype
    update = partial(update_text, op, dtype=dtype, reorder=False, contract=False)
    with writer.block(f"for each in range({tally.elements}):"):
        total = f"{own}[each]"
        for copy in range(1, tally.copies):
            total = update(total, f"{own}[{copy * tally.elements} + each]")
        writer.line(f"{own}_parts[{tally.elements} * task + each] = {unwrapped(total)}")
    writer.line(f"{own}_done[task] = 1")
    target = f"{tensor.identifier}[at]"
    lines = (
        f"for at in range({tally.elements}):",
        f"    {target} = {unwrapped(update(target, f'{own}_parts[{tally.elements} * each + at]'))}",
    )
    context.partials.append(Partial(variable=own, dtype=dtype, combine=lines, elements=tally.elements))


def _loaded(tensor: CpuTensor, element: str) -> str:
    return f"({tensor.identifier}[{element}] != 0)" if tensor.dtype.is_bool else f"{tensor.identifier}[{element}]"


def _store(tensor: CpuTensor, element: str, value: str, context: Context) -> None:
    if tensor.scalar:
        context.writer.line(f"{tensor.identifier} = {unwrapped(value)}")
    else:
        text = f"np.uint8({unwrapped(value)})" if tensor.dtype.is_bool else unwrapped(value)
        context.writer.line(f"{tensor.identifier}[{element}] = {text}")


def _emit_atomic(
    tensor: CpuTensor, element: str, op: AccOp, value: str, dtype: DType, context: Context, name: str = ""
) -> None:
    """An indivisible update: compare and exchange until no other thread came between."""
    writer = context.writer
    operand = name or context.names.fresh("add")
    writer.line(f"{operand} = {unwrapped(value)}")
    at = context.names.fresh("at")
    writer.line(f"{at} = np.int64({element})")
    with writer.block("while True:"):
        writer.line(f"old = peek({tensor.identifier}, {at})")
        current = "(old != 0)" if tensor.dtype.is_bool else "old"
        result = update_text(op, cast_text(current, tensor.dtype, dtype), operand, dtype, reorder=False, contract=False)
        stored = unwrapped(cast_text(result, dtype, tensor.dtype))
        writer.line(f"new = np.uint8({stored})" if tensor.dtype.is_bool else f"new = {stored}")
        with writer.block(f"if exchange({tensor.identifier}, {at}, old, new):"):
            writer.line("break")


def _emit_generic(operator: Generic, context: Context) -> None:
    leaf, store = operator.leaf, operator.store
    writer = context.writer
    writer.line(f"# {place(operator.span)}")
    values = Values(context, contract=may_contract(leaf))
    if store is None:
        writer.line(f"keep({unwrapped(values.value(leaf.value))})")
        return
    tensor = context.tensor(store.buffer)
    product = values.contract and store.op is AccOp.ADD and is_contractible(leaf.value)
    value = values.value(leaf.value, contracted=product)
    if store.buffer in context.carried:
        variable = context.carried[store.buffer]
        result = _updated(store, leaf, variable, value, leaf.value.dtype, product)
        writer.line(f"{variable} = {unwrapped(result)}")
        if store.buffer in context.marks:
            writer.line(f"{context.marks[store.buffer]} = 1")
        return
    element = ""
    if not tensor.scalar:
        if any(isinstance(s, Gather) for s in store.subscripts):
            held = context.names.fresh("t")
            writer.line(f"{held} = {unwrapped(value)}")
            value = held
        element = values.element(tensor, store.subscripts, operator.span)
        if store.buffer in context.tallies:
            _emit_tallied(tensor, element, value, leaf, store, context)
            return
        _emit_unique(leaf, tensor, element, context)
    if store.op is None:
        _store(tensor, element, value, context)
    elif is_shared_update(store, context.parallel) and not tensor.scalar:
        _emit_atomic(tensor, element, store.op, value, leaf.value.dtype, context)
    else:
        current = tensor.identifier if tensor.scalar else _loaded(tensor, element)
        dtype = leaf.value.dtype
        result = _updated(store, leaf, cast_text(current, tensor.dtype, dtype), value, dtype, product)
        _store(tensor, element, cast_text(result, dtype, tensor.dtype), context)


def _emit_tallied(tensor: CpuTensor, element: str, value: str, leaf: Leaf, store: Store, context: Context) -> None:
    """An update of one of the part's copies, another one than that of the iteration before."""
    own, copies, elements = context.tallies[store.buffer]
    place = f"({context.turn} & {copies - 1}) * {elements} + {element}" if copies > 1 else element
    current = f"{own}[{place}]"
    context.writer.line(f"{current} = {unwrapped(_updated(store, leaf, current, value, tensor.dtype, False))}")


def _emit_unique(leaf: Leaf, tensor: CpuTensor, element: str, context: Context) -> None:
    """The check of `#unique`: the first iteration to reach an element owns it, and every other one is an error."""
    indices = next((a.args for a in leaf.attrs if a.name == UNIQUE_OVER), None)
    if indices is None or not tensor.device:
        return
    names, writer = context.names, context.writer
    if tensor.name not in context.owners:
        context.owners[tensor.name] = names.fresh("owner")
    owner, at, mine, seen = context.owners[tensor.name], names.fresh("at"), names.fresh("mine"), names.fresh("seen")
    text = "np.int64(0)"
    for index in indices:
        if isinstance(index, IndexVar):
            text = f"({text} + {names.value(index.name)} + 1) * {GOLDEN}"
    writer.line(f"{at} = np.int64({element})")
    writer.line(f"{mine} = np.int64({text}) | 1")
    message = f"two iterations reach one element of {tensor.name}, against the promise #unique"
    context.checks.append(Check(message=message, span=leaf.span))
    with writer.block("while True:"):
        writer.line(f"{seen} = peek({owner}, {at})")
        with writer.block(f"if {seen} == {mine} or ({seen} == 0 and exchange({owner}, {at}, np.int64(0), {mine})):"):
            writer.line("break")
        with writer.block(f"if {seen} != 0:"):
            writer.line(f"return finding({len(context.checks)}, 0, 0)")


def _updated(store: Store, leaf: Leaf, current: str, value: str, dtype: DType, product: bool) -> str:
    if store.op is None or isinstance(leaf, Bind | Anchor):
        raise InternalError("an update without an operator")
    reorder = not keeps_order(leaf) or isinstance(leaf, Atomic)
    return update_text(store.op, current, value, dtype, reorder=reorder, contract=product)
