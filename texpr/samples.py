"""Sample data for `texpr run`: seeded arrays that keep gathers in bounds, decide comparisons and leave sums exact.

A kernel that compares, converts or sums floats gets multiples of 2**-b in [-1, 1), without 0, in place of uniform
numbers: sums, differences and products of them need few bits, so they are exact in every order that a target may take,
and so are the decisions that hang on them. b is as large as the longest sum leaves bits for:

    sum of 10**6 terms A[k]: b = 4        sum of 10**6 products: b = 2        no sum: b = 10
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from texpr.codegen.manifest import Parameter
from texpr.grammar.ast import (
    COMPARISONS,
    AccOp,
    Accumulate,
    Atomic,
    Bind,
    Cast,
    Fn,
    Gather,
    IndexExpr,
    IndexVar,
    Kernel,
    Node,
    Op,
    Par,
    Read,
    Role,
    Seq,
    Stmt,
)
from texpr.grammar.core import children
from texpr.grammar.index.expr import names
from texpr.grammar.index.interval import index_range
from texpr.grammar.index.value import index_value
from texpr.grammar.interpret.bound import PORTION_DIGITS, STEPS
from texpr.grammar.permissions import LARGEST_PORTION, may_be_in_portions
from texpr.grammar.types import ELEMENT_TYPES
from texpr.grammar.walk import walk

MOST_BITS = 10  # of a sample: those of f16, so that narrow types hold them
LEAST_BITS = 2
SUM_BITS = 24  # that a sum in f32 has


def gather_limits(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """For each integer buffer that subscripts are read from, the least extent that such a subscript indexes.

    A subscript may have passed through locals: `let p = idx[i]; A[p]` limits idx.
    """
    limits: dict[str, int] = {}
    for node in walk(kernel):
        subscripts = getattr(node, "subscripts", None)
        name = getattr(node, "buffer", None)
        if not subscripts or not isinstance(name, str):
            continue
        shape = kernel.buffer(name).shape
        for subscript, extent in zip(subscripts, shape, strict=False):
            if isinstance(subscript, Gather):
                if any(isinstance(part, IndexVar) for part in walk(extent)):
                    continue  # a local's extent may depend on loop indices: no limit from it
                limit = int(index_value(extent, sizes))
                for read in walk(subscript):
                    if isinstance(read, Read):
                        limits[read.buffer] = min(limits.get(read.buffer, limit), limit)
    binds = [node for node in walk(kernel) if isinstance(node, Bind)]
    for bind in reversed(binds):  # a local is bound before it is read
        if bind.buffer not in limits or kernel.buffer(bind.buffer).role is not Role.LOCAL:
            continue
        for read in walk(bind.value):
            if isinstance(read, Read) and read.dtype.is_integer:
                limits[read.buffer] = min(limits.get(read.buffer, limits[bind.buffer]), limits[bind.buffer])
    return limits


def sample_bits(kernel: Kernel, sizes: Mapping[str, int]) -> int | None:
    """b where samples are multiples of 2**-b; None where they are uniform, for nothing sums or decides."""
    found = [MOST_BITS] if any(_decides(node) for node in walk(kernel)) else []
    for update, terms in _sums(kernel, sizes):
        product = any(isinstance(node, Op) and node.fn in (Fn.MUL, Fn.FMA) for node in walk(update.value))
        left = SUM_BITS - math.ceil(math.log2(terms))
        if may_be_in_portions(update):
            left = min(left, PORTION_DIGITS - math.ceil(math.log2(min(terms, LARGEST_PORTION))))
        found.append(max(LEAST_BITS, min(MOST_BITS, left // 2 if product else left)))
    return min(found, default=None)


def _decides(node: Node) -> bool:
    """Whether a small change of a float may change the value altogether."""
    match node:
        case Op(fn=fn, args=args):
            return (fn in COMPARISONS and args[0].dtype.is_float) or fn in STEPS
        case Cast(operand=operand, dtype=dtype):
            return operand.dtype.is_float and not dtype.is_float
        case _:
            return False


def _sums(kernel: Kernel, sizes: Mapping[str, int]) -> Iterator[tuple[Accumulate | Atomic, int]]:
    """For each accumulation of floats by `+=`: itself, and at most how many of them one element gets in a loop."""
    pending: list[tuple[Stmt, dict[str, tuple[IndexExpr, IndexExpr]]]] = [(stmt, {}) for stmt in kernel.body]
    while pending:
        stmt, ranges = pending.pop()
        match stmt:
            case Par(index=index, extent=extent) | Seq(index=index, extent=extent):
                found = index_range(extent, ranges)
                inside = ranges if found is None else {**ranges, index: found}
                pending += ((below, inside) for below in stmt.body)
            case Accumulate(op=AccOp.ADD) | Atomic(op=AccOp.ADD) if stmt.value.dtype.is_float:
                own = frozenset[str]().union(*(names(s) for s in stmt.subscripts if not isinstance(s, Gather)))
                lasts = [last for name, (_, last) in ranges.items() if name not in own]
                yield stmt, math.prod(max(1, greatest_at(last, sizes) + 1) for last in lasts)
            case _:
                pending += ((below, ranges) for below in children(stmt))


def greatest_at(expr: IndexExpr, sizes: Mapping[str, int]) -> int:
    """The value of an extent's bound at these sizes, an index without a known range counting as 0."""
    return int(index_value(expr, dict.fromkeys(names(expr), 0) | dict(sizes)))


def random_array(
    parameter: Parameter, shape: tuple[int, ...], seed: int, *, limit: int | None = None, bits: int | None = None
) -> Any:
    """A seeded random array: floats in [-1, 1), multiples of 2**-bits without 0 where `bits` is given; integers small,
    gathered subscripts within `limit`."""
    import numpy

    from texpr.runtime.host_arrays import numpy_dtype

    generator = numpy.random.default_rng([seed, *parameter.name.encode()])
    dtype = ELEMENT_TYPES[parameter.dtype]
    shape = tuple(max(extent, 0) for extent in shape)
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        low = 0 if limit is not None or not dtype.integer_range[0] else -8
        high = max(min(limit if limit is not None else 8, dtype.integer_range[1]), low + 1)
        return generator.integers(low, high, shape).astype(numpy_dtype(dtype))
    if bits is None:
        return generator.uniform(-1.0, 1.0, shape).astype(numpy_dtype(dtype))
    whole = generator.integers(-(2**bits), 2**bits - 1, shape)
    whole += whole >= 0
    return numpy.ldexp(whole.astype(numpy.float64), -bits).astype(numpy_dtype(dtype))
