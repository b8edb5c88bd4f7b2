"""What a kernel must do at given sizes: the bytes that must move, and its floating-point operations.

    sum N k { A[i, k] * B[k, j] } for M x N results   ->   2 * M * N * K operations

Each element that is read counts once, and each that is written once more; of what is read through data, no more
elements than there are reads. A function such as exp is one operation, fma two. Conditions count as if they held.
"""

import math
from functools import partial

from texpr.codegen.manifest import Manifest, evaluate
from texpr.grammar.ast import Accumulate, Atomic, Fn, Kernel, Node, Op, Read
from texpr.grammar.types import ELEMENT_TYPES
from texpr.grammar.walk import walk
from texpr.instances import Count, Values, weigh_instances


def bytes_moved(kernel: Kernel, manifest: Manifest, sizes: Values) -> Count:
    """Bytes of the touched parts of all arrays, twice where an array is read and written."""
    total, exact = 0, True
    for parameter in manifest.parameters:
        if parameter.scalar:
            continue
        shape = [evaluate(extent, sizes) for extent in parameter.shape]
        box = [(evaluate(low, sizes), evaluate(high, sizes)) for low, high in parameter.box]
        elements = math.prod(max(0, high - low) for low, high in box or [(0, n) for n in shape])
        if parameter.mode == "read":
            reads = weigh_instances(kernel.body, sizes, partial(_reads, parameter.name))
            elements, exact = min(elements, reads.total), exact and reads.exact
        times = 1 if parameter.mode in ("read", "write") else 2
        total += times * elements * ELEMENT_TYPES[parameter.dtype].size_bytes
    return Count(total, exact)


def float_operations(kernel: Kernel, sizes: Values) -> Count:
    """The floating-point operations of one call."""
    return weigh_instances(kernel.body, sizes, _operations)


def widest_float(kernel: Kernel) -> str:
    """The type in which the operations are computed: f64 where some are, otherwise f32."""
    return "f64" if any(isinstance(node, Op) and node.dtype.name == "f64" for node in walk(kernel)) else "f32"


def _operations(node: Node) -> int:
    adds = isinstance(node, Accumulate | Atomic) and node.value.dtype.is_float
    return int(adds) + sum(_operation(each) for each in walk(node))


def _operation(node: Node) -> int:
    if not isinstance(node, Op) or not node.args[0].dtype.is_float:
        return 0
    return 2 if node.fn is Fn.FMA else 1


def _reads(buffer: str, node: Node) -> int:
    return sum(isinstance(each, Read) and each.buffer == buffer for each in walk(node))
