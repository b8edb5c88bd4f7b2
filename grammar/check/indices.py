"""Reading index expressions and affine conditions from the surface tree.

An expression is an index expression when it is built from integers, sizes, indices and `let`s of such by
`+ - * / %`, min, max and ceildiv, with no product of two indices and no index as a divisor. `try_` readers give None
for anything else and report nothing; `index` refuses with the reason (E0206). None of them recurses.
"""

from collections.abc import Iterator

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Condition, IndexConst, IndexExpr, IndexOp
from texpr.grammar.check.context import Context
from texpr.grammar.check.scope import FnName, IndexName, TypeName, ValueName, ViewName, describe
from texpr.grammar.check.typing import Typed, Untyped, Value
from texpr.grammar.core import value_size
from texpr.grammar.index.expr import I64_MAX, I64_MIN, ZERO, combine, index_names, index_size
from texpr.grammar.index.operators import DIVISIONS
from texpr.grammar.operators import COMPARISONS, FUNCTIONS, SYMBOLS
from texpr.grammar.refusals import RefusedError, refuse
from texpr.grammar.source import Span


def affine(op: IndexOp, left: IndexExpr, right: IndexExpr, span: Span) -> IndexExpr | None:
    """`left op right` where that is an index expression, else None."""
    if op is IndexOp.MUL and index_names(left) and index_names(right):
        return None
    if op in DIVISIONS and (index_names(right) or (isinstance(right, IndexConst) and right.value <= 0)):
        return None
    result = combine(op, left, right, span)
    if isinstance(result, IndexConst) and not I64_MIN <= result.value <= I64_MAX:
        raise refuse("E0103", "the number does not fit 64 bits", span)
    return result


def operands(e: syntax.Expr) -> tuple[IndexOp, tuple[syntax.Expr, ...]] | None:
    """The index operator that an expression may be, and its operands; `-a` has one. None for anything else."""
    match e:
        case syntax.Unary(op="-"):
            return IndexOp.SUB, (e.operand,)
        case syntax.Binary() if e.op in SYMBOLS:
            op = SYMBOLS[e.op].index
            return None if op is None else (op, (e.left, e.right))
        case syntax.Call() if e.name in FUNCTIONS and len(e.args) == 2:
            op = FUNCTIONS[e.name].index
            args = tuple(arg for arg in e.args if not isinstance(arg, syntax.Slice))
            return None if op is None or len(args) != 2 else (op, args)
        case _:
            return None


def try_index(ctx: Context, e: syntax.Expr) -> IndexExpr | None:
    """The index expression, or None where it is not one."""
    done: list[IndexExpr] = []
    work: list[syntax.Expr | tuple[IndexOp, Span]] = [e]
    while work:
        item = work.pop()
        found: IndexExpr | None
        if isinstance(item, tuple):
            right, left = done.pop(), done.pop()
            found = affine(item[0], left, right, item[1])
        elif (inside := operands(item)) is not None:
            op, parts = inside
            if len(parts) == 1:
                done.append(ZERO)
            work += ((op, item.span), *reversed(parts))
            continue
        else:
            found = _leaf(ctx, item)
        if found is None:
            return None
        done.append(found)
    return done.pop()


def _leaf(ctx: Context, e: syntax.Expr) -> IndexExpr | None:
    """An integer, an index or a size."""
    if isinstance(e, syntax.IntLit):
        return IndexConst(value=e.value, span=e.span) if e.value <= I64_MAX else None
    entity = entity_of(ctx, e)
    if isinstance(entity, ValueName):
        return _literal_index(entity.value, e.span)
    if not isinstance(entity, IndexName):
        return None
    ctx.use_sizes(entity.index)
    ctx.charge(index_size(entity.index), e.span)
    return entity.index


def entity_of(ctx: Context, e: syntax.Expr) -> object:
    """What a name stands for; None for an unknown one and for any other expression."""
    found = ctx.scope.lookup(e.name) if isinstance(e, syntax.Name) else None
    return found.entity if found is not None else None


def _literal_index(value: Value, span: Span) -> IndexConst | None:
    """The integer of a `let` or a parameter that is a literal."""
    number = value.constant if isinstance(value, Untyped) else None
    if isinstance(value, Typed) and isinstance(value.expr, ast.Const) and value.dtype.is_integer:
        number = value.expr.value
    return IndexConst(value=number, span=span) if isinstance(number, int) else None


def index(ctx: Context, e: syntax.Expr, what: str) -> IndexExpr:
    """The index expression of `what` (`the extent`); E0206 with the reason where it is not one."""
    result = try_index(ctx, e)
    if result is None:
        raise not_an_index(ctx, e, what)
    return result


# ---- why not ---------------------------------------------------------------------------------------------------


def not_an_index(ctx: Context, e: syntax.Expr, what: str) -> RefusedError:
    """Why an expression is not an index expression, at the smallest place."""
    for node in expressions(e):
        match node:
            case syntax.Name() | syntax.View():
                try:
                    entity = ctx.lookup(node.name, node.span)
                except RefusedError as refused:
                    return refused
                if isinstance(node, syntax.View) or not isinstance(entity, IndexName):
                    return _reads_data(ctx, node.span, what, node.name)
            case syntax.Binary() if node.op in SYMBOLS:
                left, right = try_index(ctx, node.left), try_index(ctx, node.right)
                if left is not None and right is not None and try_index(ctx, node) is None:
                    return _not_affine(node, right, what)
            case syntax.IntLit():
                continue
            case _ if operands(node) is None:
                return refuse(
                    "E0206",
                    f"{_of(what)} is built from integers, sizes and indices by + - * / %, min, max and ceildiv",
                    node.span,
                    help="compute other values in the body, from data",
                )
    return refuse("E0206", f"{what} is not an index expression", e.span)


def _reads_data(ctx: Context, span: Span, what: str, name: str) -> RefusedError:
    found = ctx.scope.lookup(name)
    if found is not None and isinstance(found.entity, FnName | TypeName):
        return refuse("E0206", f"`{name}` is {describe(found.entity)}, not a size", span, help="choose another name")
    shown = f"{name}[…]" if found and isinstance(found.entity, ViewName) and found.entity.rank else name
    if what == "the extent":
        return refuse(
            "E0206",
            "an extent is built from integers, sizes and enclosing indices; this one reads data",
            span,
            help=f"give the loop the greatest extent and mask its body: seq K k {{ if k < {shown} {{ … }} }}",
        )
    return refuse("E0206", f"{what} is built from integers, sizes and indices; `{name}` is data", span)


def _not_affine(node: syntax.Binary, right: IndexExpr, what: str) -> RefusedError:
    if node.op == "*":
        return refuse(
            "E0206", f"a product of two indices is not quasi-affine, so it is no part of {_of(what)}", node.span,
            help="multiply an index by a constant or a size",
        )  # fmt: skip
    if isinstance(right, IndexConst):
        return refuse("E0206", f"`{node.op}` in {_of(what)} has a positive divisor", node.right.span)
    return refuse("E0206", f"`{node.op}` in {_of(what)} has a constant or a size as divisor", node.right.span)


def _of(what: str) -> str:
    return {"the extent": "an extent", "the shape": "a shape", "the start": "a slice"}.get(what, what)


def expressions(e: syntax.Expr | syntax.Slice) -> Iterator[syntax.Expr]:
    """The expression and the ones in it, in text order; subscripts of views are left out."""
    stack: list[syntax.Expr | syntax.Slice] = [e]
    while stack:
        node = stack.pop()
        match node:
            case syntax.Slice():
                stack += (node.extent, node.start)
                continue
            case syntax.Unary():
                stack.append(node.operand)
            case syntax.Binary():
                stack += (node.right, node.left)
            case syntax.Call():
                stack += reversed(node.args)
            case _:
                pass
        yield node


# ---- conditions ------------------------------------------------------------------------------------------------


def try_condition(ctx: Context, e: syntax.Expr) -> Condition | None:
    """The affine condition, or None where the expression reads data."""
    done: list[Condition] = []
    work: list[tuple[syntax.Expr, bool]] = [(e, False)]  # and whether the parts of the expression are done
    while work:
        node, complete = work.pop()
        found: Condition | None = None
        match node:
            case syntax.Binary(op="and" | "or") | syntax.Unary(op="not") if not complete:
                parts = (node.operand,) if isinstance(node, syntax.Unary) else (node.left, node.right)
                work += ((node, True), *((part, False) for part in reversed(parts)))
                continue
            case syntax.Binary(op="and" | "or"):
                second, first = done.pop(), done.pop()
                kind = ast.And if node.op == "and" else ast.Or
                both = tuple(part for c in (first, second) for part in (c.parts if isinstance(c, kind) else (c,)))
                found = kind(parts=both, span=node.span)
            case syntax.Unary(op="not"):
                found = ast.Not(part=done.pop(), span=node.span)
            case syntax.BoolLit():
                found = ast.Always(value=node.value, span=node.span)
            case syntax.Binary() if node.op in COMPARISONS:
                left = try_index(ctx, node.left)
                right = try_index(ctx, node.right) if left is not None else None
                if left is not None and right is not None:
                    found = ast.Compare(op=COMPARISONS[node.op][0], left=left, right=right, span=node.span)
            case syntax.Name():
                found = _condition_named(ctx, node)
            case _:
                pass
        if found is None:
            return None
        done.append(found)
    return done.pop()


def _condition_named(ctx: Context, e: syntax.Name) -> Condition | None:
    """The affine condition that a `let` or a parameter is."""
    entity = entity_of(ctx, e)
    if not isinstance(entity, ValueName) or not isinstance(entity.value, Typed):
        return None
    expr = entity.value.expr
    if not isinstance(expr, ast.ConditionValue):
        return None
    ctx.charge(value_size(expr.condition), e.span)
    return expr.condition
