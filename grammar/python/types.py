"""Annotations and types of a decorated function → parameters and types of the surface tree.

An annotation is taken from its text where the names in it can be looked up, and from the evaluated annotation where
Python kept one (a name of an enclosing function is in no cell unless the body uses it).
"""

import ast
import io
import tokenize

from texpr.grammar import syntax
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.python.atoms import number
from texpr.grammar.python.context import Binding, Context, is_attribute
from texpr.grammar.python.embedded import MAX_TEXT, read_index
from texpr.grammar.python.expr import expression
from texpr.grammar.python.names import (
    DIRECTIONS,
    Constant,
    Foreign,
    TypeObject,
    Unknown,
    Word,
    is_identifier,
    meaning_of,
    type_object,
)
from texpr.grammar.python.source import changed
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.text.printer import print_expr
from texpr.grammar.types import ELEMENT_TYPES

MAX_ANNOTATION_TOKENS = 200
TYPE_HELP = 'write a type such as f32, f16["M", "K"] or inp(f16["M", "K"], "#strides(1, M)")'


@dataclass(frozen=True, slots=True)
class Annotation:
    """A type with what stands around it."""

    direction: str | None
    type: syntax.TypeExpr
    attrs: tuple[syntax.Attr, ...]


@dataclass(frozen=True, slots=True)
class _Parts:
    """The pieces of a type's text: `inp(element[dims…], attributes…)`."""

    direction: ast.expr | None
    element: ast.expr
    dims: tuple[ast.expr, ...] | None
    attributes: tuple[ast.expr, ...]


def _parameter_help(name: str) -> str:
    plain = f'write `{name}: f32` for a scalar, or `{name}: f32["N"]` for an array'
    return f'{plain}; what a fn writes is `{name}: out(f32["N"])`'


def _parts(node: ast.expr) -> _Parts:
    direction: ast.expr | None = None
    attributes: tuple[ast.expr, ...] = ()
    if isinstance(node, ast.Call) and node.args and not node.keywords:
        direction, attributes, node = node.func, tuple(node.args[1:]), node.args[0]
    dims: tuple[ast.expr, ...] | None = None
    if isinstance(node, ast.Subscript):
        inside = tuple(node.slice.elts) if isinstance(node.slice, ast.Tuple) else (node.slice,)
        dims = tuple(part for part in inside if not is_attribute(part))
        attributes = (*(part for part in inside if is_attribute(part)), *attributes)
        node = node.value
    return _Parts(direction, node, dims, attributes)


def _says(node: ast.expr, kept: str) -> bool:
    """Whether an annotation is the text that Python kept of it: a string's value, or (`from __future__ import
    annotations`) the expression."""
    if isinstance(node, ast.Constant) and node.value == kept:
        return True
    try:
        return ast.dump(ast.parse(kept, mode="eval").body) == ast.dump(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def read_parameters(ctx: Context) -> tuple[syntax.Param, ...]:
    """The parameters of the function, declared as buffers; their extents' names become its sizes."""
    arguments = ctx.found.definition.args
    given = list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    others = [(argument, default) for argument, default in given if not _is_size(ctx, argument)]
    refused = [
        *((argument, "a keyword-only parameter") for argument, _ in others),
        *((argument, "a starred parameter") for argument in (arguments.vararg, arguments.kwarg) if argument),
        *((default, "a default value") for default in (*arguments.defaults, *(d for _, d in others)) if default),
    ]
    for node, what in refused:
        help = "write plain positional parameters; after `*` stand sizes, `stride: size`"
        ctx.refuse("E0105", f"{what} has no meaning in TExpr", node, help)
    try:
        evaluated = dict(ctx.found.function.__annotations__)
    except Exception:  # Python 3.14 evaluates annotations here, and theirs may raise anything; their text remains
        evaluated = {}
    params: list[syntax.Param] = []
    for argument in (*arguments.posonlyargs, *arguments.args):
        span = _name_span(ctx, argument)
        if argument.annotation is None:
            ctx.refuse("E0105", f"the parameter `{argument.arg}` has no type", span, _parameter_help(argument.arg))
            ctx.declare(argument.arg, Binding("buffer", False, span))
            continue
        found = annotation(ctx, argument.annotation, evaluated.get(argument.arg))
        ctx.declare(argument.arg, Binding("buffer", integer_type(found.type), span))
        params.append(
            syntax.Param(
                direction=found.direction, name=argument.arg, type=found.type, attrs=found.attrs,
                span=ctx.span(argument),
            )
        )  # fmt: skip
    ctx.shapes = {p.name: tuple(map(print_expr, p.type.shape or ())) for p in params}
    ctx.type_parameters = {p.type.element for p in params if p.type.element not in ELEMENT_TYPES}
    for param in params:
        for extent in param.type.shape or ():
            _add_sizes(ctx, extent)
    for param in params:
        if param.name in ctx.sizes:
            ctx.refuse("E0202", f"`{param.name}` is a size and a parameter", param.span, "use two names")
    return tuple(params)


def _is_size(ctx: Context, argument: ast.arg) -> bool:
    """Whether the annotation is the word `size`, in quotes or not."""
    node = argument.annotation
    if isinstance(node, ast.Constant) and node.value == "size":
        return True
    return node is not None and ctx.is_word(node, "size")


def read_sizes(ctx: Context) -> tuple[syntax.SizeDef, ...]:
    """The sizes of a kernel after `*`, of which a call gives the value: `stride: size`, `stride: size = 2`."""
    arguments = ctx.found.definition.args
    found: list[syntax.SizeDef] = []
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if not _is_size(ctx, argument):
            continue
        if not is_identifier(argument.arg) or ctx.lookup(argument.arg) is not None:
            ctx.declare(argument.arg, Binding("let", True, _name_span(ctx, argument)))
        value = None if default is None else expression(ctx, default)
        ctx.sizes.add(argument.arg)
        found.append(syntax.SizeDef(name=argument.arg, value=value, span=ctx.span(argument)))
    return tuple(found)


def _name_span(ctx: Context, argument: ast.arg) -> Span:
    span = ctx.found.span(argument)
    return Span(span.source, span.start, span.start + len(argument.arg))


def _add_sizes(ctx: Context, tree: syntax.Expr | syntax.Slice) -> None:
    match tree:
        case syntax.Name(name=name):
            ctx.sizes.add(name)
        case syntax.Binary():
            _add_sizes(ctx, tree.left)
            _add_sizes(ctx, tree.right)
        case syntax.Unary():
            _add_sizes(ctx, tree.operand)
        case syntax.Call():
            for argument in tree.args:
                _add_sizes(ctx, argument)


def annotation(ctx: Context, node: ast.expr, evaluated: object = None) -> Annotation:
    """A parameter's annotation; `evaluated` is the object that Python kept for it, if any.

    Only the annotation is not part of the function's code: where Python kept its text, that must be this one."""
    if isinstance(evaluated, str) and not _says(node, evaluated):
        raise changed(ctx.found.definition.name, ctx.found.source.name)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _quoted(ctx, node.value, node)
    kept = type_object(evaluated)
    return _evaluated(ctx, kept, node) if kept is not None else type_of(ctx, node)


def _quoted(ctx: Context, text: str, node: ast.expr) -> Annotation:
    """An annotation in quotes: Python text, read without its own spans."""
    outer, ctx.literal_span = ctx.literal_span, ctx.span(node)
    try:
        tree = _parsed(ctx, text, node)
        return type_of(ctx, tree) if tree is not None else _no_type(ctx, node)
    finally:
        ctx.literal_span = outer


def _parsed(ctx: Context, text: str, node: ast.expr) -> ast.expr | None:
    try:
        if len(text) > MAX_TEXT:
            raise ValueError
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError, MemoryError):
        ctx.refuse("E0105", "the annotation is not a type", node, TYPE_HELP)
        return None
    if any(token.type == tokenize.COMMENT for token in tokens):
        ctx.refuse("E0105", "an attribute in an annotation is a string of its own", node, TYPE_HELP)
        return None
    if len([token for token in tokens if token.type in (tokenize.OP, tokenize.NAME)]) > MAX_ANNOTATION_TOKENS:
        ctx.refuse("E0103", f"the annotation has more than {MAX_ANNOTATION_TOKENS} parts", node)
        return None
    return tree


def _no_type(ctx: Context, node: ast.expr) -> Annotation:
    """A placeholder after an error."""
    return Annotation(None, syntax.TypeExpr(element="f32", span=ctx.span(node)), ())


def _evaluated(ctx: Context, kept: TypeObject, node: ast.expr) -> Annotation:
    """A type from the object that Python made of it, with the spans of its text where both agree."""
    parts = _parts(node)
    dims = kept.shape or ()
    nodes = parts.dims if parts.dims is not None and len(parts.dims) == len(dims) else (node,) * len(dims)
    shape = tuple(_dimension(ctx, value, place) for value, place in zip(dims, nodes, strict=True))
    texts = {a.value: a for a in parts.attributes if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    attrs = [a for text in kept.attributes for a in ctx.attribute_text(text, ctx.span(texts.get(text, node)))]
    of_type = syntax.TypeExpr(
        element=kept.element, shape=shape if kept.shape is not None else None, span=ctx.span(node)
    )
    return Annotation(kept.direction, of_type, tuple(attrs))


def _dimension(ctx: Context, value: object, node: ast.expr) -> syntax.Expr:
    if isinstance(value, str):
        return index_text(ctx, value, ctx.span(node))
    meaning = meaning_of(value, "")
    if isinstance(meaning, Constant) and not isinstance(meaning.value, float):
        return number(ctx, meaning.value, node)
    ctx.refuse("E0105", "an extent is a string or an integer", node, 'write f32["N - 2"]')
    return ctx.placeholder(node)


def index_text(ctx: Context, text: str, span: Span) -> syntax.Expr:
    if ctx.lacks_hash(text, span, called=True):
        return syntax.IntLit(value=0, text="0", span=span)
    try:
        return read_index(text, span)
    except TExprError as failure:
        ctx.diagnostics += failure.diagnostics
        return syntax.IntLit(value=0, text="0", span=span)


def type_of(ctx: Context, node: ast.expr) -> Annotation:
    """A type from its text."""
    parts = _parts(node)
    direction = None
    if parts.direction is not None:
        found = ctx.meaning(parts.direction)
        if found is None or not isinstance(found[1], Word) or found[1].name not in DIRECTIONS:
            ctx.refuse("E0105", "the annotation is not a type", node, TYPE_HELP)
            return _no_type(ctx, node)
        direction = DIRECTIONS[found[1].name]
    named = _element(ctx, parts.element)
    if named is None:
        return _no_type(ctx, node)
    if named.direction is not None and direction is not None:
        ctx.refuse("E0105", "a type has one direction", node, TYPE_HELP)
    if named.shape is not None and parts.dims is not None:
        ctx.refuse("E0105", "the type has its shape already", node, TYPE_HELP)
    attrs = [a for text in named.attributes for a in ctx.attribute_text(text, ctx.span(parts.element))]
    attrs += [a for attribute in parts.attributes for a in ctx.attributes(attribute)]
    shape: tuple[syntax.Expr, ...] | None = None
    if named.shape is not None:
        shape = tuple(_dimension(ctx, value, parts.element) for value in named.shape)
    elif parts.dims is not None:
        shape = tuple(extent_of(ctx, dim) for dim in parts.dims)
    of_type = syntax.TypeExpr(element=named.element, shape=shape, span=ctx.span(node))
    return Annotation(named.direction or direction, of_type, tuple(attrs))


def extent_of(ctx: Context, node: ast.expr) -> syntax.Expr:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return index_text(ctx, node.value, ctx.span(node))
    if isinstance(node, ast.Slice):
        ctx.refuse("E0105", "an extent is a number of elements, not a slice", node, TYPE_HELP)
        return ctx.placeholder(node)
    return expression(ctx, node)


def _element(ctx: Context, node: ast.expr) -> TypeObject | None:
    """What the name of a type stands for; a name that Python does not know is a type parameter."""
    found = ctx.meaning(node)
    match found:
        case (_, TypeObject() as named):
            return named
        case (name, Unknown()) if is_identifier(name) and ctx.lookup(name) is None and name not in ctx.sizes:
            return TypeObject(None, name, None, ())
        case (("float" | "int") as name, Foreign()):
            ctx.refuse("E0105", f"`{name}` is a Python type", node, f"write {name[0]}32 or {name[0]}64")
        case (name, _):
            ctx.refuse("E0105", f"`{name}` is not a type of TExpr", node, TYPE_HELP)
        case _:
            ctx.refuse("E0105", "the annotation is not a type", node, TYPE_HELP)
    return None


def is_type(ctx: Context, node: ast.expr) -> bool:
    """Whether the first argument of `new` or `reg` is a type, and not an extent or a value."""
    element = node.value if isinstance(node, ast.Subscript) else node
    found = ctx.meaning(element)
    if found is None or isinstance(found[1], TypeObject):
        return found is not None
    return isinstance(found[1], Unknown) and found[0] in ctx.type_parameters


def integer_type(of_type: syntax.TypeExpr) -> bool:
    """Whether a type's values are integers."""
    element = ELEMENT_TYPES.get(of_type.element)
    return element is not None and element.is_integer
