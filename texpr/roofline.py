"""What a kernel must do at given sizes: the bytes that must move, and its floating-point operations.

    sum N k { A[i, k] * B[k, j] } for M x N results   ->   2 * M * N * K operations

Each element that is read counts once, and each that is written once more; of what is read through data, no more
elements than there are reads. A function such as exp is one operation, fma two. Conditions count as if they held. A
loop in a triangle counts what it runs, where its extents are affine.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

from texpr.codegen.manifest import Manifest, evaluate
from texpr.grammar.ast import Accumulate, Atomic, Fn, If, Kernel, Node, Op, Par, Read, Seq, Stmt
from texpr.grammar.core import children, statements
from texpr.grammar.index.expr import names
from texpr.grammar.index.value import index_value
from texpr.grammar.types import ELEMENT_TYPES
from texpr.grammar.walk import walk

Values = Mapping[str, int]
Weigh = Callable[[Node], int]


def bytes_moved(kernel: Kernel, manifest: Manifest, sizes: Values) -> int:
    """Bytes of the touched parts of all arrays, twice where an array is read and written."""
    total = 0
    for parameter in manifest.parameters:
        if parameter.scalar:
            continue
        shape = [evaluate(extent, sizes) for extent in parameter.shape]
        box = [(evaluate(low, sizes), evaluate(high, sizes)) for low, high in parameter.box]
        elements = math.prod(max(0, high - low) for low, high in box or [(0, n) for n in shape])
        if parameter.mode == "read":
            elements = min(elements, _count(kernel.body, dict(sizes), partial(_reads, parameter.name)))
        times = 1 if parameter.mode in ("read", "write") else 2
        total += times * elements * ELEMENT_TYPES[parameter.dtype].size_bytes
    return total


def float_operations(kernel: Kernel, sizes: Values) -> int:
    """The floating-point operations of one call."""
    return _count(kernel.body, dict(sizes), _operations)


def widest_float(kernel: Kernel) -> str:
    """The type in which the operations are computed: f64 where some are, otherwise f32."""
    return "f64" if any(isinstance(node, Op) and node.dtype.name == "f64" for node in walk(kernel)) else "f32"


def _count(body: tuple[Stmt, ...], values: dict[str, int], weigh: Weigh) -> int:
    """The weights of all instances of the statements of a body."""
    total = 0
    for stmt in body:
        match stmt:
            case Par(index=index, extent=extent) | Seq(index=index, extent=extent):
                total += _loop(index, max(0, int(index_value(extent, values))), stmt.body, values, weigh)
            case If():
                total += weigh(stmt.condition) + _count(children(stmt), values, weigh)
            case _:
                total += weigh(stmt)
    return total


def _loop(index: str, extent: int, body: tuple[Stmt, ...], values: dict[str, int], weigh: Weigh) -> int:
    """All iterations: alike where no extent inside asks for the index, and otherwise the mean of first and last."""
    inside = (s.extent for s in statements(body) if isinstance(s, Par | Seq))
    if extent == 0 or not any(index in names(each) for each in inside):
        return extent * _count(body, {**values, index: 0}, weigh)
    first, last = (_count(body, {**values, index: at}, weigh) for at in (0, extent - 1))
    return extent * (first + last) // 2


def _operations(node: Node) -> int:
    adds = isinstance(node, Accumulate | Atomic) and node.value.dtype.is_float
    return int(adds) + sum(_operation(each) for each in walk(node))


def _operation(node: Node) -> int:
    if not isinstance(node, Op) or not node.args[0].dtype.is_float:
        return 0
    return 2 if node.fn is Fn.FMA else 1


def _reads(buffer: str, node: Node) -> int:
    return sum(isinstance(each, Read) and each.buffer == buffer for each in walk(node))
