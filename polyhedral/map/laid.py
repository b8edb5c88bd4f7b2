"""Arrays whose rows are copied to where tensor maps have them: each begins at a multiple of 16 bytes.

    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }       A: bf16[M, 1027], B: bf16[1027, 1024]

    new A_rows: bf16[M, 1027] #strides(1032, 1)
    par M at, 1027 at_1 { A_rows[at, at_1] = A[at, at_1] }          the elements that the kernel touches
    par M i, N j { C[i, j] = sum K k { A_rows[i, k] * B[k, j] } }

Factors that tensor cores take along what is summed alone (f32 under `#tf32`, i8, u8) are turned where they lie
otherwise: B_rows[j, k]. Of other arrays that dimension lies innermost along which blocks read what they multiply, so
that neighbours are one access: of the filters of a convolution, which many blocks read.

    … sum C c, R r { X[n, c, h + r] * F[o, c, r] }          new F_rows: f32[O, C, R] #strides(1, R*O, O)

Input: a kept program, and parameters of it. Output: the same program with these arrays in workspaces, which are copied
in where the kernel reads what a caller gave, and out where it writes. It is proved too: its statements, loops and
accesses are the same, and what is added copies each element by itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from texpr.grammar.ast import (
    Accumulate,
    Atomic,
    Bind,
    Buffer,
    Gather,
    IndexExpr,
    IndexVar,
    Kernel,
    Leaf,
    New,
    Node,
    Par,
    Read,
    Role,
    Seq,
    Stmt,
)
from texpr.grammar.core import statements
from texpr.grammar.index.expr import ONE, ceildiv, const, constant_value, multiply, names, row_major
from texpr.grammar.permissions import may_use_tf32
from texpr.grammar.types import F32
from texpr.grammar.walk import rewrite
from texpr.polyhedral.map.choose_piped import is_large
from texpr.polyhedral.map.contracted_tiles import bringing
from texpr.polyhedral.map.contraction import Factor, contracted_nest, contraction
from texpr.polyhedral.map.copied import Copies
from texpr.polyhedral.map.kept import Kept, rebuilt
from texpr.polyhedral.map.merged import accesses as accesses_of
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.product_boxes import UNIT_BYTES, are_units
from texpr.polyhedral.map.product_forms import by_boxes, product_of
from texpr.polyhedral.map.ringed_fits import is_piecewise
from texpr.polyhedral.mapped.atoms import FACTORS, lies_along_k
from texpr.polyhedral.mapped.candidate import Candidate, Contracted
from texpr.polyhedral.walk import touched

LEAST_TURNED = 1 << 31  # products: they take some 100 us, and a launch before them two
USES = 8192  # products of each element that is copied


def lay(kept: Kept, buffers: Collection[str]) -> Kept:
    """The program with the rows of some parameters in workspaces. Raises E0307 where its model takes too many steps."""
    if not buffers:
        return kept
    copies = Copies(kept.proved)
    kernel = kept.proved.program.kernel
    own = [b for b in kernel.params if b.name in buffers]
    orders = {b.name: order for b in own if (order := multiplied_order(kernel, b)) is not None}
    spaces = {b.name: _workspace(kernel, b, copies.names.fresh(f"{b.name}_rows"), orders.get(b.name)) for b in own}
    starts, ends = copies.around(spaces, orders)
    news: list[Stmt] = [New(buffer=space.name, span=space.span) for space in spaces.values()]
    body = tuple(rewrite(stmt, partial(_moved, spaces, orders)) for stmt in kernel.body)
    laid = replace(kernel, buffers=(*kernel.buffers, *spaces.values()), body=(*news, *starts, *body, *ends))
    return replace(
        kept,
        proved=rebuilt(kept, laid),
        laid=frozenset(buffers),
        copies={**kept.copies, **copies.origins},
    )


def _workspace(kernel: Kernel, array: Buffer, name: str, order: tuple[int, ...] | None) -> Buffer:
    """With its dimensions in another order, or one of them innermost, or dense but for what is behind each row."""
    unit = UNIT_BYTES // array.dtype.size_bytes
    shape = array.shape if order is None else tuple(array.shape[d] for d in order)
    steps = list[IndexExpr]([ONE])
    dim = innermost(kernel, array) if order is None else None
    if dim is None:
        for extent in reversed(shape[1:]):
            step = multiply(steps[0], extent)
            steps.insert(0, multiply(const(unit), ceildiv(step, unit)) if len(steps) == 1 else step)
    else:
        others = [d for d in range(len(shape)) if d != dim]
        dense = row_major([shape[d] for d in (*others, dim)])
        steps = [dense[-1] if d == dim else dense[others.index(d)] for d in range(len(shape))]
    return Buffer(
        name=name,
        dtype=array.dtype,
        shape=shape,
        strides=tuple(steps),
        role=Role.LOCAL,
        source_name=array.source_name,
        span=array.span,
    )


def multiplied_order(kernel: Kernel, array: Buffer) -> tuple[int, ...] | None:
    """The order of the dimensions of a factor that tensor cores take along what is summed: last the one that the index
    of a `seq` tells alone wherever it is read. None of any other array."""
    leaves = [stmt for stmt in statements(kernel.body) if isinstance(stmt, Leaf)]
    uses = [(leaf, at) for leaf in leaves for name, at in touched(leaf) if name == array.name]
    if array.dtype not in FACTORS or not lies_along_k(array.dtype) or not uses:
        return None
    if array.dtype == F32 and not all(may_use_tf32((*leaf.attrs, *kernel.attrs)) for leaf, _ in uses):
        return None
    seqs = {stmt.index for stmt in statements(kernel.body) if isinstance(stmt, Seq)}
    found = {d for _, at in uses for d, s in enumerate(at) if isinstance(s, Gather) or names(s) & seqs}
    if len(found) != 1 or not all(isinstance(at[d], IndexVar) for _, at in uses for d in found):
        return None
    (last,) = found
    return (*(d for d in range(len(array.shape)) if d != last), last)


def innermost(kernel: Kernel, array: Buffer) -> int | None:
    """The last dimension of an array that each of its accesses tells by an index of a `par` alone, where something is
    summed over others; None of arrays of 16 bits, which tensor cores take as they are."""
    accesses = [subscripts for stmt in kernel.body for name, subscripts in accesses_of(stmt) if name == array.name]
    pars = {stmt.index for stmt in statements(kernel.body) if isinstance(stmt, Par)}
    along = [
        all(isinstance(subscripts[d], IndexVar) and names(subscripts[d]) <= pars for subscripts in accesses)
        for d in range(len(array.shape))
    ]
    if array.dtype.size_bytes == 2 or not accesses or all(along) or not any(along):
        return None
    return max(d for d, own in enumerate(along) if own)


def _moved(spaces: Mapping[str, Buffer], orders: Mapping[str, tuple[int, ...]], node: Node) -> Node:
    if isinstance(node, Read | Bind | Accumulate | Atomic) and node.buffer in spaces:
        order = orders.get(node.buffer, tuple(range(len(node.subscripts))))
        return replace(node, buffer=spaces[node.buffer].name, subscripts=tuple(node.subscripts[d] for d in order))
    return node


def with_rows(kernel: Kernel) -> frozenset[str]:
    """The parameters that have rows."""
    return frozenset(b.name for b in kernel.params if len(b.shape) > 1 and not b.flat)


def to_lay(problem: Problem) -> frozenset[str]:
    """The parameters of products of matrices, large enough for tensor cores, whose rows begin elsewhere."""
    found = [product_of(problem, region) for region in problem.regions() if region.band is not None]
    large = [product for product in found if product is not None and is_large(problem, product)]
    names = {name for product in large for name in product.turned}
    for product in large:
        if by_boxes(problem, product):
            names |= {name for name in product.arrays if not are_units(problem, name)}
        else:  # threads bring pieces of rows that begin at words, and store those of results anywhere
            names |= {factor.buffer for factor in product.factors if not is_piecewise(problem, factor)}
    return frozenset(names & with_rows(problem.kernel))


def to_turn(problem: Problem, candidate: Candidate) -> frozenset[str]:
    """The parameters of which blocks of tiles bring one element at a time, that lie another way round than threads
    read them, and are small beside the products that need them."""
    found: set[str] = set()
    for region in problem.regions():
        choice = candidate.launches[region.name]
        one = contraction(problem, contracted_nest(region), choice) if isinstance(choice, Contracted) else None
        if one is None or not isinstance(choice, Contracted) or problem.kernel.attrs:
            continue
        counts = [constant_value(side.extent) for side in (*one.blocked, one.summed)]
        for side in one.sides:
            name, _ = one.of(side.index).element
            array = problem.kernel.buffer(name)
            elements = [constant_value(n) for n in array.shape]
            if None in (*counts, *elements) or problem.proved.directions.get(name) != "in":
                continue
            products, each = prod(n or 0 for n in counts), prod(n or 0 for n in elements)
            alone = bringing(problem, one, choice, side.index).width == 1 and not side.joins
            dim = innermost(problem.kernel, array)
            large = products >= max(LEAST_TURNED, USES * each)
            wide = dim is not None and (elements[dim] or 0) * array.dtype.size_bytes % UNIT_BYTES == 0
            if alone and large and wide and dim is not None and _tells(one.of(side.index), dim, side.index):
                found.add(name)
    return frozenset(found & with_rows(problem.kernel))


def _tells(factor: Factor, dim: int, side: str) -> bool:
    """Whether a side alone tells where a factor is in a dimension, everywhere."""
    return factor.where is None and factor.element[1][dim] == IndexVar(name=side)
