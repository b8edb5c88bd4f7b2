"""Reading what declares a buffer: element types, shapes, `new`, and the attributes that say where elements lie."""

from texpr.grammar import syntax
from texpr.grammar.ast import Attr, Buffer, IndexConst, IndexExpr
from texpr.grammar.attributes import Construct, check_attributes, check_fn_attributes
from texpr.grammar.check.context import BufferDraft, Context, whole
from texpr.grammar.check.indices import index
from texpr.grammar.check.scope import TypeName
from texpr.grammar.index.expr import ONE, index_names, multiply
from texpr.grammar.permissions import alignment_of, swizzle_of
from texpr.grammar.refusals import RefusedError, refuse
from texpr.grammar.source import Span
from texpr.grammar.surface import name_place
from texpr.grammar.types import ELEMENT_TYPES, DType


def element_type(ctx: Context, type_: syntax.TypeExpr) -> DType:
    """The element type of a type expression; E0201 for an unknown name."""
    known = ELEMENT_TYPES.get(type_.element)
    if known is not None:
        return known
    found = ctx.scope.lookup(type_.element)
    if found is not None and isinstance(found.entity, TypeName):
        return found.entity.dtype
    raise refuse(
        "E0201", f"`{type_.element}` is not an element type", type_.span,
        help="the types are " + ", ".join(ELEMENT_TYPES),
    )  # fmt: skip


def shape(ctx: Context, type_: syntax.TypeExpr) -> tuple[IndexExpr, ...]:
    """The extents of a type expression."""
    return tuple(_extent(ctx, e) for e in type_.shape or ())


def _extent(ctx: Context, e: syntax.Expr) -> IndexExpr:
    """An extent of a `new`: sizes only, since the storage is one for all iterations; E0206 else."""
    extent = of_sizes(index(ctx, e, "the shape"), e.span)
    if isinstance(extent, IndexConst) and extent.value < 0:
        raise refuse("E0206", "an extent is not negative", e.span)
    return extent


def of_sizes(extent: IndexExpr, span: Span) -> IndexExpr:
    """The extent, which depends on no index; E0206 else."""
    if index_names(extent):
        raise refuse("E0206", "a shape is built from integers and sizes, not from indices", span)
    return extent


def new(ctx: Context, s: syntax.New) -> None:
    """`new`: a fresh local in the scope."""
    if s.type is None:
        assert s.flat_extent is not None, "the seed's form has an extent"
        extents: tuple[IndexExpr, ...] = (_extent(ctx, s.flat_extent),)
        dtype = None
    else:
        extents, dtype = shape(ctx, s.type), element_type(ctx, s.type)
    attrs = check_attributes(s.attrs, Construct.NEW, lambda e: index(ctx, e, "an argument"), rank=len(extents))
    draft = ctx.local(s.name, dtype, extents, s.span)
    draft.memory = s.level
    place_elements(draft, attrs)
    ctx.define(s.name, whole(draft), name_place(s, s.name))


def place_elements(draft: BufferDraft, attrs: tuple[Attr, ...]) -> None:
    """Strides, alignment and the rest of a buffer's attributes; E0205 for an alignment below an element's."""
    for attr in attrs:
        match attr.name:
            case "strides":
                draft.strides = tuple(arg for arg in attr.args if not isinstance(arg, str))
            case "layout":
                draft.strides = _column_major(draft.shape) if attr.args == ("col",) else None
            case _:
                draft.attrs += (attr,)
    aligned = alignment_of(attrs)
    if aligned is not None:
        (value,) = aligned.args
        if not isinstance(value, IndexConst):
            raise refuse("E0205", "`#align` takes an integer", aligned.span)
        least = draft.dtype.size_bytes if draft.dtype is not None else 1
        if value.value < least:
            raise refuse(
                "E0205", f"`#align({value.value})` is less than an element of {draft.dtype} needs", aligned.span,
                help=f"write #align({least}) or more",
            )  # fmt: skip
        draft.align = value.value


def settled(ctx: Context, draft: BufferDraft) -> Buffer:
    """The core buffer; E0205 for a `#swizzle` that would tear its elements apart."""
    buffer = draft.settled()
    attr, size = swizzle_of(buffer), buffer.dtype.size_bytes
    base = attr.args[1] if attr is not None and attr.args else None
    if attr is not None and isinstance(base, IndexConst) and 1 << base.value < size:
        message = f"`#swizzle` counts bits of the byte address, and an element of {buffer.dtype} has {size} bytes"
        help = f"write a base of {size.bit_length() - 1} or more"
        ctx.report(refuse("E0205", message, attr.span, help=help))
    return buffer


def _column_major(extents: tuple[IndexExpr, ...]) -> tuple[IndexExpr, ...]:
    strides: list[IndexExpr] = [ONE]
    for extent in extents:
        strides.append(multiply(strides[-1], extent))
    return tuple(strides[:-1])


def fn_attributes(ctx: Context, definition: syntax.FnDef) -> tuple[Attr, ...]:
    """The attributes of a `fn`; refused ones are reported."""
    try:
        return check_fn_attributes(definition, lambda e: index(ctx, e, "an argument"))
    except RefusedError as refused:
        ctx.report(refused)
        return ()
