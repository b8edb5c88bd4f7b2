"""Python statements of a decorated function's body → statements of the surface tree.

`x = e` is `let` at the first assignment of a new name, and a bind where the name comes from `new`, `reg` or a
parameter. `with atomic:` and `with attr("#…"):` reach every assignment in their blocks.
"""

import ast
from dataclasses import replace

from texpr.grammar import syntax
from texpr.grammar.diagnostics import Label, error
from texpr.grammar.python.comments import block_end
from texpr.grammar.python.context import FOREIGN_HELP, Binding, Context
from texpr.grammar.python.expr import declare_indices, expression, loop_head, view
from texpr.grammar.python.names import LOOPS, FnObject, LibraryPath, Unknown, Word
from texpr.grammar.python.types import extent_of, integer_type, is_type, type_of
from texpr.grammar.source import Span

MEMORIES = ("reg", "shared", "global")
OPERANDS = {"in_": "in", "out": "out", "inout": "inout", "clobber": "clobber"}
AUGMENTED: dict[type[ast.operator], str] = {ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*="}

REFUSED: dict[str, tuple[str, str]] = {
    "While": ("`while`", 'write a loop with an extent: for t in seq("T")'),
    "Try": ("`try`", "a kernel has no exceptions"),
    "TryStar": ("`try`", "a kernel has no exceptions"),
    "Raise": ("`raise`", "a kernel has no exceptions"),
    "Assert": ("`assert`", 'state facts about sizes: @texpr.kernel(where="N % 8 == 0")'),
    "FunctionDef": ("a nested function", "write it outside, under @texpr.fn, and call it"),
    "AsyncFunctionDef": ("a nested function", "write it outside, under @texpr.fn, and call it"),
    "ClassDef": ("a class", "write it outside the kernel"),
    "Delete": ("`del`", "a buffer from new(…) lives to the end of its block"),
    "Global": ("`global`", "pass a buffer as a parameter"),
    "Nonlocal": ("`nonlocal`", "pass a buffer as a parameter"),
    "Import": ("`import`", "import at the top of the file"),
    "ImportFrom": ("`import`", "import at the top of the file"),
    "Break": ("`break`", "restrict the work of an iteration with `if`"),
    "Continue": ("`continue`", "restrict the work of an iteration with `if`"),
    "Match": ("`match`", "write if, elif and else"),
    "AnnAssign": ("an annotated assignment", "write x = new(f32), x = reg(f32[4], e), or a cast x = f32(e)"),
    "AsyncFor": ("`async for`", 'write for i in par("N")'),
    "AsyncWith": ("`async with`", "write with atomic: or with attr(…):"),
    "TypeAlias": ("a type alias", "write it outside the kernel"),
}


def read_body(ctx: Context) -> syntax.Block:
    """The function's body, without its docstring."""
    statements = ctx.found.definition.body
    first = statements[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        statements = statements[1:]
    if not statements:
        return syntax.Block(body=(), span=ctx.span(first))
    start = ctx.span(first).end if first is not statements[0] else ctx.found.name_span().end
    return block(ctx, statements, start)


def block(ctx: Context, statements: list[ast.stmt], start: int) -> syntax.Block:
    """The statements of a block whose head ends at the offset `start`, with their comments."""
    ctx.scopes.append({})
    found: list[syntax.Stmt] = []
    placed: list[syntax.Stmt] = []  # the same, from the start of a `with` to the end of a block
    for statement in statements:
        parts = attributed(ctx, statement)
        found += parts
        for number, part in enumerate(parts):
            first = ctx.span(statement).start if number == 0 else part.span.start
            last = max(ctx.block_stop, part.span.end) if number == len(parts) - 1 else part.span.end
            placed.append(replace(part, span=Span(part.span.source, first, last)))
    ctx.scopes.pop()
    ctx.block_stop = block_end(ctx.found, statements)
    commented, dangling = ctx.comments.attach(placed, start, ctx.block_stop)
    body = tuple(replace(part, trivia=at.trivia) for part, at in zip(found, commented, strict=True))
    span = ctx.span(statements[0]).to(ctx.span(statements[-1]))
    return syntax.Block(body=body, dangling=dangling, span=span)


def attributed(ctx: Context, node: ast.stmt) -> tuple[syntax.Stmt, ...]:
    """`read_statement`, refused where it stands under `with attr` and could not carry the attributes."""
    found = read_statement(ctx, node)
    if isinstance(node, ast.With):  # its own block has been looked at
        return found
    for part in found:
        if ctx.attrs and not isinstance(part, syntax.Assign | syntax.Atomic | syntax.Par | syntax.Seq | syntax.If):
            ctx.refuse("E0105", "only an assignment carries attributes", node, "write it outside the `with attr`")
    return found


def read_statement(ctx: Context, node: ast.stmt) -> tuple[syntax.Stmt, ...]:
    """The statements that one Python statement stands for; none after an error."""
    if ctx.atomic and not isinstance(node, ast.Assign | ast.AugAssign | ast.With | ast.Pass):
        ctx.refuse("E0105", "only an update stands under `with atomic`", node, "write with atomic: H[b] += 1")
        return ()
    match node:
        case ast.Pass():
            return ()
        case ast.For():
            return _for(ctx, node)
        case ast.If():
            return (_if(ctx, node),)
        case ast.With():
            return _with(ctx, node)
        case ast.Assign():
            return _assign(ctx, node)
        case ast.AugAssign():
            return _augmented(ctx, node)
        case ast.Return():
            return _return(ctx, node)
        case ast.Expr():
            return _expression_statement(ctx, node)
        case _:
            what, help = REFUSED.get(type(node).__name__, ("this statement", FOREIGN_HELP))
            ctx.refuse("E0105", f"{what} has no meaning in TExpr", node, help)
            if isinstance(node, ast.While):
                block(ctx, node.body, ctx.span(node.test).end)
            return ()


# ---- blocks ----------------------------------------------------------------------------------------------------------


def _for(ctx: Context, node: ast.For) -> tuple[syntax.Stmt, ...]:
    head = loop_head(ctx, node.target, node.iter, LOOPS)
    ctx.scopes.append({})
    declare_indices(ctx, head)
    if not head.dims and isinstance(node.target, ast.Name):
        # The head was an error: the index is known all the same, so that the body is not blamed for it.
        ctx.scopes[-1][node.target.id] = Binding("index", True, ctx.span(node.target))
    body = block(ctx, node.body, ctx.span(node.iter).end)
    ctx.scopes.pop()
    if node.orelse:
        ctx.refuse("E0105", "`else` of a loop has no meaning in TExpr", node.orelse[0], "write it after the loop")
        block(ctx, node.orelse, ctx.span(node.body[-1]).end)
    span = ctx.span(node)
    if not head.dims:
        return ()
    if head.word == "seq":
        return (syntax.Seq(dims=head.dims, attrs=head.attrs, body=body, span=span),)
    fully = head.word == "fully_par"
    return (syntax.Par(dims=head.dims, attrs=head.attrs, body=body, fully=fully, span=span),)


def _if(ctx: Context, node: ast.If) -> syntax.If:
    condition = expression(ctx, node.test)
    then = block(ctx, node.body, condition.span.end)
    orelse: syntax.Block | syntax.If | None = None
    if node.orelse:
        inner = node.orelse[0]
        # `elif` stands where its `if` stands; `else:` with an `if` in it stands further right.
        if len(node.orelse) == 1 and isinstance(inner, ast.If) and inner.col_offset == node.col_offset:
            orelse = _if(ctx, inner)
        else:
            orelse = block(ctx, node.orelse, block_end(ctx.found, node.body))
    return syntax.If(condition=condition, then=then, orelse=orelse, span=ctx.span(node))


def _with(ctx: Context, node: ast.With) -> tuple[syntax.Stmt, ...]:
    outer = ctx.atomic, ctx.attrs
    for item in node.items:
        call = item.context_expr
        if item.optional_vars is not None:
            ctx.refuse("E0105", "`as` has no meaning in TExpr", item.optional_vars, "write with atomic:")
        if ctx.is_word(call, "atomic"):
            ctx.atomic = True
        elif isinstance(call, ast.Call) and ctx.is_word(call.func, "attr") and call.args and not call.keywords:
            ctx.attrs += tuple(a for argument in call.args for a in ctx.attributes(argument))
        else:
            ctx.refuse("E0105", "this `with` has no meaning in TExpr", call,
                        'write with atomic: or with attr("#tf32"):')  # fmt: skip
    before = ctx.assignments
    found = tuple(part for statement in node.body for part in attributed(ctx, statement))
    if ctx.assignments == before:
        ctx.refuse("E0105", "no assignment stands in this block", node, "atomic and attr belong to assignments")
    ctx.atomic, ctx.attrs = outer
    return found


# ---- assignments -----------------------------------------------------------------------------------------------------


def _assign(ctx: Context, node: ast.Assign) -> tuple[syntax.Stmt, ...]:
    if len(node.targets) != 1:
        ctx.refuse("E0105", "a chained assignment has no meaning in TExpr", node, "write one for each name")
        return ()
    target = node.targets[0]
    if isinstance(target, ast.Subscript):
        place: syntax.View | syntax.Name | syntax.Call | None
        if ctx.is_word(target.value, "fragment"):
            parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
            arguments = tuple(expression(ctx, part) for part in parts)
            place = syntax.Call(name="fragment", args=arguments, span=ctx.span(target))
        else:
            viewed = view(ctx, target)
            place = viewed if isinstance(viewed, syntax.View | syntax.Name) else None
        value = expression(ctx, node.value)
        return _bind(ctx, node, place, value) if place is not None else ()
    if not isinstance(target, ast.Name):
        ctx.refuse("E0105", "the left side is one name or one element", target, "write one statement for each")
        expression(ctx, node.value)
        return ()
    return _name_assign(ctx, node, target)


def _name_assign(ctx: Context, node: ast.Assign, target: ast.Name) -> tuple[syntax.Stmt, ...]:
    name, span = target.id, ctx.span(target)
    call = node.value if isinstance(node.value, ast.Call) else None
    if call is not None and ctx.is_word(call.func, "new"):
        return _new(ctx, node, call, name)
    if call is not None and ctx.is_word(call.func, "reg"):
        return _reg(ctx, node, call, name)
    value = expression(ctx, node.value)
    binding = ctx.lookup(name)
    match binding:
        case Binding(kind="buffer"):
            return _bind(ctx, node, syntax.Name(name=name, span=span), value)
        case Binding(kind="index"):
            ctx.diagnostics.append(
                error(
                    "E0209",
                    f"`{name}` is an index and cannot be assigned",
                    span,
                    secondary=(Label(span=binding.span, text="the index"),),
                    help="use another name",
                )
            )
            return ()
        case _ if ctx.atomic:
            ctx.refuse("E0105", "only an update stands under `with atomic`", node, "write with atomic: H[b] += 1")
            return ()
        case _:
            ctx.declare(name, Binding("let", ctx.is_integer(value), span))
            return (syntax.Let(name=name, value=value, span=ctx.span(node)),)


def _bind(
    ctx: Context, node: ast.Assign, target: syntax.View | syntax.Name | syntax.Call, value: syntax.Expr
) -> tuple[syntax.Stmt, ...]:
    ctx.assignments += 1
    span = ctx.span(node)
    if not ctx.atomic:
        return (syntax.Assign(target=target, op="=", value=value, attrs=ctx.attrs, span=span),)
    match value:
        case syntax.Call(name="max" | "min" as op, args=(first, second)) if target in (first, second):
            other = second if first == target else first
            if isinstance(target, syntax.View | syntax.Name) and not isinstance(other, syntax.Slice):
                return (syntax.Atomic(target=target, op=f"{op}=", value=other, attrs=ctx.attrs, span=span),)
    ctx.refuse("E0105", "an atomic update is += -= *= or v = max(v, e)", node, "write with atomic: H[b] += 1")
    return ()


def _augmented(ctx: Context, node: ast.AugAssign) -> tuple[syntax.Stmt, ...]:
    op = AUGMENTED.get(type(node.op))
    target = view(ctx, node.target) if isinstance(node.target, ast.Subscript) else None
    if isinstance(node.target, ast.Name):
        target = syntax.Name(name=node.target.id, span=ctx.span(node.target))
    value = expression(ctx, node.value)
    if op is None:
        ctx.refuse("E0105", "the updates of TExpr are += -= *=", node, "write v = max(v, e), or v = v / e")
        return ()
    if not isinstance(target, syntax.View | syntax.Name):
        if isinstance(node.target, ast.Attribute):
            ctx.refuse("E0105", "the left side is one name or one element", node.target, "write A[i] += e")
        return ()
    ctx.assignments += 1
    kind = syntax.Atomic if ctx.atomic else syntax.Assign
    return (kind(target=target, op=op, value=value, attrs=ctx.attrs, span=ctx.span(node)),)


def _new(ctx: Context, node: ast.Assign, call: ast.Call, name: str) -> tuple[syntax.Stmt, ...]:
    span = ctx.span(node.targets[0])
    if call.keywords or not call.args or ctx.atomic:
        ctx.refuse("E0105", "new takes a type, a memory and attributes", call, 'write new(f32[16], "shared")')
        return ()
    level: str | None = None
    attrs: list[syntax.Attr] = []
    for argument in call.args[1:]:
        if isinstance(argument, ast.Constant) and argument.value in MEMORIES:
            level = str(argument.value)
        elif isinstance(argument, ast.Constant) and "#" not in str(argument.value):
            if isinstance(argument.value, str) and ctx.lacks_hash(argument.value, argument):
                continue
            ctx.refuse("E0105", "a memory is reg, shared or global", argument, 'write new(f32[16], "shared")')
        else:
            attrs += ctx.attributes(argument)
    first = call.args[0]
    if not is_type(ctx, first):
        extent = extent_of(ctx, first)
        ctx.declare(name, Binding("buffer", False, span))
        return (syntax.New(level=level, name=name, flat_extent=extent, attrs=tuple(attrs), span=ctx.span(node)),)
    found = type_of(ctx, first)
    ctx.declare(name, Binding("buffer", integer_type(found.type), span))
    attributes = (*found.attrs, *attrs)
    return (syntax.New(level=level, name=name, type=found.type, attrs=attributes, span=ctx.span(node)),)


def _reg(ctx: Context, node: ast.Assign, call: ast.Call, name: str) -> tuple[syntax.Stmt, ...]:
    span = ctx.span(node.targets[0])
    if call.keywords or len(call.args) not in (1, 2) or ctx.atomic:
        ctx.refuse("E0105", "reg takes a type and a value", call, "write reg(f16[8], e)")
        return ()
    of_type: syntax.TypeExpr | None = None
    if len(call.args) == 2:
        found = type_of(ctx, call.args[0])
        of_type = found.type
        if found.attrs:
            ctx.refuse("E0105", "reg takes no attributes", call.args[0], 'write new(f16[8], "reg", "#align(16)")')
    value = expression(ctx, call.args[-1])
    integer = integer_type(of_type) if of_type is not None else ctx.is_integer(value)
    ctx.declare(name, Binding("buffer", integer, span))
    return (syntax.Reg(name=name, type=of_type, value=value, span=ctx.span(node)),)


# ---- calls and return ------------------------------------------------------------------------------------------------


def _return(ctx: Context, node: ast.Return) -> tuple[syntax.Stmt, ...]:
    value = expression(ctx, node.value) if node.value is not None else None
    if ctx.kind == "kernel":
        ctx.refuse("E0212", "a kernel returns nothing", node, "write the result into a parameter")
        return ()
    return (syntax.Return(value=value, span=ctx.span(node)),)


def _expression_statement(ctx: Context, node: ast.Expr) -> tuple[syntax.Stmt, ...]:
    call, span = node.value, ctx.span(node)
    if isinstance(call, ast.Call):
        found = ctx.meaning(call.func)
        match found:
            case (_, Word("anchor")) if len(call.args) == 1 and not call.keywords:
                return (syntax.Anchor(value=expression(ctx, call.args[0]), span=span),)
            case (_, Word("asm")):
                return _asm(ctx, call, node)
            case (_, FnObject() | LibraryPath() | Unknown()):
                value = expression(ctx, call)
                return (syntax.CallStmt(call=value, span=span),) if isinstance(value, syntax.Call) else ()
    errors = len(ctx.diagnostics)
    if not isinstance(call, ast.Constant):
        expression(ctx, call)
    if len(ctx.diagnostics) == errors:
        ctx.refuse("E0105", "the value of this expression is not used", node, "assign it, or write anchor(e)")
    return ()


def _asm(ctx: Context, call: ast.Call, node: ast.Expr) -> tuple[syntax.Stmt, ...]:
    text = call.args[0] if len(call.args) == 1 else None
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        ctx.refuse("E0105", "asm takes one string, and operands by keyword", call,
                    'write asm("…", inout=(rc,), in_=(ra, rb))')  # fmt: skip
        return ()
    operands: list[syntax.AsmOperand] = []
    for keyword in call.keywords:
        label = OPERANDS.get(keyword.arg or "")
        if label is None:
            ctx.refuse("E0105", "an operand of asm is in_, out, inout or clobber", keyword.value, "write in_=(a,)")
            continue
        values = keyword.value.elts if isinstance(keyword.value, ast.Tuple | ast.List) else [keyword.value]
        for value in values:
            operand = _operand(ctx, value, label)
            operands.append(syntax.AsmOperand(label=label, value=operand, span=ctx.span(value)))
    literal = syntax.StringLit(text=_escaped(text.value), span=ctx.span(text))
    return (syntax.Asm(text=literal, operands=tuple(operands), span=ctx.span(node)),)


def _operand(ctx: Context, value: ast.expr, label: str) -> syntax.Expr:
    if label == "clobber" and isinstance(value, ast.Constant) and isinstance(value.value, str):
        return syntax.StringLit(text=_escaped(value.value), span=ctx.span(value))
    return expression(ctx, value)


def _escaped(text: str) -> str:
    """A string's value as it stands between the quotes of a TExpr string."""
    table = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(table.get(character, character) for character in text)
