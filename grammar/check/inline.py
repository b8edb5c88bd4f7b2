"""Calls of `fn`: views by reference and scalars by value, type parameters and sizes from them, the body in place.

A function whose body is only `let` and `return` is pure: its call is an expression and may stand in an arm of
`select`. Any other call emits its body before the statement that is being read. Depth and the number of nodes are
limited (E0103), recursion is refused (E0208).
"""

from abc import abstractmethod
from dataclasses import dataclass, field

from texpr.grammar import ast, syntax
from texpr.grammar.ast import Attr
from texpr.grammar.check.context import MAX_CALLS
from texpr.grammar.check.reductions import ReductionReader
from texpr.grammar.check.scope import FnName, IndexName, RefusedError, Scope, TypeName, ValueName, ViewName, refuse
from texpr.grammar.check.typing import WRAPPING, Typed, Untyped, Value, settle, stored
from texpr.grammar.check.values import as_index
from texpr.grammar.diagnostics import Label
from texpr.grammar.index.expr import index_names
from texpr.grammar.index.linear import difference
from texpr.grammar.index.text import in_words
from texpr.grammar.source import Span
from texpr.grammar.surface import name_place, names_used
from texpr.grammar.types import ELEMENT_TYPES, DType, common_type

Argument = ViewName | Typed | Untyped


@dataclass(slots=True, kw_only=True)
class Frame:
    """One call while its arguments are matched."""

    call: syntax.Call
    definition: syntax.FnDef
    scope: Scope
    types: dict[str, DType] = field(default_factory=dict)


def is_pure(definition: syntax.FnDef) -> bool:
    """Whether the body is only `let` and `return`, and nothing is written through a parameter."""
    if definition.reference is not None or any(p.direction in ("out", "inout") for p in definition.params):
        return False
    return all(isinstance(s, syntax.Let | syntax.Return) for s in definition.body.body)


def returned(definition: syntax.FnDef) -> syntax.Expr | None:
    """The value of the `return` at the end of the body."""
    last = definition.body.body[-1] if definition.body.body else None
    return last.value if isinstance(last, syntax.Return) else None


class Inliner(ReductionReader):
    """Inlines calls."""

    @abstractmethod
    def statements(self, block: syntax.Block) -> None:
        """Check the statements of a block in the current scope."""

    def call(self, e: syntax.Call, function: FnName) -> Value | ViewName | None:
        definition = function.definition
        if any(active is definition for active in self.calls):
            raise refuse(
                "E0208", f"`{e.name}` calls itself", e.span, help="functions are inlined: write a loop",
                secondary=tuple(Label(span=s, text="called here") for s in self.call_spans[-1:]),
            )  # fmt: skip
        if len(self.calls) >= MAX_CALLS:
            raise refuse("E0103", f"calls nest deeper than {MAX_CALLS}", e.span, help="split the kernel")
        if len(e.args) != len(definition.params):
            wanted = len(definition.params)
            raise refuse(
                "E0207", f"`{e.name}` takes {wanted} argument{'s' * (wanted != 1)} and is given {len(e.args)}", e.span,
                help=signature(definition),
            )  # fmt: skip
        if not is_pure(definition):
            self.unconditional(e.span, f"the call of `{e.name}`")
        frame = Frame(call=e, definition=definition, scope=Scope(function.module))
        arguments = [self.argument(frame, p, a) for p, a in zip(definition.params, e.args, strict=True)]
        self.bind_types(frame, arguments)
        self.bind_shapes(frame, arguments)
        for parameter, argument, arg in zip(definition.params, arguments, e.args, strict=True):
            self.bind_argument(frame, parameter, argument, arg.span)
        return self.inlined(frame)

    # ---- arguments

    def argument(self, frame: Frame, parameter: syntax.Param, arg: syntax.Expr | syntax.Slice) -> Argument:
        """What stands for a parameter: a view for an array or a written scalar, else a value."""
        if isinstance(arg, syntax.Slice):
            raise refuse("E0207", "a slice stands only in a subscript", arg.span, help="write the view: A[i:16]")
        written = parameter.direction in ("out", "inout")
        if parameter.attrs:
            raise refuse("E0205", "an attribute has no meaning on the parameter of a `fn`", parameter.attrs[0].span)
        if parameter.type.shape is None and not written:
            return self.value(arg)
        view = self.view_argument(arg)
        if view is None:
            raise refuse(
                "E0207", f"`{parameter.name}` of `{frame.call.name}` is a view, this is a value", arg.span,
                help="write a buffer or a slice of one: A[i:16, 0:8]",
            )  # fmt: skip
        wanted = 0 if parameter.type.shape is None else len(parameter.type.shape)
        if view.rank != wanted:
            raise refuse(
                "E0207", f"`{parameter.name}` of `{frame.call.name}` has {_dims(wanted)}, this view {_dims(view.rank)}",
                arg.span, help="a plain subscript drops its dimension, a slice keeps it",
            )  # fmt: skip
        if written:
            name = arg.name if isinstance(arg, syntax.Name | syntax.View) else frame.call.name
            self.writable(name, view, arg.span)
        return view

    def view_argument(self, arg: syntax.Expr) -> ViewName | None:
        match arg:
            case syntax.Name():
                entity = self.lookup(arg.name, arg.span)
                return entity if isinstance(entity, ViewName) else None
            case syntax.View():
                return self.view(arg)
            case syntax.Call() if arg.name not in ELEMENT_TYPES:
                result = self.result_of(arg)
                return result if isinstance(result, ViewName) else None
            case _:
                return None

    def result_of(self, e: syntax.Call) -> Value | ViewName | None:
        """What a call gives, views included."""
        found = self.scope.lookup(e.name)
        if found is not None and isinstance(found.entity, FnName):
            with self.deeper(e.span):
                return self.call(e, found.entity)
        return self.value(e)

    def dtype_of(self, argument: Argument, span: Span) -> DType | None:
        match argument:
            case ViewName():
                return self.type_of(argument.buffer, span)
            case Typed():
                return argument.dtype
            case Untyped():
                return None

    # ---- type parameters and sizes

    def bind_types(self, frame: Frame, arguments: list[Argument]) -> None:
        """Type parameters from the arguments: arrays first, then scalars, whose types are joined."""
        pairs = list(zip(frame.definition.params, arguments, frame.call.args, strict=True))
        for arrays in (True, False):
            for parameter, argument, arg in pairs:
                name, is_array = parameter.type.element, parameter.type.shape is not None
                found = self.dtype_of(argument, arg.span)
                if name in ELEMENT_TYPES or is_array is not arrays or found is None:
                    continue
                before = frame.types.get(name)
                if before is None or before == found:
                    frame.types[name] = found
                elif arrays:
                    raise refuse("E0207", f"`{name}` is {before} and {found} in this call", arg.span)
                elif (common := common_type(before, found)) is not None:
                    frame.types[name] = common
                else:
                    raise refuse("E0204", f"`{name}` is {before} and {found}, which do not mix", arg.span)
        for parameter, argument, _ in pairs:
            if isinstance(argument, Untyped) and parameter.type.element not in ELEMENT_TYPES:
                frame.types.setdefault(parameter.type.element, argument.default)
        for name, dtype in frame.types.items():
            frame.scope.define(name, TypeName(dtype=dtype), frame.definition.span)

    def element_type(self, type_: syntax.TypeExpr) -> DType:
        """The element type of a type expression; E0201 for an unknown name."""
        known = ELEMENT_TYPES.get(type_.element)
        if known is not None:
            return known
        found = self.scope.lookup(type_.element)
        if found is not None and isinstance(found.entity, TypeName):
            return found.entity.dtype
        raise refuse(
            "E0201", f"`{type_.element}` is not an element type", type_.span,
            help="the types are " + ", ".join(ELEMENT_TYPES),
        )  # fmt: skip

    def bind_shapes(self, frame: Frame, arguments: list[Argument]) -> None:
        """Sizes of the function from the shapes of views; E0207 where a shape does not fit."""
        rest: list[tuple[syntax.Expr, ast.IndexExpr, Span]] = []
        for parameter, argument, arg in zip(frame.definition.params, arguments, frame.call.args, strict=True):
            if not isinstance(argument, ViewName):
                continue
            for expr, actual in zip(parameter.type.shape or (), argument.shape, strict=True):
                if isinstance(expr, syntax.Name) and frame.scope.lookup(expr.name) is None:
                    frame.scope.define(expr.name, IndexName(index=actual, what="a size"), expr.span)
                else:
                    rest.append((expr, actual, arg.span))
        for expr, actual, span in rest:
            with self.scoped(frame.scope):
                wanted = self.index(expr, "the shape")
            self.same_extent(wanted, actual, span)

    def same_extent(self, wanted: ast.IndexExpr, actual: ast.IndexExpr, span: Span) -> None:
        """E0207 where two extents differ; what only sizes decide becomes a fact of the kernel."""
        found = difference(wanted, actual)
        if found == 0:
            return
        texts = in_words(wanted), in_words(actual)
        if found is not None:
            raise refuse("E0207", f"an extent of {texts[0]} is wanted here, this one is {texts[1]}", span)
        if index_names(wanted) or index_names(actual):
            raise refuse(
                "E0207", f"the extent {texts[1]} is not {texts[0]} for every iteration", span,
                help="take a slice of the extent that the function wants",
            )  # fmt: skip
        fact = ast.Compare(op=ast.CompareOp.EQ, left=actual, right=wanted, span=span)
        if fact not in self.facts:
            self.facts.append(fact)

    def uses(self, definition: syntax.FnDef) -> dict[str, int]:
        """How often each name stands in the body, counted once for each function."""
        if id(definition) not in self.use_counts:
            self.use_counts[id(definition)] = names_used(definition.body)
        return self.use_counts[id(definition)]

    def bind_argument(self, frame: Frame, parameter: syntax.Param, argument: Argument, span: Span) -> None:
        """Enter a parameter into the function's scope; values that are used twice are computed once."""
        with self.scoped(frame.scope):
            dtype = self.element_type(parameter.type)
        frozen = None if parameter.direction in ("out", "inout") else "an `in` parameter"
        if isinstance(argument, ViewName):
            found = self.type_of(argument.buffer, span)
            if found != dtype:
                raise refuse(
                    "E0207", f"`{parameter.name}` of `{frame.call.name}` is {dtype}, this view is {found}", span
                )
        if isinstance(argument, ViewName):
            entity = ViewName(
                buffer=argument.buffer, parts=argument.parts, shape=argument.shape, frozen_as=frozen, alias=True
            )
            frame.scope.define(parameter.name, entity, name_place(parameter, parameter.name))
            return
        value: Value = argument
        is_constant = isinstance(argument, Untyped) and argument.constant is not None
        if not is_constant or parameter.type.element in ELEMENT_TYPES:  # a literal of a type parameter stays literal
            value = self.passed(argument, dtype, span, f"`{parameter.name}` of `{frame.call.name}`")
        index = as_index(value)
        if index is not None and isinstance(value, Typed):
            frame.scope.define(parameter.name, IndexName(index=index, what="an index"), parameter.span)
            return
        uses = self.uses(frame.definition).get(parameter.name, 0)
        pure = is_pure(frame.definition)
        plain = isinstance(value, Untyped) or isinstance(value.expr, ast.Const | ast.IndexValue | ast.ConditionValue)
        simple = pure and isinstance(value, Typed) and _is_simple(value.expr)
        if plain or simple or (pure and (uses <= 1 or self.conditional is not None)):
            frame.scope.define(parameter.name, ValueName(value=value), parameter.span)
            return
        settled = settle(value)
        draft = self.local(parameter.name, settled.dtype, (), span)
        self.bind(draft.name, (), settled.expr, span, self.attrs)
        entity = ViewName(buffer=draft.name, parts=(), shape=(), frozen_as="an `in` parameter")
        frame.scope.define(parameter.name, entity, name_place(parameter, parameter.name))

    def passed(self, value: Value, dtype: DType, span: Span, what: str) -> Value:
        """The value as a parameter of a type: literals take it, others may widen; narrowing needs a cast."""
        if isinstance(value, Typed):
            narrows = value.dtype.is_float and dtype.is_float and common_type(value.dtype, dtype) != dtype
            if narrows and value.dtype != dtype and dtype.bits < value.dtype.bits:
                raise refuse("E0204", f"{what} is {dtype}, this value is {value.dtype}", span, help=f"write {dtype}(…)")
            if value.dtype == dtype:
                return value
        return Typed(expr=stored(value, dtype, span, what), narrow=dtype if dtype in WRAPPING else None)

    # ---- the body

    def inlined(self, frame: Frame) -> Value | ViewName | None:
        definition, e = frame.definition, frame.call
        before = (self.call_spans, self.fully_text)
        self.note_call(definition)
        self.calls.append(definition)
        self.call_spans = (*self.call_spans, e.span)
        self.fully_text = False
        try:
            if definition.reference is not None:
                self.intrinsic(frame)
                return None
            with self.scoped(frame.scope):
                return self.body_of(frame)
        finally:
            self.calls.pop()
            self.call_spans, self.fully_text = before

    def body_of(self, frame: Frame) -> Value | ViewName | None:
        definition = frame.definition
        result = returned(definition)
        body = definition.body.body
        if body and isinstance(body[-1], syntax.Return):
            body = body[:-1]
        failed = len(self.diagnostics)
        self.statements(syntax.Block(body=body, span=definition.body.span))
        if len(self.diagnostics) > failed and result is not None:
            raise RefusedError()
        if result is None:
            return None
        if isinstance(result, syntax.Name | syntax.View):
            view = self.returned_view(result)
            if view is not None:
                self.check_result(frame, view, result.span)
                return view
        value = self.value(result)
        if definition.result is not None:
            dtype = self.element_type(definition.result)
            expr = stored(value, dtype, result.span, f"the result of `{definition.name}`")
            value = Typed(expr=expr, narrow=dtype if dtype in WRAPPING else None)
        if is_pure(definition) or isinstance(value, Untyped):
            return value
        draft = self.local(definition.name, value.dtype, (), result.span)
        self.bind(draft.name, (), value.expr, result.span, self.attrs)
        read = ast.Read(buffer=draft.name, subscripts=(), dtype=value.dtype, span=result.span)
        return Typed(expr=read, narrow=value.narrow)

    def returned_view(self, result: syntax.Name | syntax.View) -> ViewName | None:
        """The view that a function returns, or None for one element or a value."""
        if isinstance(result, syntax.Name):
            entity = self.lookup(result.name, result.span)
            return entity if isinstance(entity, ViewName) and entity.rank else None
        if any(isinstance(s, syntax.Slice) for s in result.subscripts):
            return self.view(result)
        return None

    def check_result(self, frame: Frame, view: ViewName, span: Span) -> None:
        declared = frame.definition.result
        if declared is None:
            return
        dtype, found = self.element_type(declared), self.type_of(view.buffer, span)
        if dtype != found:
            raise refuse("E0204", f"the result of `{frame.call.name}` is {dtype}, this view is {found}", span)
        shape = declared.shape or ()
        if len(shape) != view.rank:
            raise refuse(
                "E0207",
                f"the result of `{frame.call.name}` has {_dims(len(shape))}, this view {_dims(view.rank)}",
                span,
            )
        for expr, actual in zip(shape, view.shape, strict=True):
            self.same_extent(self.index(expr, "the shape"), actual, span)

    def intrinsic(self, frame: Frame) -> None:
        """Both bodies of a function with a `reference`, inlined side by side."""
        definition = frame.definition
        reference = definition.reference
        assert reference is not None, "the caller looked"
        bodies: list[tuple[ast.Stmt, ...]] = []
        for block in (reference, definition.body):
            with self.scoped(Scope(frame.scope)), self.collecting() as body:
                self.statements(block)
            bodies.append(tuple(body))
        attrs = self.fn_attributes(definition)
        if self.fully_depth and any(isinstance(s, ast.Par) and s.fully for s in bodies[1]):
            attrs = (*attrs, Attr(name="collective", span=frame.call.span))
        self.emit(
            ast.Intrinsic(
                name=definition.name, reference=bodies[0], hardware=bodies[1], attrs=attrs, span=frame.call.span,
                call_spans=self.call_spans[:-1],
            )
        )  # fmt: skip

    @abstractmethod
    def fn_attributes(self, definition: syntax.FnDef) -> tuple[Attr, ...]:
        """The attributes of a `fn`."""


def _is_simple(e: ast.Expr) -> bool:
    """Whether evaluating it twice costs no more than a load: a read, or a conversion of one."""
    return isinstance(e, ast.Read) or (isinstance(e, ast.Cast) and isinstance(e.operand, ast.Read | ast.IndexValue))


def _dims(count: int) -> str:
    return "no dimensions" if count == 0 else f"{count} dimension{'s' * (count != 1)}"


def signature(definition: syntax.FnDef) -> str:
    """The head of a function as the author wrote it, for a help line."""
    names = ", ".join(p.name for p in definition.params)
    return f"it is {definition.name}({names})"
