"""A factor of a sum as an array of its own, which a launch before makes once for all iterations that use it.

    Y[m, n] += X[m, k] * bf16(W[k, n])          W: i8[K, N]

    new W_factor: bf16[K, N]
    par K k_1, N n_1 { W_factor[k_1, n_1] = bf16(W[k_1, n_1]) }
    Y[m, n] += X[m, k] * W_factor[k, n]

It has the elements of the one array that it is made of, or those that the loops tell whose indices it has. Rows of it
begin at whole units of 16 bytes, as tensor maps have them. Its type holds every value of the factor.
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import (
    Accumulate,
    Bind,
    Buffer,
    Cast,
    Expr,
    Fn,
    Gather,
    IndexExpr,
    Kernel,
    New,
    Op,
    Par,
    Read,
    Role,
    Stmt,
    Subscript,
)
from texpr.grammar.core import buffers_written, statements
from texpr.grammar.exact import fits
from texpr.grammar.index.expr import ONE, ceildiv, const, constant_value, index_names, multiply, row_major
from texpr.grammar.records import dataclass
from texpr.grammar.types import ELEMENT_TYPES
from texpr.grammar.walk import rewrite, walk
from texpr.polyhedral.moves import Precompute
from texpr.polyhedral.names import Names, names_taken
from texpr.polyhedral.schedule.factors import indices_of, inner
from texpr.polyhedral.schedule.origins import Moved
from texpr.polyhedral.schedule.tree import Loop, Place, index, label_of, movable, places, unfit, with_block, with_values
from texpr.polyhedral.walk import subscript_names

UNIT_BYTES = 16  # at which rows begin
PARTS = {"first": 0, "second": 1}  # of a product


@dataclass(frozen=True, slots=True, kw_only=True)
class _Array:
    """The loops that make an array, their extents, what each element is, and where the factor's is."""

    names: tuple[str, ...]
    extents: tuple[IndexExpr, ...]
    value: Expr
    use: tuple[Subscript, ...]


def precompute(kernel: Kernel, move: Precompute) -> Moved:
    """The kernel with the factor in an array. Raises E0404 where it cannot be made before the band that uses it."""
    place = _statement(kernel, move.statement)
    home = place.around[0] if place.around else None
    if not isinstance(home, Par):
        raise unfit(f"{move.statement} is in no band of its own", place.stmt.span, "this statement")
    movable((home,))
    factor = factor_of(kernel, move)
    dtype = ELEMENT_TYPES.get(move.dtype)
    if dtype is None or not fits(factor, dtype):
        raise unfit(f"{move.dtype[:80]!r} is no type that holds every value of it", place.stmt.span, "this statement")
    _can_be_made_before(kernel, home, factor, place.stmt)
    names = Names([*names_taken(kernel), *(label for p in places(kernel) if (label := label_of(p.stmt)))])
    made = _array(kernel, place.loops, factor, names)
    source = next((node.buffer for node in walk(factor) if isinstance(node, Read)), move.statement)
    space = Buffer(
        name=names.fresh(f"{source}_factor"),
        dtype=dtype,
        shape=made.extents,
        strides=_strides(made.extents, dtype.size_bytes),
        role=Role.LOCAL,
        span=place.stmt.span,
    )
    value = made.value if made.value.dtype == dtype else Cast(operand=made.value, dtype=dtype, span=factor.span)
    subscripts = tuple(map(index, made.names))
    band: Stmt = Bind(
        id=names.fresh(f"{move.statement}_{move.part}"),
        buffer=space.name,
        subscripts=subscripts,
        value=value,
        span=place.stmt.span,
    )
    for name, extent in zip(reversed(made.names), reversed(made.extents), strict=True):
        band = Par(index=name, source_name=name, extent=extent, band=0, body=(band,), span=place.stmt.span)
    read: Expr = Read(buffer=space.name, subscripts=made.use, dtype=dtype, span=factor.span)
    read = read if factor.dtype == dtype else Cast(operand=read, dtype=factor.dtype, span=factor.span)
    changed = rewrite(place.stmt, lambda node: read if node is factor else node)
    block = (*place.block[: place.at], changed, *place.block[place.at + 1 :])
    body = with_block(kernel, place, block).body
    at = next(n for n, stmt in enumerate(kernel.body) if stmt is home)
    new = New(buffer=space.name, span=place.stmt.span)
    return Moved(kernel=replace(kernel, buffers=(*kernel.buffers, space), body=(*body[:at], new, band, *body[at:])))


def factor_of(kernel: Kernel, move: Precompute) -> Expr:
    """The value that the move means. E0404 where the statement has none such."""
    stmt = _statement(kernel, move.statement).stmt
    assert isinstance(stmt, Accumulate | Bind), "one with a value"
    value = stmt.value
    if move.part != "value":
        if move.part not in PARTS or not isinstance(value, Op) or value.fn is not Fn.MUL or len(value.args) != 2:
            raise unfit(f"{move.statement} has no {move.part[:80]!r} factor", stmt.span, "this statement")
        value = value.args[PARTS[move.part]]
    return inner(value)


def _statement(kernel: Kernel, name: str) -> Place:
    """A statement with a value. E0404 where there is none of that id."""
    for place in places(kernel):
        if isinstance(place.stmt, Accumulate | Bind) and place.stmt.id == name:
            return place
    raise unfit(f"there is no statement {name[:80]!r} with a value", kernel.span)


def _can_be_made_before(kernel: Kernel, home: Par, factor: Expr, stmt: Stmt) -> None:
    """E0404 where the factor reads what the band makes, or places that data tells."""
    inside = {s.buffer for s in statements((home,)) if isinstance(s, New)}
    changed = buffers_written(replace(kernel, body=(home,)))
    for node in walk(factor):
        if isinstance(node, Gather):
            raise unfit("the factor lies at a place that data tells", stmt.span, "this statement")
        if isinstance(node, Read) and node.buffer in inside | changed:
            raise unfit(f"the factor reads {node.buffer}, which the band itself makes", stmt.span, "this statement")
    if not indices_of(factor):
        raise unfit("the factor is one value", stmt.span, "this statement")


def _array(kernel: Kernel, around: Sequence[Loop], factor: Expr, names: Names) -> _Array:
    """The array that a factor becomes."""
    loops = {loop.index: loop for loop in around}
    used = indices_of(factor)
    arrays = {(node.buffer, node.subscripts) for node in walk(factor) if isinstance(node, Read) and node.subscripts}
    if len(arrays) == 1:
        ((source, subscripts),) = arrays
        shape = kernel.buffer(source).shape
        elsewhere = rewrite(factor, lambda node: replace(node, subscripts=()) if isinstance(node, Read) else node)
        if 1 < len(shape) <= len(used) and not indices_of(elsewhere):
            fresh = tuple(names.fresh("at") for _ in shape)
            value = rewrite(
                factor,
                lambda node: (
                    replace(node, subscripts=tuple(map(index, fresh)))
                    if isinstance(node, Read) and node.subscripts
                    else node
                ),
                into=lambda node: not isinstance(node, Read),
            )
            return _Array(names=fresh, extents=shape, value=value, use=subscripts)
    order = _order(factor, [name for name in loops if name in used])
    extents = tuple(loops[name].extent for name in order)
    for name, extent in zip(order, extents, strict=True):
        if index_names(extent):
            raise unfit(f"the iterations of `{name}` are not those of a box", loops[name].span, "this loop")
    fresh = tuple(names.fresh(loops[name].index) for name in order)
    renamed = dict(zip(order, map(index, fresh), strict=True))
    bind = Bind(id="", buffer="", subscripts=(), value=factor)
    (moved,) = with_values((bind,), renamed)
    assert isinstance(moved, Bind)
    return _Array(names=fresh, extents=extents, value=moved.value, use=tuple(map(index, order)))


def _order(factor: Expr, nest: Sequence[str]) -> list[str]:
    """The indices in the order in which an array has them, so that threads read and write alike."""
    reads = [node for node in walk(factor) if isinstance(node, Read)]
    longest = max(reads, key=lambda read: len(subscript_names(read.subscripts)), default=None)
    told = [name for s in (longest.subscripts if longest else ()) for name in nest if name in subscript_names((s,))]
    return [*dict.fromkeys((*(n for n in nest if n not in told), *told))]


def _strides(shape: Sequence[IndexExpr], size_bytes: int) -> tuple[IndexExpr, ...] | None:
    """Dense rows that begin at whole units; None where the rows are such."""
    unit = UNIT_BYTES // size_bytes
    last = constant_value(shape[-1])
    if len(shape) < 2 or (last is not None and last % unit == 0):
        return None
    wide = (*shape[:-1], multiply(const(unit), ceildiv(shape[-1], unit)))
    return (*row_major(wide)[:-1], ONE)
