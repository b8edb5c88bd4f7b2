"""Reading values: operators and their types, casts, lazy `select`, reads of elements, reductions.

Index expressions stay whole inside values (`IndexValue`), affine comparisons too (`ConditionValue`). What needs
statements (a reduction, the copy of an argument) is emitted before the statement that is being read, and refused
where evaluation is conditional.
"""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Fn, IndexConst, IndexExpr, IndexOp
from texpr.grammar.check.indices import COMPARES, INDEX_CALLS, INDEX_OPERATORS, affine
from texpr.grammar.check.loops import LoopReader
from texpr.grammar.check.scope import (
    ARITHMETIC,
    BIT_FUNCTIONS,
    FLOAT_FUNCTIONS,
    ROUNDING,
    FnName,
    IndexName,
    TypeName,
    ValueName,
    ViewName,
    refuse,
)
from texpr.grammar.check.typing import (
    WRAPPING,
    Typed,
    Untyped,
    Value,
    convert,
    joined,
    literal,
    operand,
    operation,
    provenance,
    typed,
)
from texpr.grammar.check.views import Place
from texpr.grammar.core import value_size
from texpr.grammar.index.expr import ZERO
from texpr.grammar.source import Span
from texpr.grammar.types import BOOL, ELEMENT_TYPES, I64, DType, compute_type

ARITHMETIC_OPERATORS = {"+": Fn.ADD, "-": Fn.SUB, "*": Fn.MUL, "/": Fn.DIV, "%": Fn.MOD}
ARITY = {"min": 2, "max": 2, "fma": 3, "pow": 2, "xlogy": 2, "ceildiv": 2, "select": 3} | dict.fromkeys(
    BIT_FUNCTIONS, 2
)


def index_value(index: IndexExpr, span: Span, dtype: DType = I64) -> Typed:
    return Typed(expr=ast.IndexValue(index=index, dtype=dtype, span=span))


def as_index(value: Value) -> IndexExpr | None:
    """The index expression that a value is, literals included."""
    if isinstance(value, Untyped):
        return IndexConst(value=value.constant, span=value.span) if isinstance(value.constant, int) else None
    return value.expr.index if isinstance(value.expr, ast.IndexValue) and value.dtype == I64 else None


class ValueReader(LoopReader):
    """Reads values."""

    @abstractmethod
    def call(self, e: syntax.Call, function: FnName) -> Value | ViewName | None:
        """Inline a call; its value, the view that it returned, or None."""

    @contextmanager
    def lazily(self, what: str) -> Iterator[None]:
        """Evaluation inside is conditional: nothing may be emitted before the statement."""
        before = self.conditional
        self.conditional = what
        try:
            yield
        finally:
            self.conditional = before

    def unconditional(self, span: Span, what: str) -> None:
        """E0212 where the expression stands in an arm that may not be evaluated."""
        if self.conditional is not None:
            raise refuse(
                "E0212",
                f"{what} stands in {self.conditional}, which is not always evaluated",
                span,
                help="compute it before, with `let`, or write the choice as an `if`",
            )

    def value(self, e: syntax.Expr) -> Value:
        """The value of an expression; hoisted statements go to the current block."""
        with self.deeper(e.span):
            return self._value(e)

    def _value(self, e: syntax.Expr) -> Value:
        match e:
            case syntax.IntLit():
                return literal(e.value, e.span)
            case syntax.FloatLit():
                return literal(e.value, e.span)
            case syntax.BoolLit():
                return Typed(expr=ast.Const(value=e.value, dtype=BOOL, span=e.span))
            case syntax.Name():
                return self.named(e)
            case syntax.View():
                return self.read(self.element(e), e.span)
            case syntax.Unary(op="-"):
                return self.negated(self.value(e.operand), e.span)
            case syntax.Unary():
                return self.condition_value(e) or self.logical_not(e)
            case syntax.Binary() if e.op in ARITHMETIC_OPERATORS:
                left, right = self.value(e.left), self.value(e.right)
                return self.arithmetic(e.op, left, right, e.span)
            case syntax.Binary():
                return self.condition_value(e) or self.truth(e)
            case syntax.Call():
                return self.called(e)
            case syntax.Reduce():
                self.unconditional(e.span, f"`{e.op}`")
                return self.reduction(e, None)
            case syntax.StringLit():
                raise refuse("E0212", "a text stands only in `asm`", e.span)
            case syntax.Member():
                raise refuse("E0212", f"`{e.owner}.{e.name}` stands only in `fragment`", e.span)

    def named(self, e: syntax.Name) -> Value:
        entity = self.lookup(e.name, e.span)
        match entity:
            case IndexName():
                return index_value(entity.index, e.span, entity.dtype)
            case ValueName():
                value = entity.value
                self.charge(value.size if isinstance(value, Untyped) else value_size(value.expr), e.span)
                return entity.value
            case ViewName():
                if entity.rank:
                    dims = f"{entity.rank} dimension{'s' * (entity.rank > 1)}"
                    raise refuse(
                        "E0203",
                        f"`{e.name}` has {dims} and stands here without subscripts",
                        e.span,
                        help=f"write {e.name}[{', '.join('…' for _ in entity.shape)}]",
                    )
                return self.read(self.place(entity, (), e.span), e.span)
            case _:
                raise refuse("E0201", f"`{e.name}` is {_what(entity)}, not a value", e.span)

    def read(self, place: tuple[str, tuple[ast.Subscript, ...]], span: Span) -> Typed:
        buffer, subscripts = place
        return typed(ast.Read(buffer=buffer, subscripts=subscripts, dtype=self.type_of(buffer, span), span=span))

    # ---- operators

    def negated(self, value: Value, span: Span) -> Value:
        if isinstance(value, Untyped) and value.constant is not None:
            return literal(-value.constant, span)
        index = as_index(value)
        if index is not None and isinstance(value, Typed):
            result = affine(IndexOp.SUB, ZERO, index, span)
            if result is not None:
                return index_value(result, span)
        self.demand_number((value,), span, "-")
        return operation(Fn.NEG, (value,), span, "`-`")

    def arithmetic(self, op: str, left: Value, right: Value, span: Span) -> Value:
        merged = self.merged(INDEX_OPERATORS[op], left, right, span)
        if merged is not None:
            return merged
        self.demand_number((left, right), span, op)
        dtype = joined((left, right), span, f"`{op}`")
        if op == "%" and ((dtype is not None and dtype.is_float) or any(_floats(v) for v in (left, right))):
            raise refuse("E0204", "`%` is for integers", span, help="write x - floor(x / y) * y")
        return operation(ARITHMETIC_OPERATORS[op], (left, right), span, f"`{op}`")

    def merged(self, op: IndexOp, left: Value, right: Value, span: Span) -> Typed | None:
        """Two index expressions as one, where that is affine for every binding of the sizes."""
        if isinstance(left, Untyped) and isinstance(right, Untyped):
            return None
        a, b = as_index(left), as_index(right)
        if a is None or b is None:
            return None
        if op in (IndexOp.DIV, IndexOp.MOD, IndexOp.CEILDIV) and not isinstance(b, IndexConst):
            return None
        result = affine(op, a, b, span)
        return None if result is None else index_value(result, span)

    def demand_number(self, values: tuple[Value, ...], span: Span, what: str) -> None:
        for value in values:
            if isinstance(value, Typed) and value.dtype.is_bool:
                raise refuse(
                    "E0204",
                    f"`{what}` is for numbers, this is bool",
                    value.span,
                    help="write i32(…) or f32(…) around it: 0 or 1",
                )

    def condition_value(self, e: syntax.Expr) -> Value | None:
        condition = self.try_condition(e)
        if condition is None:
            return None
        return Typed(expr=ast.ConditionValue(condition=condition, span=e.span))

    def logical_not(self, e: syntax.Unary) -> Value:
        inner = self.truth_of(self.value(e.operand), e.operand.span)
        return Typed(expr=ast.Op(fn=Fn.NOT, args=(inner,), dtype=BOOL, span=e.span))

    def truth(self, e: syntax.Binary) -> Value:
        """A comparison of data, or lazy `and`, `or` with a side that reads data."""
        if e.op in COMPARES:
            return self.comparison(e)
        first = self.truth_of(self.value(e.left), e.left.span)
        with self.lazily(f"the right side of `{e.op}`"):
            second = self.truth_of(self.value(e.right), e.right.span)
        condition = first.condition if isinstance(first, ast.ConditionValue) else first
        constant = ast.Const(value=e.op == "or", dtype=BOOL, span=e.span)
        then, other = (second, constant) if e.op == "and" else (constant, second)
        return Typed(expr=ast.Select(condition=condition, then=then, other=other, dtype=BOOL, span=e.span))

    def comparison(self, e: syntax.Binary) -> Value:
        left, right = self.value(e.left), self.value(e.right)
        fn = Fn(COMPARES[e.op].name.lower())
        bools = [v for v in (left, right) if isinstance(v, Typed) and v.dtype.is_bool]
        if bools and fn not in (Fn.EQ, Fn.NE):
            raise refuse("E0204", f"`{e.op}` is for numbers, this is bool", bools[0].span, help="use ==, != , and, or")
        return operation(fn, (left, right), e.span, f"`{e.op}`")

    def truth_of(self, value: Value, span: Span) -> ast.Expr:
        if not isinstance(value, Typed) or not value.dtype.is_bool:
            found = value.dtype if isinstance(value, Typed) else "a number"
            raise refuse("E0204", f"a condition is bool, this is {found}", span, help="compare it: … != 0")
        return value.expr

    # ---- calls

    def called(self, e: syntax.Call) -> Value:
        if e.name in ELEMENT_TYPES:
            return self.cast(e, ELEMENT_TYPES[e.name])
        if e.name in INDEX_CALLS or e.name in ARITY or e.name in ARITHMETIC + FLOAT_FUNCTIONS + ROUNDING:
            return self.builtin(e)
        if e.name == "fragment":
            raise refuse("E0212", "`fragment` stands alone on one side of a `reg` or of a bind", e.span)
        entity = self.lookup_function(e)
        if isinstance(entity, TypeName):
            return self.cast(e, entity.dtype)
        result = self.call(e, entity)
        if result is None:
            raise refuse("E0207", f"`{e.name}` returns no value", e.span, help=f"call it as a statement: {e.name}(…)")
        if isinstance(result, ViewName):
            if result.rank:
                raise refuse(
                    "E0203", f"`{e.name}` returns {result.rank} dimensions, an element is wanted here", e.span,
                    help=f"name it first: let r = {e.name}(…)",
                )  # fmt: skip
            return self.read(self.place(result, (), e.span), e.span)
        return result

    def lookup_function(self, e: syntax.Call) -> FnName | TypeName:
        entity = self.lookup(e.name, e.span)
        if not isinstance(entity, FnName | TypeName):
            raise refuse("E0201", f"`{e.name}` is {_what(entity)}, not a function", e.span)
        return entity

    def arguments(self, e: syntax.Call, count: int) -> tuple[syntax.Expr, ...]:
        if len(e.args) != count:
            raise refuse(
                "E0207", f"`{e.name}` takes {count} argument{'s' * (count > 1)} and is given {len(e.args)}", e.span
            )
        plain: list[syntax.Expr] = []
        for arg in e.args:
            if isinstance(arg, syntax.Slice):
                raise refuse("E0207", "a slice stands only in a subscript", arg.span)
            plain.append(arg)
        return tuple(plain)

    def cast(self, e: syntax.Call, dtype: DType) -> Value:
        (arg,) = self.arguments(e, 1)
        value = self.value(arg)
        narrow = dtype if dtype in WRAPPING else None
        if isinstance(value, Untyped):
            value = self._cast_literal(value, dtype, e.span)
        return Typed(expr=convert(value.expr, dtype), narrow=narrow)

    def _cast_literal(self, value: Untyped, dtype: DType, span: Span) -> Typed:
        number = value.constant
        if isinstance(number, int) and dtype.is_integer:
            low, _ = dtype.integer_range
            return typed(ast.Const(value=(number - low) % (1 << dtype.bits) + low, dtype=dtype, span=span))
        if number is not None and dtype.is_float:
            return typed(value.make(dtype))
        wide = compute_type(dtype) if dtype.is_float == value.is_float and not dtype.is_bool else value.default
        return typed(value.make(wide))

    def builtin(self, e: syntax.Call) -> Value:
        args = self.arguments(e, ARITY.get(e.name, 1))
        if e.name == "select":
            return self.select(e, args)
        values = tuple(self.value(arg) for arg in args)
        if e.name in INDEX_CALLS:
            merged = self.merged(INDEX_CALLS[e.name], values[0], values[1], e.span)
            if merged is not None:
                return merged
            if e.name == "ceildiv":
                raise refuse("E0206", "`ceildiv` is for index expressions", e.span, help="write (a + b - 1) / b")
        self.demand_number(values, e.span, e.name)
        dtype = joined(values, e.span, f"`{e.name}`")
        floats = (dtype is not None and dtype.is_float) or any(_floats(value) for value in values)
        if e.name in BIT_FUNCTIONS and floats:
            raise refuse("E0204", f"`{e.name}` is for integers, here is a float", e.span)
        if e.name in FLOAT_FUNCTIONS + ROUNDING:
            if dtype is not None and not dtype.is_float:
                raise refuse(
                    "E0204", f"`{e.name}` is for floats, this is {dtype}", e.span, help=f"write {e.name}(f32(…))"
                )
            result = operation(Fn(e.name), values, e.span, f"`{e.name}`")
            if isinstance(result, Untyped):
                return Untyped(make=result.make, is_float=True, span=e.span, size=result.size)
            return result
        return operation(Fn(e.name), values, e.span, f"`{e.name}`")

    def select(self, e: syntax.Call, args: tuple[syntax.Expr, ...]) -> Value:
        condition: ast.Condition | ast.Expr | None = self.try_condition(args[0])
        if condition is None:
            found = self.truth_of(self.value(args[0]), args[0].span)
            condition = found.condition if isinstance(found, ast.ConditionValue) else found
        with self.lazily("an arm of `select`"):
            then, other = self.value(args[1]), self.value(args[2])
        chosen = condition
        if isinstance(then, Untyped) and isinstance(other, Untyped):
            first, second = then, other
            return Untyped(
                make=lambda t: ast.Select(
                    condition=chosen, then=first.make(t), other=second.make(t), dtype=t, span=e.span
                ),
                is_float=first.is_float or second.is_float,
                span=e.span,
                size=1 + first.size + second.size,
            )
        dtype = self.chosen_type(then, other, e.span)
        return Typed(
            expr=ast.Select(
                condition=chosen, then=operand(then, dtype), other=operand(other, dtype), dtype=dtype, span=e.span
            ),
            narrow=provenance((then, other)),
        )

    def chosen_type(self, then: Value, other: Value, span: Span) -> DType:
        """The type of a `select`: the arms' own where they agree, since nothing is computed."""
        types = {v.dtype for v in (then, other) if isinstance(v, Typed)}
        if len(types) == 1 and all(isinstance(v, Typed) for v in (then, other)):
            return types.pop()
        dtype = joined((then, other), span, "`select`")
        assert dtype is not None, "one arm at least is typed"
        return dtype

    @abstractmethod
    def reduction(self, e: syntax.Reduce, target: Place | None, name: str | None = None) -> Typed:
        """A reduction, before the statement that is being read."""


def _floats(value: Value) -> bool:
    return isinstance(value, Untyped) and value.is_float


def _what(entity: object) -> str:
    return {"FnName": "a function", "TypeName": "a type", "IndexName": "an index", "ViewName": "a buffer"}.get(
        type(entity).__name__, "a value"
    )
