"""Surface tree to text: the one canonical form that `texpr fmt` and `str(kernel)` print.

Four blanks a level, one statement a line, as few parentheses as the grammar allows, attributes after their construct,
comments and single blank lines kept, long lines broken. Parsing the printed text gives an equal tree, so printing
twice changes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from texpr.grammar import syntax as s
from texpr.grammar.text.wrapping import INDENT, MAX_COLUMNS, wrapped

_BINARY: Final[dict[str, int]] = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(("==", "!=", "<=", ">=", "<", ">"), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/", "%"), 6),
}
_UNARY: Final[dict[str, int]] = {"not": 3, "-": 7}
_ATOM: Final = 8


def print_module(module: s.Module) -> str:
    """The text of a whole file; it ends with a newline unless it is empty."""
    lines: list[str] = []
    for item in module.items:
        lines += _with_trivia(item, 0)
    lines += _comments(module.dangling, 0)
    return "".join(line + "\n" for line in lines)


def print_expr(expr: s.Expr | s.Slice | s.Range) -> str:
    """The text of an expression on one line."""
    match expr:
        case s.Slice():
            tight = all(_level(e) == _ATOM for e in (expr.start, expr.extent))
            return f"{print_expr(expr.start)}{':' if tight else ' : '}{print_expr(expr.extent)}"
        case s.Range():
            return f"{print_expr(expr.low)}..{print_expr(expr.high)}"
        case s.IntLit() | s.FloatLit():
            return expr.text
        case s.BoolLit():
            return "true" if expr.value else "false"
        case s.StringLit():
            return f'"{expr.text}"'
        case s.Name():
            return expr.name
        case s.Member():
            return f"{expr.owner}.{expr.name}"
        case s.Unary(op="not"):
            return f"not {_operand(expr.operand, _UNARY['not'])}"
        case s.Unary():
            # `--` could open a comment, so a minus sign never follows another
            return f"-{_operand(expr.operand, _ATOM if isinstance(expr.operand, s.Unary) else _UNARY['-'])}"
        case s.Binary():
            level = _BINARY[expr.op]
            left = _operand(expr.left, level + 1 if level == _BINARY["<"] else level)
            return f"{left} {expr.op} {_operand(expr.right, level + 1)}"
        case s.View():
            return f"{expr.name}[{_list(expr.subscripts)}]"
        case s.Call():
            return f"{expr.name}({_list(expr.args)})"
        case s.Reduce():
            body = "; ".join((*map(_simple, expr.lets), print_expr(expr.body)))
            return f"{expr.op} {_dims(expr.dims)}{_attrs(expr.attrs)} {{ {body} }}"
        case _:
            assert_never(expr)


def _level(expr: s.Expr) -> int:
    """How tightly an expression's outermost construct binds."""
    match expr:
        case s.Binary():
            return _BINARY[expr.op]
        case s.Unary():
            return _UNARY[expr.op]
        case _:
            return _ATOM


def _operand(expr: s.Expr, least: int) -> str:
    text = print_expr(expr)
    return text if _level(expr) >= least else f"({text})"


def _list(parts: Sequence[s.Expr | s.Slice]) -> str:
    return ", ".join(print_expr(part) for part in parts)


def _dims(dims: tuple[s.Dim, ...], *, bars: bool = False) -> str:
    """`N i, M j`; with `bars` `N |i|`, the form of hardware threads."""
    indices = (f"|{dim.index}|" if bars else dim.index for dim in dims)
    return ", ".join(f"{print_expr(dim.extent)} {index}" for dim, index in zip(dims, indices, strict=True))


def _attrs(attrs: tuple[s.Attr, ...]) -> str:
    """The attributes, each after a blank."""
    return "".join(f" {print_attr(attr)}" for attr in attrs)


def print_attr(attr: s.Attr) -> str:
    """`#name` or `#name(args)`."""
    if not attr.args:
        return f"#{attr.name}"
    args = (f"{a.level}: {print_expr(a.value)}" if a.level else print_expr(a.value) for a in attr.args)
    return f"#{attr.name}({', '.join(args)})"


def print_type(type_: s.TypeExpr) -> str:
    """`f16[M, K]`."""
    return type_.element if type_.shape is None else f"{type_.element}[{_list(type_.shape)}]"


def print_param(param: s.Param) -> str:
    """`in A: f16[M, K] #strides(1, M)`."""
    direction = f"{param.direction} " if param.direction else ""
    return f"{direction}{param.name}: {print_type(param.type)}{_attrs(param.attrs)}"


# ---- lines -----------------------------------------------------------------------------------------------------


def _comments(comments: tuple[s.Comment, ...], depth: int) -> Iterator[str]:
    for comment in comments:
        if comment.blank_before:
            yield ""
        yield f"{INDENT * depth}--{comment.text}"


def _with_trivia(item: s.Item, depth: int) -> list[str]:
    trivia = item.trivia
    lines = list(_comments(trivia.leading, depth))
    if trivia.blank_before:
        lines.append("")
    lines += _statement(item, depth)
    if trivia.trailing is not None:
        lines[-1] += f"  --{trivia.trailing.text}"
    return lines


def _block(block: s.Block, depth: int) -> list[str]:
    """The lines between the braces of a block that stands at `depth`."""
    lines: list[str] = []
    for statement in block.body:
        lines += _with_trivia(statement, depth + 1)
    lines += _comments(block.dangling, depth + 1)
    return lines


def _braced(head: list[str], block: s.Block, depth: int) -> list[str]:
    """`head { … }`, the head's last line carrying the brace."""
    inner = _block(block, depth)
    if not inner:
        return [*head[:-1], *wrapped(f"{head[-1]} {{}}")]
    return [*head[:-1], *wrapped(f"{head[-1]} {{"), *inner, f"{INDENT * depth}}}"]


def _statement(item: s.Item, depth: int) -> list[str]:
    pad = INDENT * depth
    match item:
        case s.Par() | s.Seq():
            word = "seq" if isinstance(item, s.Seq) else "fully par" if item.fully else "par"
            bars = isinstance(item, s.Par) and item.fully
            return _braced([f"{pad}{word} {_dims(item.dims, bars=bars)}{_attrs(item.attrs)}"], item.body, depth)
        case s.If():
            return _if(item, f"{pad}if", depth)
        case s.KernelDef():
            head = _signature(f"{pad}kernel {item.name}", item.params, depth)
            if item.where:
                head[-1] += f" where {_list(item.where)}"
            head[-1] += _attrs(item.attrs)
            return _braced(head, item.body, depth)
        case s.FnDef():
            head = _signature(f"{pad}fn {item.name}", item.params, depth)
            if item.result is not None:
                head[-1] += f": {print_type(item.result)}"
            head[-1] += _attrs(item.attrs)
            if item.reference is not None:
                head[-1] += " reference"
                head = _braced(head, item.reference, depth)
            return _braced(head, item.body, depth)
        case _:
            return wrapped(f"{pad}{_simple(item)}")


def _signature(head: str, params: tuple[s.Param, ...], depth: int) -> list[str]:
    """`head(params)` on one line, or one parameter a line where that is too long."""
    line = f"{head}({', '.join(print_param(p) for p in params)})"
    if len(line) + 2 <= MAX_COLUMNS or not params:
        return [line]
    pad = INDENT * (depth + 1)
    return [f"{head}(", *(line for p in params for line in wrapped(f"{pad}{print_param(p)},")), f"{INDENT * depth})"]


def _if(statement: s.If, head: str, depth: int) -> list[str]:
    lines = _braced([f"{head} {print_expr(statement.condition)}"], statement.then, depth)
    match statement.orelse:
        case None:
            return lines
        case s.Block():
            return lines[:-1] + _braced([f"{lines[-1]} else"], statement.orelse, depth)
        case s.If():
            return lines[:-1] + _if(statement.orelse, f"{lines[-1]} else if", depth)


def _simple(
    item: (
        s.Import | s.SizeDef | s.Assign | s.Atomic | s.New | s.Let | s.Reg | s.Anchor | s.Asm | s.CallStmt | s.Return
    ),
) -> str:
    """The one line of a statement without a block."""
    match item:
        case s.Import():
            return f"import {'.'.join(item.path)}"
        case s.SizeDef():
            return f"size {item.name}" + (f" = {print_expr(item.value)}" if item.value is not None else "")
        case s.Assign():
            return f"{print_expr(item.target)} {item.op} {print_expr(item.value)}{_attrs(item.attrs)}"
        case s.Atomic():
            return f"atomic {print_expr(item.target)} {item.op} {print_expr(item.value)}{_attrs(item.attrs)}"
        case s.New():
            level = f"{item.level} " if item.level else ""
            shape = f": {print_type(item.type)}" if item.type is not None else ""
            flat = f" {print_expr(item.flat_extent)}" if item.flat_extent is not None else ""
            return f"new {level}{item.name}{shape}{flat}{_attrs(item.attrs)}"
        case s.Let():
            return f"let {item.name} = {print_expr(item.value)}"
        case s.Reg():
            typed = f": {print_type(item.type)}" if item.type is not None else ""
            return f"reg {item.name}{typed} = {print_expr(item.value)}"
        case s.Anchor():
            return f"anchor {print_expr(item.value)}"
        case s.Asm():
            return _asm(item)
        case s.CallStmt():
            return print_expr(item.call)
        case s.Return():
            return "return" if item.value is None else f"return {print_expr(item.value)}"
        case _:
            assert_never(item)


def _asm(item: s.Asm) -> str:
    """A label stands before the first of its operands only."""
    parts = [print_expr(item.text)]
    label = None
    for operand in item.operands:
        parts.append(
            print_expr(operand.value) if operand.label == label else f"{operand.label}: {print_expr(operand.value)}"
        )
        label = operand.label
    return f"asm({', '.join(parts)})"
