"""Products of two panels, which one call of the library makes: it holds their sums in registers.

each k < K, i < 6, j < 64: C_sum[p, i, q, j] += A_panel[p, k, i] * B_panel[q, k, j]

multiply(at(C_sum, 1536 * p + 64 * q), at(A_panel, 1536 * p), at(B_panel, 16384 * q), K, 6, 64, 256, 1, 6, 64, 1)
"""

from texpr.codegen.cpu.context import Context, CpuTensor
from texpr.codegen.cpu.names import place
from texpr.grammar.ast import AccOp, Accumulate, Fn, Gather, Op, Read, Subscript
from texpr.grammar.index.expr import constant_value
from texpr.grammar.index.linear import Linear, constant, linear
from texpr.grammar.index.text import SUM
from texpr.grammar.permissions import may_contract
from texpr.grammar.records import dataclass
from texpr.grammar.types import F32, F64, I32
from texpr.polyhedral.mapped.operators import Elementwise

MULTIPLIED = (F32, F64, I32)


@dataclass(frozen=True, slots=True)
class _Panel:
    """The elements of a tensor over the indices of the products: where the first one is, and how far apart others."""

    tensor: CpuTensor
    first: Linear
    apart: tuple[int, int, int]


def emit_panel_product(node: Elementwise, context: Context) -> bool:
    """The call that makes the products, if these are such: to each element of a panel of sums those of a row of one
    panel and a column of another, of tensors of one type that are no others', with neighbours along the last index."""
    if len(node.over) != 3 or len(node.leaves) != 1:
        return False
    (leaf,), (rows, columns) = node.leaves, (constant_value(extent) for _, extent in node.over[1:])
    if rows is None or columns is None or not isinstance(leaf, Accumulate) or leaf.op is not AccOp.ADD:
        return False
    value = leaf.value
    if not isinstance(value, Op) or value.fn is not Fn.MUL or value.dtype not in MULTIPLIED:
        return False
    reads = [read for read in value.args if isinstance(read, Read)]
    if len({leaf.buffer, *(read.buffer for read in reads)}) < 3:
        return False
    panels = [_panel(name, subscripts, node, context) for name, subscripts in _elements(leaf, reads)]
    sums, *factors = [panel for panel in panels if panel is not None and panel.tensor.dtype == value.dtype]
    if len(factors) < 2 or sums.apart[0] or sums.apart[2] != 1:
        return False
    down = next((f for f in factors if not f.apart[2]), None)
    beside = next((f for f in factors if f.apart[1:] == (0, 1)), None)
    if down is None or beside is None:
        return False
    names, writer = context.names, context.writer
    at = [f"at({p.tensor.identifier}, {names.text(p.first.expression(), SUM)})" for p in (sums, down, beside)]
    numbers = (rows, columns, sums.apart[1], down.apart[1], down.apart[0], beside.apart[0], int(may_contract(leaf)))
    writer.line(f"# {place(node.span)}")
    count = names.text(node.over[0][1])
    writer.line(f"multiply({', '.join([*at, count, *map(str, numbers)])})")
    return True


def _elements(leaf: Accumulate, reads: list[Read]) -> list[tuple[str, tuple[Subscript, ...]]]:
    return [(leaf.buffer, leaf.subscripts), *((read.buffer, read.subscripts) for read in reads)]


def _panel(name: str, subscripts: tuple[Subscript, ...], node: Elementwise, context: Context) -> _Panel | None:
    """None where the elements are not evenly apart, or data places them."""
    tensor = context.tensor(name)
    if tensor.scalar or tensor.device:
        return None
    offset = constant(0)
    for subscript, step in zip(subscripts, tensor.strides, strict=True):
        if isinstance(subscript, Gather):
            return None
        offset += linear(subscript) * linear(step)
    apart = [offset.coefficient(index) for index, _ in node.over]
    known = [step for step in apart if step is not None]
    if len(known) < 3:
        return None
    for index, _ in node.over:
        offset = offset.without(index)
    return _Panel(tensor, offset, (known[0], known[1], known[2]))
