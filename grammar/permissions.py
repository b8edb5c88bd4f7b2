"""What the author's attributes ask of a statement, a loop or a buffer, for those that several stages obey.

Nobody else reads the names of these attributes, so what one means is said once.
"""

from collections.abc import Iterable

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Atomic,
    Attr,
    Bind,
    Buffer,
    Cast,
    Const,
    Expr,
    Fn,
    Gather,
    Kernel,
    Leaf,
    Op,
    Par,
    Read,
    Select,
    Seq,
    Statement,
    Stmt,
)
from texpr.grammar.types import F8E4M3, F8E5M2, F32, DType, compute_type
from texpr.grammar.walk import walk


def _named(attrs: Iterable[Attr], name: str) -> Attr | None:
    return next((attr for attr in attrs if attr.name == name), None)


def is_order(attr: Attr) -> bool:
    """`#ordered`."""
    return attr.name == "ordered"


def keeps_order(statement: Statement) -> bool:
    """`#ordered`: accumulations, of this loop or into this target, stay in the order of the text."""
    return any(map(is_order, statement.attrs))


def may_contract(part: Kernel | Statement) -> bool:
    """Whether a product and the addition that takes it may be rounded once: not under `#strict`."""
    return _named(part.attrs, "strict") is None


def contracts(leaf: Leaf) -> bool:
    """Whether there is a product of floats that could be one instruction with the addition that takes it."""
    ops = [node for node in walk(leaf) if isinstance(node, Op) and node.dtype.is_float]
    products = any(op.fn is Fn.MUL for op in ops)
    adds = isinstance(leaf, Accumulate | Atomic) and leaf.op is AccOp.ADD
    return products and (adds or any(op.fn in (Fn.ADD, Fn.SUB) for op in ops))


HASTENED = frozenset({Fn.EXP, Fn.EXP2, Fn.ERF, Fn.NORMCDF, Fn.DIV, Fn.SIGMOID, Fn.XLOGY})
"""Functions of f32 that a target may have a faster form of."""
NARROW = Attr(name="narrow")  # nobody writes it: the statement's value leaves the kernel only rounded to f16 or bf16
BELOW = Attr(name="below")  # nor this: exp of what is 0 at most is added to a sum that 1 is added to, too


def may_approximate(attrs: Iterable[Attr]) -> bool:
    """`#fast`: functions may be approximate."""
    return _named(attrs, "fast") is not None


def may_hasten(attrs: Iterable[Attr]) -> bool:
    """Whether the functions of `HASTENED` may be approximate: under `#fast`, and in what is narrow."""
    return may_approximate(attrs) or _named(attrs, NARROW.name) is not None


def adds_below(attrs: Iterable[Attr]) -> bool:
    """Whether an exponential need not keep what would be denormal, and its argument is 0 at most."""
    return _named(attrs, BELOW.name) is not None


def hastens(leaf: Leaf) -> bool:
    """Whether a function stands in a statement that `#fast` may make faster."""
    ops = (node for node in walk(leaf) if isinstance(node, Op))
    return any(op.fn in HASTENED and op.dtype.is_float and compute_type(op.dtype) == F32 for op in ops)


def may_use_tf32(attrs: Iterable[Attr]) -> bool:
    """`#tf32`: factors of f32 products may be rounded to tf32."""
    return _named(attrs, "tf32") is not None


def multiplied(leaf: Leaf) -> set[DType]:
    """The types in which a statement multiplies numbers."""
    return {node.dtype for node in walk(leaf) if isinstance(node, Op) and node.fn in (Fn.MUL, Fn.FMA)}


LARGEST_PORTION = 128
"""How many products of f8 elements a portion of a sum may have: tensor cores make it with fewer bits than f32 has."""


def portion_factors(leaf: Statement) -> tuple[tuple[Expr, DType], ...]:
    """Both factors of what a statement adds, with the types of their elements, where that is a product of two f8
    elements in f32, so that portions of its sums may be less exact; else nothing. An element is itself or, under a
    condition on indices, 0."""
    if not isinstance(leaf, Accumulate) or leaf.op is not AccOp.ADD:
        return ()
    value: Expr = leaf.value
    while isinstance(value, Cast) and value.dtype.is_float:
        value = value.operand
    if not isinstance(value, Op) or value.fn is not Fn.MUL or value.dtype != F32:
        return ()
    found = tuple((arg, dtype) for arg in value.args if (dtype := _element(arg)) in (F8E4M3, F8E5M2))
    return found if len(found) == len(value.args) else ()


def may_be_in_portions(leaf: Statement) -> bool:
    """Whether portions of the sums that a statement adds to may be less exact than f32."""
    return bool(portion_factors(leaf))


def _element(value: Expr) -> DType | None:
    """The type of the element that a factor is; None where it is something else."""
    while True:
        match value:
            case Cast(operand=operand, dtype=dtype) if dtype.is_float and dtype.bits > operand.dtype.bits:
                value = operand
            case Select(condition=condition, then=then, other=Const(value=0)) if not isinstance(condition, Expr):
                value = then
            case Select(condition=condition, then=Const(value=0), other=other) if not isinstance(condition, Expr):
                value = other
            case Read(dtype=dtype):
                return dtype
            case _:
                return None


def unroll_of(loop: Par | Seq) -> Attr | None:
    """The `#unroll` of a loop."""
    return _named(loop.attrs, "unroll")


def vector_of(loop: Par | Seq) -> Attr | None:
    """The `#vector(n)` of a loop: a thread takes n neighbouring iterations, with wide accesses."""
    return _named(loop.attrs, "vector")


def tile_of(loop: Par | Seq) -> Attr | None:
    """The `#tile` of a loop: how many iterations of each index of its band a block takes."""
    return _named(loop.attrs, "tile")


def stages_of(loop: Par | Seq) -> Attr | None:
    """The `#stages(n)` of a loop: what it reads is copied so many iterations ahead, the one at hand counted."""
    return _named(loop.attrs, "stages")


def blocks_per_sm_of(kernel: Kernel) -> Attr | None:
    """The `#blocks_per_sm(n)` of a kernel: so many of its blocks are on a multiprocessor together."""
    return _named(kernel.attrs, "blocks_per_sm")


def cluster_shape_of(kernel: Kernel) -> Attr | None:
    """The `#cluster_shape(x, y, z)` of a kernel: blocks run in clusters of that shape."""
    return _named(kernel.attrs, "cluster_shape")


def persistent_of(kernel: Kernel) -> Attr | None:
    """The `#persistent` of a kernel."""
    return _named(kernel.attrs, "persistent")


def cooperative_of(kernel: Kernel) -> Attr | None:
    """The `#cooperative` of a kernel: launches that follow one another are phases of one."""
    return _named(kernel.attrs, "cooperative")


def raster_of(kernel: Kernel) -> Attr | None:
    """The `#raster(n)` of a kernel: its blocks run in groups of n rows."""
    return _named(kernel.attrs, "raster")


def unique_of(attrs: Iterable[Attr]) -> tuple[Attr, ...]:
    """The `#unique` among attributes: no two iterations meet in a gathered element."""
    return tuple(attr for attr in attrs if attr.name == "unique")


def promises_unique(statement: Stmt) -> bool:
    """Whether `#unique` stands on a gathered write: of an affine one the proofs know, and need no promise."""
    if not isinstance(statement, Bind | Accumulate | Atomic) or not unique_of(statement.attrs):
        return False
    return any(isinstance(s, Gather) for s in statement.subscripts)


def alignment_of(attrs: Iterable[Attr]) -> Attr | None:
    """The `#align(n)` among attributes: where the first element lies is a multiple of n bytes."""
    return _named(attrs, "align")


def swizzle_of(buffer: Buffer) -> Attr | None:
    """The `#swizzle` of a buffer: bits of its byte addresses that are XORed into others."""
    return _named(buffer.attrs, "swizzle")


def padding_of(buffer: Buffer) -> Attr | None:
    """The `#pad` of a buffer: elements after each row."""
    return _named(buffer.attrs, "pad")
