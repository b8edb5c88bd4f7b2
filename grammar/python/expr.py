"""Python expressions of a decorated function's body → expressions of the surface tree.

`/` is TExpr's own division: true on floats, floor on integers. `//` is the same floor division, and an error on
operands that are not known to be integers, so that it never means less than in Python. Every unsupported expression
is a diagnostic; a placeholder stands in its place and reading goes on, so that all errors of a function come at once.
"""

import ast
from collections.abc import Sequence

from texpr.grammar import syntax
from texpr.grammar.python.atoms import constant, name_of
from texpr.grammar.python.context import FOREIGN_HELP, NAMED_EXTENTS, Binding, Context, instead_of, is_attribute
from texpr.grammar.python.names import (
    LOOPS,
    REDUCTIONS,
    STATEMENT_WORDS,
    TYPE_WORDS,
    FnObject,
    Foreign,
    LibraryPath,
    TypeObject,
    Unknown,
    Word,
    is_identifier,
)
from texpr.grammar.python.refused import REFUSED, read_before_given
from texpr.grammar.records import dataclass

BINARY: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%"}
CALLED: dict[type[ast.operator], str] = {
    ast.Pow: "pow", ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.BitXor: "bitxor", ast.LShift: "shl",
    ast.RShift: "shr",
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoopHead:
    """`for i, j in par("M", "N", "#tile(8, 8)")`, without its body."""

    word: str
    dims: tuple[syntax.Dim, ...]
    attrs: tuple[syntax.Attr, ...]


# ---- expressions -----------------------------------------------------------------------------------------------------


def expression(ctx: Context, node: ast.expr) -> syntax.Expr:
    """One expression; on an error the diagnostic is kept and a placeholder returned."""
    span = ctx.span(node)
    match node:
        case ast.Constant():
            return constant(ctx, node)
        case ast.Name() | ast.Attribute():
            return name_of(ctx, node)
        case ast.UnaryOp(op=ast.USub()):
            return syntax.Unary(op="-", operand=expression(ctx, node.operand), span=span)
        case ast.UnaryOp(op=ast.UAdd()):
            return expression(ctx, node.operand)
        case ast.UnaryOp(op=ast.Not()):
            return syntax.Unary(op="not", operand=expression(ctx, node.operand), span=span)
        case ast.UnaryOp():
            expression(ctx, node.operand)
            ctx.refuse("E0105", "`~` has no meaning in TExpr", node, "write bitxor(x, -1)")
            return ctx.placeholder(node)
        case ast.BinOp():
            return _binary(ctx, node)
        case ast.BoolOp():
            op = "and" if isinstance(node.op, ast.And) else "or"
            first = expression(ctx, node.values[0])
            for part in (_unsure(ctx, value) for value in node.values[1:]):
                first = syntax.Binary(op=op, left=first, right=part, span=first.span.to(part.span))
            return first
        case ast.Compare():
            return _compare(ctx, node)
        case ast.IfExp():
            parts = (expression(ctx, node.test), _unsure(ctx, node.body), _unsure(ctx, node.orelse))
            return syntax.Call(name="select", args=parts, span=span)
        case ast.Subscript():
            return view(ctx, node)
        case ast.Call():
            return _call(ctx, node)
        case ast.NamedExpr() if ctx.lets is not None:
            value = expression(ctx, node.value)
            name, place = node.target.id, ctx.span(node.target)
            ctx.declare(name, Binding("let", ctx.is_integer(value), place))
            ctx.lets.append(syntax.Let(name=name, value=value, span=span))
            return syntax.Name(name=name, span=place)
        case _:
            what, help = REFUSED.get(type(node), ("this expression", FOREIGN_HELP))
            ctx.refuse("E0105", f"{what} has no meaning in TExpr", node, help)
            return ctx.placeholder(node)


def _unsure(ctx: Context, node: ast.expr) -> syntax.Expr:
    """An expression that is not always evaluated: no `:=` stands in it."""
    before, ctx.lets = ctx.lets, None
    found = expression(ctx, node)
    ctx.lets = before
    return found


def _binary(ctx: Context, node: ast.BinOp) -> syntax.Expr:
    span = ctx.span(node)
    left, right = expression(ctx, node.left), expression(ctx, node.right)
    if type(node.op) in BINARY:
        return syntax.Binary(op=BINARY[type(node.op)], left=left, right=right, span=span)
    if type(node.op) in CALLED:
        return syntax.Call(name=CALLED[type(node.op)], args=(left, right), span=span)
    if isinstance(node.op, ast.FloorDiv):
        if not (ctx.is_integer(left) and ctx.is_integer(right)):
            ctx.refuse("E0105", "`//` divides integers, and an operand is not known to be one", node,
                        "write floor(a / b), or cast: i32(a) // i32(b)")  # fmt: skip
        return syntax.Binary(op="/", left=left, right=right, span=span)
    ctx.refuse("E0105", "`@` has no meaning in TExpr", node, 'write sum(A[i, k] * B[k, j] for k in seq("K"))')
    return ctx.placeholder(node)


def _compare(ctx: Context, node: ast.Compare) -> syntax.Expr:
    parts = [expression(ctx, part) for part in (node.left, *node.comparators)]
    if len(parts) > 2:
        ctx.refuse("E0105", "comparisons are not chained in TExpr", node, "write a < b and b < c")
        return ctx.placeholder(node)
    op = COMPARE.get(type(node.ops[0]))
    if op is None:
        ctx.refuse("E0105", "`is` and `in` have no meaning in TExpr", node, "compare numbers with ==")
        return ctx.placeholder(node)
    return syntax.Binary(op=op, left=parts[0], right=parts[1], span=ctx.span(node))


# ---- subscripts ------------------------------------------------------------------------------------------------------


def view(ctx: Context, node: ast.Subscript) -> syntax.Expr:
    """`A[i:16, k]`, where a slice is start : extent; `L[()]` is the name of a buffer of rank 0, as in NumPy."""
    whole = isinstance(node.slice, ast.Tuple) and not node.slice.elts and isinstance(node.value, ast.Name)
    subscripts = () if whole else subscripts_of(ctx, node.slice)
    if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        _shape_of(ctx, node, node.value.value)
        return ctx.placeholder(node)
    if not isinstance(node.value, ast.Name):
        ctx.refuse("E0105", "only a buffer's name takes subscripts", node, "write all subscripts at once: A[i, j]")
        return ctx.placeholder(node)
    name = node.value.id
    found = ctx.meaning(node.value)
    if ctx.lookup(name) is None and found is not None and not isinstance(found[1], Unknown):
        what = found[1].what if isinstance(found[1], Foreign) else "no buffer"
        ctx.refuse("E0105", f"`{name}` is {what} of Python, which has no meaning here", node.value,
                    "pass it as a parameter")  # fmt: skip
        return ctx.placeholder(node)
    if whole:
        return syntax.Name(name=name, span=ctx.span(node))
    return syntax.View(name=name, subscripts=subscripts, span=ctx.span(node))


def _shape_of(ctx: Context, node: ast.Subscript, owner: ast.expr) -> None:
    """Refuse `A.shape[0]`, with the name of that extent where the annotation gives one."""
    shape = ctx.shapes.get(owner.id, ()) if isinstance(owner, ast.Name) else ()
    position = node.slice.value if isinstance(node.slice, ast.Constant) else None
    name = shape[position] if isinstance(position, int) and 0 <= position < len(shape) else None
    help = f'that extent is `{name}`: write par("{name}")' if name is not None else NAMED_EXTENTS
    ctx.refuse("E0105", "a buffer has no shape to ask for: its extents are names", node, help)


def subscripts_of(ctx: Context, node: ast.expr) -> tuple[syntax.Expr | syntax.Slice, ...]:
    if isinstance(node, ast.Tuple):
        if not node.elts:
            ctx.refuse("E0105", "a view has at least one subscript", node, "a rank-0 buffer is read by its name")
        return tuple(_subscript(ctx, part) for part in node.elts)
    return (_subscript(ctx, node),)


def _subscript(ctx: Context, node: ast.expr) -> syntax.Expr | syntax.Slice:
    if not isinstance(node, ast.Slice):
        return expression(ctx, node)
    parts = [expression(ctx, part) for part in (node.lower, node.upper, node.step) if part is not None]
    if node.lower is None or node.upper is None or node.step is not None:
        help = "in TExpr the second part is how many elements: A[i:16] is A[i] to A[i + 15]"
        ctx.refuse("E0105", "a slice is start:extent, both written, without a step", node, help)
        return ctx.placeholder(node)
    return syntax.Slice(start=parts[0], extent=parts[1], span=ctx.span(node))


# ---- calls and reductions --------------------------------------------------------------------------------------------


def _call(ctx: Context, node: ast.Call) -> syntax.Expr:
    found = ctx.meaning(node.func)
    generator = node.args[0] if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp) else None
    match found:
        case (_, Word(name)) if name in REDUCTIONS and generator is not None:
            if node.keywords:
                _no_keywords(ctx, node)
            return _reduce(ctx, REDUCTIONS[name], generator, node)
        case (_, Word(name)) if name in ("sum", "prod", "maximum", "minimum"):
            for argument in node.args:
                expression(ctx, argument)
            other = {"maximum": "; of two values max(a, b)", "minimum": "; of two values min(a, b)"}.get(name, "")
            help = f'write {name}(e for k in seq("K")){other}'
            ctx.refuse("E0105", f"`{name}` takes a generator", node, help)
            return ctx.placeholder(node)
        case (_, Word(name)) if name in LOOPS:
            ctx.refuse("E0105", f"`{name}` stands only after `in`", node, f'write for i in {name}("N")')
            return ctx.placeholder(node)
        case (_, Word(name)) if name in STATEMENT_WORDS:
            help = "x = new(f32[4])" if name == "new" else "x = reg(f32[4], e)" if name == "reg" else f"{name}(…)"
            ctx.refuse("E0105", f"`{name}` is a statement, not a value", node, f"on a line of its own: {help}")
            return ctx.placeholder(node)
        case _:
            callee = callee_of(ctx, node)
    args = tuple(expression(ctx, argument) for argument in node.args)
    if node.keywords:
        _no_keywords(ctx, node)
    if callee == "select" and len(args) != 3:
        ctx.refuse("E0207", "select takes a condition and two values", node, "write select(c, a, b)")
    if callee is None:
        return ctx.placeholder(node)
    return syntax.Call(name=callee, args=args, span=ctx.span(node))


def _no_keywords(ctx: Context, node: ast.Call) -> None:
    for keyword in node.keywords:
        expression(ctx, keyword.value)
    ctx.refuse("E0105", "a call has no keyword arguments", node, "pass the arguments by position")


def callee_of(ctx: Context, node: ast.Call) -> str | None:
    """The TExpr name of the function that a call names; None after an error."""
    found = ctx.meaning(node.func)
    if found is None:
        expression(ctx, node.func)
        ctx.refuse("E0105", "only a function's name can be called", node.func, FOREIGN_HELP)
        return None
    name, meaning = found
    match meaning:
        case Word(word) if word in TYPE_WORDS:
            ctx.refuse("E0105", f"`{word}` stands in types, not in a body", node.func, "call a function: exp(x)")
        case Word(word):
            return word
        case TypeObject(direction=None, shape=None, attributes=(), element=element):
            return element
        case FnObject(function):
            ctx.callees.setdefault(id(function), meaning)
            return function.__name__
        case LibraryPath(path) if len(path) > 1:
            ctx.imports.setdefault(path[:-1], ctx.span(node.func))
            return path[-1]
        case Unknown() if "." not in name and ctx.lookup(name) is None and is_identifier(name):
            return name
        case Foreign(what):
            ctx.refuse("E0105", f"`{name}` is {what} of Python, and a body is never run", node.func, instead_of(name))
        case _:
            owner = ctx.lookup(name.partition(".")[0])
            if "." in name and owner is not None and owner.kind == "buffer":
                help = 'write sum(A[i] for i in seq("N"))'
                ctx.refuse("E0105", "a buffer has no methods", node.func, help)
            else:
                ctx.refuse("E0105", f"`{name}` cannot be called", node.func, FOREIGN_HELP)
    return None


def _reduce(ctx: Context, op: str, node: ast.GeneratorExp, call: ast.Call) -> syntax.Expr:
    first = node.generators[0]
    head = loop_head(ctx, first.target, first.iter, ("seq",))
    if len(node.generators) > 1:
        ctx.refuse("E0105", "a reduction has one `for`", node.generators[1].target,
                    'write for k, l in seq("K", "L")')  # fmt: skip
    for condition in first.ifs:
        ctx.refuse("E0105", "a reduction has no `if`", condition, "write sum(e if c else 0 for …)")
    if first.is_async:
        ctx.refuse("E0105", "`async for` has no meaning in TExpr", node, 'write for k in seq("K")')
    ctx.scopes.append({})
    declare_indices(ctx, head)
    for early in read_before_given(node.elt):
        ctx.refuse("E0201", f"`{early.id}` is not known here", early, "write its `:=` at the first use")
    before, ctx.lets = ctx.lets, []
    body, lets = expression(ctx, node.elt), tuple(ctx.lets)
    ctx.lets = before
    ctx.scopes.pop()
    return syntax.Reduce(op=op, dims=head.dims, attrs=head.attrs, lets=lets, body=body, span=ctx.span(call))


# ---- loop heads ------------------------------------------------------------------------------------------------------


def declare_indices(ctx: Context, head: LoopHead) -> None:
    for dim in head.dims:
        ctx.declare(dim.index, Binding("index", True, dim.index_span))


def loop_head(ctx: Context, target: ast.expr, iterable: ast.expr, allowed: Sequence[str]) -> LoopHead:
    """The loop of a `for`: its word, extents and attributes. The indices are not yet declared."""
    empty = LoopHead(allowed[0], (), ())
    found = ctx.meaning(iterable.func) if isinstance(iterable, ast.Call) else None
    if not isinstance(iterable, ast.Call) or found is None or not isinstance(found[1], Word):
        choice = 'par("N"), seq("N") or fully_par(32)' if len(allowed) > 1 else 'seq("K")'
        ctx.refuse("E0105", "this is not a loop of TExpr", iterable, f"write for i in {choice}")
        return empty
    word = found[1].name
    if word not in allowed:
        ctx.refuse("E0105", f"`{word}` does not stand here", iterable, f"write {' or '.join(allowed)}")
        return empty
    targets = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    spare = sum(not is_attribute(argument) for argument in iterable.args) > len(targets)
    extents: list[syntax.Expr | syntax.Range] = []
    attrs: list[syntax.Attr] = []
    for argument in iterable.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            if argument.value.lstrip().startswith("#"):
                attrs += ctx.attributes(argument)
                continue
            if ctx.lacks_hash(argument.value, argument, called=not spare):
                continue
            extents.append(ctx.extent_text(argument.value, ctx.span(argument)))
        else:
            extents.append(_extent(ctx, argument))
    if iterable.keywords:
        _no_keywords(ctx, iterable)
    indices = [(part.id, ctx.span(part)) for part in targets if isinstance(part, ast.Name)]
    if len(indices) != len(targets):
        ctx.refuse("E0105", "an index is a plain name", target, f'write for i, j in {word}("M", "N")')
        return empty
    if len(extents) != len(indices) or not extents:
        message = f"{len(indices)} {'index' if len(indices) == 1 else 'indices'} for {len(extents)} extents"
        ctx.refuse("E0105", message, iterable, f'each index has one extent: for i, j in {word}("M", "N")')
        return empty
    dims = tuple(
        syntax.Dim(extent=extent, index=name, index_span=span, span=extent.span.to(span))
        for extent, (name, span) in zip(extents, indices, strict=True)
    )
    return LoopHead(word, dims, tuple(attrs))


def _extent(ctx: Context, node: ast.expr) -> syntax.Expr | syntax.Range:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"):
        return expression(ctx, node)
    parts = [expression(ctx, argument) for argument in node.args]
    if node.keywords or len(parts) not in (1, 2):
        ctx.refuse("E0105", "a range here is range(n) or range(low, high)", node, "scale the index instead")
        return ctx.placeholder(node)
    if len(parts) == 1:
        return parts[0]
    return syntax.Range(low=parts[0], high=parts[1], span=ctx.span(node))
