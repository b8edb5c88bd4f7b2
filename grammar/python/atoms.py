"""Numbers and names of a decorated function's body → leaves of the surface tree."""

import ast
import math

from texpr.grammar import syntax
from texpr.grammar.python.context import FOREIGN_HELP, Context
from texpr.grammar.python.names import (
    Constant,
    FnObject,
    Foreign,
    LibraryPath,
    TypeObject,
    Unknown,
    Word,
    is_identifier,
    literal,
)


def constant(ctx: Context, node: ast.Constant) -> syntax.Expr:
    """A literal; strings and other objects are refused."""
    span = ctx.span(node)
    match node.value:
        case bool() | int() | float():
            text = span.text if ctx.literal_span is None else None
            return number(ctx, node.value, node, text)
        case str():
            message, help = "a string stands only for an extent, an attribute or asm", "write the expression bare"
        case None:
            message, help = "`None` has no meaning in TExpr", "every value is a number"
        case _:
            what = "`...`" if node.value is ... else f"a {type(node.value).__name__} value"
            message, help = f"{what} has no meaning in TExpr", "write integers and floats"
    ctx.refuse("E0105", message, node, help)
    return ctx.placeholder(node)


def number(ctx: Context, value: int | float | bool, node: ast.expr, text: str | None = None) -> syntax.Expr:
    """A number, in the spelling of its text where it has one; E0103 for one beyond 64 bits."""
    beyond = text is not None and isinstance(value, float) and math.isinf(value)
    found = literal(value, ctx.span(node), text)
    if beyond or found is None:
        kind, help = ("f64", "write inf") if beyond else ("64 bits", "use a smaller number")
        ctx.refuse("E0103", f"this number is beyond the range of {kind}", node, help)
        return ctx.placeholder(node)
    return found


def name_of(ctx: Context, node: ast.Name | ast.Attribute) -> syntax.Expr:
    """What a name, dotted or not, stands for as a value; names of words, types and Python objects are refused."""
    span = ctx.span(node)
    found = ctx.meaning(node)
    if found is None:
        ctx.refuse("E0105", "attributes of values have no meaning in TExpr", node, 'name a size: f32["M"]')
        return ctx.placeholder(node)
    name, meaning = found
    match meaning:
        case Constant(value):
            return number(ctx, value, node)
        case Unknown() if "." not in name:
            if name in ("inf", "nan"):
                return syntax.FloatLit(text=name, span=span)
            if ctx.lookup(name) is None and not is_identifier(name):
                ctx.refuse("E0105", f"`{name}` is not a name of TExpr", node, "names are ASCII and not reserved")
            return syntax.Name(name=name, span=span)
        case Unknown() if name.count(".") == 1:
            owner, member = name.split(".")
            if not (is_identifier(owner) and is_identifier(member)):
                wrong = member if is_identifier(owner) else owner
                ctx.refuse("E0105", f"`{wrong}` is not a name of TExpr", node, "names are ASCII and not reserved")
            if ctx.lookup(owner) is None and owner not in ctx.sizes:
                return syntax.Member(owner=owner, name=member, span=span)
            help = 'a size has a name of its own: A: f32["M", "K"], then M'
            ctx.refuse("E0105", f"`{owner}` has no attributes in TExpr", node, help)
        case Word() | FnObject() | LibraryPath():
            ctx.refuse("E0105", f"`{name}` is a word of TExpr, not a value", node, f"call it: {name}(…)")
        case TypeObject():
            ctx.refuse("E0105", f"`{name}` is a type, not a value", node, f"a cast is a call: {name}(x)")
        case Foreign(what):
            ctx.refuse("E0105", f"`{name}` is {what} of Python, which has no meaning here", node, FOREIGN_HELP)
        case _:
            ctx.refuse("E0105", f"`{name}` has no meaning in TExpr", node, FOREIGN_HELP)
    return ctx.placeholder(node)
