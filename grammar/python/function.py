"""The Python front end: a decorated function → the surface tree. The body is parsed, never run.

A Python function's `for i in par("N")` is `par N i { … }`, and so on through docs/language.md's table "From Python".
What the tree holds is what the text front end makes of the corresponding text, but for spans, which point into the
Python file. Decisions that the table leaves open:

- A bare name is, in this order: an index, `let` or buffer of the body; a size that the annotations name; a number of
  the enclosing scope, put in as a literal; a word of `texpr.language`; and else a size, for the checker to judge.
- A string is TExpr text: names in it are sizes and indices, never Python's.
- `/` is TExpr's division (it floors on integers); `//` is the same one, and an error unless both operands are known
  to be integers. `%` floors. `**`, `&`, `|`, `^`, `<<`, `>>` are pow, bitand, bitor, bitxor, shl, shr.
- `A[i:16]` is start : extent, as in TExpr. `fragment[c, table.c, lane] = r` is `fragment(c, table.c, lane) = r`.
- Comments are trivia as in a text; the docstring leads the kernel or fn.

A function that `texpr.fn` decorated is known by the attribute `__texpr_fn__`, which holds the plain Python function;
`__texpr_reference__`, where it has one, holds the function whose body is the `reference`, with the same parameters.
"""

import ast
from dataclasses import replace
from typing import Literal

from texpr.grammar import syntax
from texpr.grammar.diagnostics import Diagnostic, TExprError, fail, first
from texpr.grammar.python.comments import docstring_trivia
from texpr.grammar.python.context import Context
from texpr.grammar.python.embedded import read_conditions
from texpr.grammar.python.names import FnObject, is_identifier
from texpr.grammar.python.source import FunctionSource, read_function_source
from texpr.grammar.python.stmt import read_body
from texpr.grammar.python.types import annotation, read_parameters, read_sizes
from texpr.grammar.records import dataclass
from texpr.grammar.source import Span
from texpr.grammar.text.limits import MAX_DIAGNOSTICS
from texpr.grammar.words import RESERVED

Kind = Literal["kernel", "fn"]
MAX_FUNCTIONS = 1000


@dataclass(frozen=True, slots=True)
class _Read:
    """One function's definition, the imports that it needs, and the `fn` objects that it calls."""

    item: syntax.KernelDef | syntax.FnDef
    imports: tuple[tuple[tuple[str, ...], Span], ...]
    callees: tuple[FnObject, ...]


@dataclass(frozen=True, slots=True)
class _Task:
    """One function to be read, and how."""

    function: object
    kind: Kind = "fn"
    attrs: tuple[str, ...] = ()
    where: str | None = None
    reference: object = None


def parse_function(
    function: object,
    *,
    kind: Kind = "kernel",
    attrs: tuple[str, ...] = (),
    where: str | None = None,
    reference: object = None,
) -> syntax.Module:
    """The module of a Python function: the imports and `fn`s that it needs (callees before callers), then itself.

    `attrs` are strings such as `"#persistent"`, `where` is conditions on sizes separated by commas, `reference` the
    function that gives a hardware `fn` its meaning. Raises TExprError with the findings of all functions, at most
    MAX_DIAGNOSTICS: E0105 outside the language, E0106 source not available, E0103 too large, and the text parser's
    own for strings.
    """
    try:
        return _parse(_Task(function, kind, attrs, where, reference))
    except RecursionError:
        name = getattr(function, "__name__", "the function")
        raise fail("E0103", f"`{name}` is nested too deeply to be read on the stack that is left") from None


def _parse(task: _Task) -> syntax.Module:
    diagnostics: list[Diagnostic] = []
    read: dict[int, _Read] = {}
    order: list[int] = []
    # Depth first without recursion: a function is put into `order` when all that it calls are there.
    stack: list[tuple[_Task, bool]] = [(task, False)]
    while stack:
        current, finished = stack.pop()
        key = id(current.function)
        if finished:
            order.append(key)
            continue
        if key in read:
            continue
        if len(read) >= MAX_FUNCTIONS:
            raise fail("E0103", f"more than {MAX_FUNCTIONS} functions are called")
        one = _read(current, diagnostics)
        if one is None:
            continue
        read[key] = one
        stack.append((current, True))
        stack += [(_Task(c.function, reference=c.reference), False) for c in reversed(one.callees)]
    if diagnostics:
        raise TExprError(first(diagnostics, MAX_DIAGNOSTICS))
    items = [read[key].item for key in order]
    _refuse_equal_names(items)
    imports = {path: span for key in order for path, span in read[key].imports}
    heads = tuple(syntax.Import(path=path, span=span) for path, span in sorted(imports.items()))
    last = items[-1]
    return syntax.Module(name=last.name, items=(*heads, *items), span=last.span)


def _refuse_equal_names(items: list[syntax.KernelDef | syntax.FnDef]) -> None:
    seen: dict[str, Span] = {}
    for item in items:
        if item.name in seen:
            raise fail("E0202", f"two functions are called `{item.name}`", item.span, help="give one another name")
        seen[item.name] = item.span


def _read(task: _Task, diagnostics: list[Diagnostic]) -> _Read | None:
    """One function's definition; None where its diagnostics say why not."""
    try:
        found = read_function_source(task.function)
    except TExprError as failure:
        diagnostics += failure.diagnostics
        return None
    definition, name_span = found.definition, found.name_span()
    ctx = Context(found, task.kind)
    if not is_identifier(definition.name):
        what = "is a reserved word of TExpr" if definition.name in RESERVED else "is not an ASCII identifier"
        ctx.refuse("E0105", f"`{definition.name}` {what}", name_span, "choose another name")
    for decorator in definition.decorator_list[1:]:
        ctx.refuse("E0105", "only one decorator stands on a kernel or a fn", decorator, "remove the others")
    params = read_parameters(ctx)
    sizes = read_sizes(ctx)
    if sizes and task.kind == "fn":
        ctx.refuse("E0105", "a fn has no sizes of its own", sizes[0].span, "its sizes are those of the shapes")
    strings = _decorator_strings(found)
    attrs = tuple(a for text in task.attrs for a in ctx.attribute_text(text, strings.get(text, name_span)))
    where: tuple[syntax.Expr, ...] = ()
    if task.where is not None and task.kind == "kernel":
        try:
            where = read_conditions(task.where, strings.get(task.where, name_span))
        except TExprError as failure:
            ctx.diagnostics += failure.diagnostics
    elif task.where is not None:
        ctx.refuse("E0105", "a fn has no `where`", name_span, "state it on the kernel")
    result = _result(ctx, task.kind)
    body = read_body(ctx)
    body = replace(body, body=(*sizes, *body.body))
    diagnostics += sorted(ctx.diagnostics, key=_position)
    callees, imports = dict(ctx.callees), dict(ctx.imports)
    name, span, trivia = definition.name, found.span(definition), docstring_trivia(found)
    item: syntax.KernelDef | syntax.FnDef
    if task.kind == "kernel":
        item = syntax.KernelDef(name=name, params=params, where=where, attrs=attrs, body=body, span=span, trivia=trivia)
    else:
        reference: syntax.Block | None = None
        if task.reference is not None:
            meaning = _reference(task.reference, params, result, diagnostics)
            if meaning is not None:
                inner, reference = meaning
                callees |= inner.callees
                imports |= inner.imports
        item = syntax.FnDef(
            name=name,
            params=params,
            result=result,
            attrs=attrs,
            reference=reference,
            body=body,
            span=span,
            trivia=trivia,
        )
    return _Read(item, tuple(imports.items()), tuple(callees.values()))


def _reference(
    function: object,
    params: tuple[syntax.Param, ...],
    result: syntax.TypeExpr | None,
    diagnostics: list[Diagnostic],
) -> tuple[Context, syntax.Block] | None:
    """The body that gives a hardware `fn` its meaning; None where its diagnostics say why not."""
    try:
        found = read_function_source(function)
    except TExprError as failure:
        diagnostics += failure.diagnostics
        return None
    ctx = Context(found, "fn")
    if (read_parameters(ctx), _result(ctx, "fn")) != (params, result):
        message = "a reference has the parameters and the result of its fn"
        ctx.refuse("E0207", message, found.name_span(), "give both the same names and annotations")
    body = read_body(ctx)
    diagnostics += sorted(ctx.diagnostics, key=_position)
    return ctx, body


def _decorator_strings(found: FunctionSource) -> dict[str, Span]:
    """Where the strings of the function's decorator stand."""
    return {
        node.value: found.span(node)
        for decorator in found.definition.decorator_list[:1]
        if isinstance(decorator, ast.Call)
        for node in (*decorator.args, *(keyword.value for keyword in decorator.keywords))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _result(ctx: Context, kind: Kind) -> syntax.TypeExpr | None:
    """The type after `->`: of a fn its result; `None`, or nothing, means none."""
    node = ctx.found.definition.returns
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return None
    if kind == "kernel":
        ctx.refuse("E0212", "a kernel returns nothing", node, "write the result into a parameter")
        return None
    try:
        evaluated = ctx.found.function.__annotations__.get("return")
    except Exception:  # as for parameters: evaluating an annotation may raise anything
        evaluated = None
    found = annotation(ctx, node, evaluated)
    if found.direction is not None or found.attrs:
        ctx.refuse("E0105", "a result has neither direction nor attributes", node, "write -> f32")
    return found.type


def _position(diagnostic: Diagnostic) -> int:
    return diagnostic.primary.span.start if diagnostic.primary is not None else 0
