"""Reading a kernel: parameters, sizes, facts, the body, and the core tree with its statements numbered."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from texpr.grammar import ast, syntax
from texpr.grammar.ast import IndexConst, IndexExpr, Role
from texpr.grammar.attributes import Construct, check_attributes
from texpr.grammar.check.buffers import element_type, place_elements, settled, shape
from texpr.grammar.check.calls import read_call
from texpr.grammar.check.context import BufferDraft, Context, Given, Readers, whole
from texpr.grammar.check.flat import infer_lengths
from texpr.grammar.check.functions import returned
from texpr.grammar.check.indices import expressions, index, try_condition, try_index
from texpr.grammar.check.loops import attributes
from texpr.grammar.check.scope import Binding, FnName, IndexName, Poison, Scope, TypeName
from texpr.grammar.check.sizes import FreeNames
from texpr.grammar.check.statements import read_statement, statements
from texpr.grammar.check.values import read_value
from texpr.grammar.check.views import array_of
from texpr.grammar.diagnostics import Diagnostic, Label, error
from texpr.grammar.index.expr import index_names
from texpr.grammar.refusals import LimitError, RefusedError, refuse
from texpr.grammar.source import Span
from texpr.grammar.surface import name_place
from texpr.grammar.types import ELEMENT_TYPES, F32
from texpr.grammar.walk import rewrite

Item = TypeVar("Item")
READERS = Readers(value=read_value, statement=read_statement, call=read_call)


def context(scope: Scope, diagnostics: list[Diagnostic], given: Given) -> Context:
    """The state before anything of a kernel is read; its findings go to `diagnostics`."""
    return Context(scope, diagnostics, given, READERS)


def guarded(ctx: Context, read: Callable[[Context, Item], None], part: Item) -> None:
    """Read a part of the head; a refusal is reported and the rest goes on. LimitError ends the kernel."""
    try:
        read(ctx, part)
    except LimitError:
        raise
    except RefusedError as refused:
        ctx.report(refused)
        if isinstance(part, syntax.Param) and ctx.scope.lookup(part.name) is None:
            ctx.define(part.name, Poison(), part.span)


# ---- a declared kernel -----------------------------------------------------------------------------------------


def read_kernel(ctx: Context, definition: syntax.KernelDef) -> ast.Kernel:
    """The core of a declared kernel."""
    with ctx.inner():
        _enter_free_sizes(ctx, definition)
        for s in definition.body.body:
            if isinstance(s, syntax.SizeDef):
                guarded(ctx, _constant, s)
        ctx.kernel_attrs = attributes(ctx, definition.attrs, Construct.KERNEL)
        for parameter in definition.params:
            guarded(ctx, _parameter, parameter)
        for condition in definition.where:
            guarded(ctx, _fact, condition)
        rest = tuple(s for s in definition.body.body if not isinstance(s, syntax.SizeDef))
        body = _body(ctx, rest)
    return _finished(ctx, definition.name, body, definition.span)


def _body(ctx: Context, body: tuple[syntax.Stmt, ...]) -> tuple[ast.Stmt, ...]:
    with ctx.inner() as core:
        ctx.stack.run(statements(ctx, body))
    return tuple(core)


def _enter_free_sizes(ctx: Context, definition: syntax.KernelDef) -> None:
    """Enter the free names of shapes and extents as sizes; E0202 for a parameter that is one too."""
    known = ctx.scope.known()
    shapes = FreeNames(known, bare=False)
    shapes.read_extents(e for p in definition.params for e in p.type.shape or ())
    own = {p.name for p in definition.params} | {s.name for s in definition.body.body if isinstance(s, syntax.SizeDef)}
    free = FreeNames(known | own, bare=False)
    for parameter in definition.params:
        free.read_extents(parameter.type.shape or ())
        free.read_attributes(parameter.attrs)
    free.read_block(definition.body.body)
    _enter_sizes(ctx, free.sizes)
    for parameter in definition.params:
        if parameter.name in shapes.sizes:
            place = name_place(parameter, parameter.name)
            what = "a scalar" if parameter.type.shape is None else "a buffer"
            _two_things(ctx, parameter.name, shapes.sizes[parameter.name], place, what)


def _two_things(ctx: Context, name: str, size: Span, other: Span, what: str) -> None:
    """E0202 for one name as a size and something else; its uses are silent."""
    clash = Label(span=other, text=f"{what} here")
    message = f"`{name}` is a size and {what}"
    found = error("E0202", message, size, "a size here", secondary=(clash,), help="use two names")
    ctx.report(RefusedError(found))
    ctx.scope.names[name] = Binding(entity=Poison(), span=size)


def _enter_sizes(ctx: Context, names: Mapping[str, Span]) -> None:
    for name, span in names.items():
        ctx.taken.add(name)
        default = ctx.given.sizes.get(name)
        if default is not None:
            ctx.given.used.add(name)
        ctx.sizes[name] = ast.Size(name=name, default=default, span=span)
        ctx.define(name, IndexName(index=ast.SizeVar(name=name, span=span), what="a size"), span)


def _constant(ctx: Context, s: syntax.SizeDef) -> None:
    """`size NAME = …` at kernel level, or `size NAME`: a size that is given from outside."""
    ctx.taken.add(s.name)
    if s.value is None:
        _enter_sizes(ctx, {s.name: name_place(s, s.name)})
        return
    value = index(ctx, s.value, "a `size`")
    if index_names(value):
        raise refuse("E0206", "a `size` is built from integers and sizes", s.value.span)
    given = ctx.given.sizes.get(s.name)
    if given is not None:
        ctx.given.used.add(s.name)
    default = value.value if given is None and isinstance(value, IndexConst) else given
    if default is not None:
        ctx.sizes[s.name] = ast.Size(name=s.name, default=default, span=s.span)
        value = ast.SizeVar(name=s.name, span=s.span)
    ctx.define(s.name, IndexName(index=value, what="a size"), name_place(s, s.name))


def _parameter(ctx: Context, p: syntax.Param) -> None:
    """A parameter of a kernel as a buffer."""
    dtype, extents = element_type(ctx, p.type), shape(ctx, p.type)
    is_scalar = p.type.shape is None
    if is_scalar and p.direction in ("out", "inout"):
        raise refuse(
            "E0209", f"the scalar parameter `{p.name}` cannot be `{p.direction}`", p.span,
            help=f"write {p.direction} {p.name}: {dtype}[], a buffer of rank 0",
        )  # fmt: skip
    draft = BufferDraft(
        name=p.name,
        dtype=dtype,
        shape=extents,
        role=Role.SCALAR if is_scalar else Role.PARAM,
        direction="in" if is_scalar else p.direction,
        source_name=p.name,
        span=p.span,
    )
    if not is_scalar and not extents:
        draft.align = dtype.size_bytes  # so that a call takes an element of an array
    ctx.taken.add(p.name)
    ctx.buffers[p.name] = draft
    ctx.define(p.name, whole(draft, "a scalar parameter" if is_scalar else None), name_place(p, p.name))
    rank = None if is_scalar else len(extents)
    attrs = check_attributes(p.attrs, Construct.PARAMETER, lambda e: index(ctx, e, "an argument"), rank=rank)
    if is_scalar and attrs:
        raise refuse("E0205", f"`#{attrs[0].name}` has no meaning on a scalar", attrs[0].span)
    place_elements(draft, attrs)


def _fact(ctx: Context, e: syntax.Expr) -> None:
    """A condition of `where`: over sizes only."""
    condition = try_condition(ctx, e)
    if condition is None:
        for node in expressions(e):
            if isinstance(node, syntax.Name):
                ctx.lookup(node.name, node.span)
        raise refuse("E0206", "a `where` is a comparison of integers and sizes", e.span, help="for example N % 8 == 0")
    ctx.facts += condition.parts if isinstance(condition, ast.And) else (condition,)


# ---- a bare program --------------------------------------------------------------------------------------------


def read_bare(ctx: Context, name: str, body: tuple[syntax.Stmt, ...], span: Span) -> ast.Kernel:
    """The core of a file of statements: undeclared views are flat buffers."""
    free = FreeNames(ctx.scope.known(), bare=True)
    free.read_block(body)
    with ctx.inner():
        for view in free.views.items():
            guarded(ctx, _flat_buffer, view)
        for size, place in free.sizes.items():
            if size in free.views:
                _two_things(ctx, size, place, free.views[size], "a buffer")
        _enter_sizes(ctx, {n: s for n, s in free.sizes.items() if n not in free.views})
        core = _body(ctx, body)
    if not any(d.severity.value == "error" for d in ctx.diagnostics):
        guarded(ctx, _settle_lengths, core)
    return _finished(ctx, name, core, span, bare=True)


def _flat_buffer(ctx: Context, view: tuple[str, Span]) -> None:
    name, span = view
    spelt = ctx.given.types.get(name, "f32")
    if name in ctx.given.types:
        ctx.given.used.add(name)
    dtype = ELEMENT_TYPES.get(spelt)
    if dtype is None:
        raise refuse(
            "E0211", f"`{spelt}` is not an element type, it was given for {name}", span,
            help="the types are " + ", ".join(ELEMENT_TYPES),
        )  # fmt: skip
    unknown = (IndexConst(value=0),)
    draft = BufferDraft(name=name, dtype=dtype, shape=unknown, role=Role.PARAM, flat=True, source_name=name, span=span)
    ctx.taken.add(name)
    ctx.buffers[name] = draft
    ctx.define(name, whole(draft), span)


def _settle_lengths(ctx: Context, body: tuple[ast.Stmt, ...]) -> None:
    flat = frozenset(name for name, draft in ctx.buffers.items() if draft.flat)
    for name, length in infer_lengths(body, flat).items():
        ctx.buffers[name].shape = (length,)


# ---- a function that nothing calls -----------------------------------------------------------------------------


def read_alone(ctx: Context, function: FnName) -> None:
    """Read a `fn` as if it were a kernel, for the names in it: f32 for type parameters."""
    definition = function.definition
    names: dict[str, Span] = {}
    for p in definition.params:
        for e in p.type.shape or ():
            if isinstance(e, syntax.Name) and ctx.scope.lookup(e.name) is None:
                names.setdefault(e.name, e.span)
    with ctx.inner(), ctx.within(calls=(definition,)):
        _enter_sizes(ctx, names)
        for p in definition.params:
            _parameter_alone(ctx, p)
        for block in (definition.body, definition.reference):
            if block is not None:
                with ctx.inner():
                    ctx.stack.run(_body_alone(ctx, block, returned(definition) if block is definition.body else None))


def _parameter_alone(ctx: Context, p: syntax.Param) -> None:
    if p.type.element not in ELEMENT_TYPES and ctx.scope.lookup(p.type.element) is None:
        ctx.define(p.type.element, TypeName(dtype=F32), p.type.span)
    extents: list[IndexExpr] = []
    for e in p.type.shape or ():
        extent = try_index(ctx, e)
        extents.append(extent if extent is not None else IndexConst(value=1))
    dtype = ELEMENT_TYPES.get(p.type.element, F32)
    draft = BufferDraft(
        name=ctx.fresh(p.name), dtype=dtype, shape=tuple(extents), role=Role.LOCAL, source_name=p.name
    )  # fmt: skip
    ctx.buffers[draft.name] = draft
    frozen = None if p.direction in ("out", "inout") else "an `in` parameter"
    ctx.define(p.name, whole(draft, frozen), name_place(p, p.name))


async def _body_alone(ctx: Context, block: syntax.Block, result: syntax.Expr | None) -> None:
    await statements(ctx, tuple(s for s in block.body if not isinstance(s, syntax.Return)))
    if result is not None and await array_of(ctx, result) is None:
        await ctx.value(result)


# ---- the core tree ---------------------------------------------------------------------------------------------


def _finished(ctx: Context, name: str, body: tuple[ast.Stmt, ...], span: Span, *, bare: bool = False) -> ast.Kernel:
    """The kernel: leaf statements are numbered S0, S1, … and locals listed in the order of the text."""
    for constant, value in ctx.given.constants.items():
        if constant in ctx.given.sizes and constant not in ctx.sizes:
            ctx.sizes[constant] = ast.Size(name=constant, default=value)
    order = [n for n, draft in ctx.buffers.items() if draft.role is not Role.LOCAL]
    leaves = 0

    def settle(s: ast.Node) -> ast.Node:
        nonlocal leaves
        if isinstance(s, ast.New):
            order.append(s.buffer)
        if not isinstance(s, ast.Leaf | ast.Asm):
            return s
        leaves += 1
        return replace(s, id=f"S{leaves - 1}")

    kernel = ast.Kernel(
        name=name,
        buffers=(),
        sizes=tuple(ctx.sizes.values()),
        facts=tuple(ctx.facts),
        attrs=ctx.kernel_attrs,
        body=body,
        bare=bare,
        span=span,
    )
    blocks = (ast.Kernel, ast.Par, ast.Seq, ast.If, ast.Intrinsic)
    kernel = rewrite(kernel, settle, into=lambda node: isinstance(node, blocks))
    return replace(kernel, buffers=tuple(settled(ctx, ctx.buffers[n]) for n in order))
