"""Reading index expressions and affine conditions from the surface tree.

An expression is an index expression when it is built from integers, sizes, indices and `let`s of such by
`+ - * / %`, min, max and ceildiv, with no product of two indices and no index as a divisor. `try_` readers give None
for anything else and report nothing; `index` and its kin refuse with the reason (E0206).
"""

from abc import abstractmethod
from collections.abc import Iterator

from texpr.grammar import ast, syntax
from texpr.grammar.ast import CompareOp, Condition, IndexConst, IndexExpr, IndexOp
from texpr.grammar.check.context import Context
from texpr.grammar.check.scope import FnName, IndexName, RefusedError, TypeName, ValueName, ViewName, describe, refuse
from texpr.grammar.check.typing import Typed, Untyped, Value
from texpr.grammar.core import buffers_read, condition_size
from texpr.grammar.index.expr import I64_MAX, I64_MIN, ZERO, combine, index_names, index_size
from texpr.grammar.source import Span
from texpr.grammar.types import ELEMENT_TYPES

INDEX_CALLS = {"min": IndexOp.MIN, "max": IndexOp.MAX, "ceildiv": IndexOp.CEILDIV}
INDEX_OPERATORS = {"+": IndexOp.ADD, "-": IndexOp.SUB, "*": IndexOp.MUL, "/": IndexOp.DIV, "%": IndexOp.MOD}
COMPARES = {op.value: op for op in CompareOp}


def affine(op: IndexOp, left: IndexExpr, right: IndexExpr, span: Span) -> IndexExpr | None:
    """`left op right` where that is an index expression, else None."""
    if op is IndexOp.MUL and index_names(left) and index_names(right):
        return None
    divides = op in (IndexOp.DIV, IndexOp.MOD, IndexOp.CEILDIV)
    if divides and (index_names(right) or (isinstance(right, IndexConst) and right.value <= 0)):
        return None
    result = combine(op, left, right, span)
    if isinstance(result, IndexConst) and not I64_MIN <= result.value <= I64_MAX:
        raise refuse("E0103", "the number does not fit 64 bits", span)
    return result


class IndexReader(Context):
    """Reads index expressions and affine conditions."""

    @abstractmethod
    def value(self, e: syntax.Expr) -> Value:
        """The value of an expression."""

    def try_index(self, e: syntax.Expr) -> IndexExpr | None:
        """The index expression, or None where it is not one."""
        match e:
            case syntax.IntLit():
                return IndexConst(value=e.value, span=e.span) if e.value <= I64_MAX else None
            case syntax.Name():
                found = self.scope.lookup(e.name)
                if found is not None and isinstance(found.entity, ValueName):
                    return _literal_index(found.entity.value, e.span)
                if found is None or not isinstance(found.entity, IndexName):
                    return None
                self.use_sizes(found.entity.index)
                self.charge(index_size(found.entity.index), e.span)
                return found.entity.index
            case syntax.Unary(op="-"):
                inner = self.try_index(e.operand)
                return None if inner is None else affine(IndexOp.SUB, ZERO, inner, e.span)
            case syntax.Binary() if e.op in INDEX_OPERATORS:
                left = self.try_index(e.left)
                right = self.try_index(e.right) if left is not None else None
                if left is None or right is None:
                    return None
                return affine(INDEX_OPERATORS[e.op], left, right, e.span)
            case syntax.Call() if e.name in INDEX_CALLS and len(e.args) == 2:
                parts = [self.try_index(arg) for arg in e.args if not isinstance(arg, syntax.Slice)]
                if len(parts) != 2 or parts[0] is None or parts[1] is None:
                    return None
                return affine(INDEX_CALLS[e.name], parts[0], parts[1], e.span)
            case _:
                return None

    def index(self, e: syntax.Expr, what: str) -> IndexExpr:
        """The index expression of `what` (`the extent`); E0206 with the reason where it is not one."""
        result = self.try_index(e)
        if result is None:
            raise self.not_an_index(e, what)
        return result

    def not_an_index(self, e: syntax.Expr, what: str) -> RefusedError:
        """Why an expression is not an index expression, at the smallest place."""
        for node in expressions(e):
            match node:
                case syntax.Name():
                    try:
                        entity = self.lookup(node.name, node.span)
                    except RefusedError as refused:
                        return refused
                    if not isinstance(entity, IndexName):
                        return self.reads_data(node.span, what, node.name)
                case syntax.View():
                    try:
                        self.lookup(node.name, node.span)
                    except RefusedError as refused:
                        return refused
                    return self.reads_data(node.span, what, node.name)
                case syntax.Binary() if node.op in INDEX_OPERATORS:
                    left, right = self.try_index(node.left), self.try_index(node.right)
                    if left is not None and right is not None and self.try_index(node) is None:
                        return _not_affine(node, right, what)
                case syntax.Call() if node.name in INDEX_CALLS and len(node.args) == 2:
                    continue
                case syntax.IntLit() | syntax.Unary(op="-"):
                    continue
                case _:
                    return refuse(
                        "E0206",
                        f"{_of(what)} is built from integers, sizes and indices by + - * / %, min, max and ceildiv",
                        node.span,
                        help="compute other values in the body, from data",
                    )
        return refuse("E0206", f"{what} is not an index expression", e.span)

    def reads_data(self, span: Span, what: str, name: str) -> RefusedError:
        found = self.scope.lookup(name)
        if found is not None and isinstance(found.entity, FnName | TypeName):
            return refuse(
                "E0206", f"`{name}` is {describe(found.entity)}, not a size", span, help="choose another name"
            )
        shown = f"{name}[…]" if found and isinstance(found.entity, ViewName) and found.entity.rank else name
        if what == "the extent":
            return refuse(
                "E0206",
                "an extent is built from integers, sizes and enclosing indices; this one reads data",
                span,
                help=f"give the loop the greatest extent and mask its body: seq K k {{ if k < {shown} {{ … }} }}",
            )
        return refuse("E0206", f"{what} is built from integers, sizes and indices; `{name}` is data", span)

    # ---- conditions

    def try_condition(self, e: syntax.Expr) -> Condition | None:
        """The affine condition, or None where the expression reads data."""
        match e:
            case syntax.BoolLit():
                return ast.Always(value=e.value, span=e.span)
            case syntax.Name():
                found = self.scope.lookup(e.name)
                entity = found.entity if found is not None else None
                if not isinstance(entity, ValueName) or not isinstance(entity.value, Typed):
                    return None
                expr = entity.value.expr
                if not isinstance(expr, ast.ConditionValue):
                    return None
                self.charge(condition_size(expr.condition), e.span)
                return expr.condition
            case syntax.Binary() if e.op in COMPARES:
                left = self.try_index(e.left)
                right = self.try_index(e.right) if left is not None else None
                if left is None or right is None:
                    return None
                return ast.Compare(op=COMPARES[e.op], left=left, right=right, span=e.span)
            case syntax.Binary(op="and" | "or"):
                first = self.try_condition(e.left)
                second = self.try_condition(e.right) if first is not None else None
                if first is None or second is None:
                    return None
                kind = ast.And if e.op == "and" else ast.Or
                parts = tuple(
                    part for c in (first, second) for part in (c.parts if isinstance(c, kind) else (c,))
                )  # fmt: skip
                return kind(parts=parts, span=e.span)
            case syntax.Unary(op="not"):
                part = self.try_condition(e.operand)
                return None if part is None else ast.Not(part=part, span=e.span)
            case _:
                return None

    # ---- gathers

    def subscript(self, e: syntax.Expr) -> ast.Subscript:
        """An affine subscript, or a gather where the expression reads data."""
        index = self.try_index(e)
        if index is not None:
            return index
        value = self.value(e)
        if isinstance(value, Typed):
            if isinstance(value.expr, ast.IndexValue):
                return value.expr.index
            if not buffers_read(value.expr):
                raise self.not_an_index(e, "a subscript")
        return self.gather(value, e.span)

    def gather(self, value: Value, span: Span) -> ast.Gather:
        """The gathered subscript of an integer value; E0204 for any other."""
        if not isinstance(value, Typed) or not value.dtype.is_integer:
            found = value.dtype if isinstance(value, Typed) else value.default
            raise refuse("E0204", f"a subscript is an integer, this is {found}", span, help="cast it: i32(…)")
        expr = value.expr
        if expr.dtype.name != "i64":
            expr = ast.Cast(operand=expr, dtype=ELEMENT_TYPES["i64"], span=span)
        return ast.Gather(value=expr, span=span)


def _literal_index(value: Value, span: Span) -> IndexConst | None:
    """The integer of a `let` or a parameter that is a literal."""
    number = value.constant if isinstance(value, Untyped) else None
    if isinstance(value, Typed) and isinstance(value.expr, ast.Const) and value.dtype.is_integer:
        number = value.expr.value
    return IndexConst(value=number, span=span) if isinstance(number, int) else None


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
