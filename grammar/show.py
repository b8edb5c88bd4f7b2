"""The core tree as a compact readable text, for golden files and `stop_after="check"`.

kernel rows(A: f32[M, K], C: f32[M]) sizes M, K
  par i: M (band 1)
    S0: C[i] = 0.0:f32
    seq k: K
      S1: C[i] add= A[i, k]
"""

from collections.abc import Iterator
from typing import assert_never

from texpr.grammar import ast
from texpr.grammar.ast import Condition
from texpr.grammar.index.text import in_words


def show(kernel: ast.Kernel) -> str:
    """The kernel's text, ending with a newline."""
    params = ", ".join(show_buffer(b) for b in kernel.params)
    sizes = ", ".join(s.name if s.default is None else f"{s.name} = {s.default}" for s in kernel.sizes)
    head = f"kernel {kernel.name}({params})" + (f" sizes {sizes}" if sizes else "")
    if kernel.facts:
        head += " where " + ", ".join(in_words(fact) for fact in kernel.facts)
    lines = [head + show_attrs(kernel.attrs) + (" bare" if kernel.bare else "")]
    locals_ = {b.name: b for b in kernel.buffers}
    lines += ["  " + line for line in _block(kernel.body, locals_)]
    return "\n".join(lines) + "\n"


def show_buffer(b: ast.Buffer) -> str:
    """`[direction] [memory] name: type[shape] strides align`."""
    text = f"{b.direction} " if b.direction and b.role is not ast.Role.SCALAR else ""
    text += f"{b.memory} " if b.memory else ""
    text += f"{b.name}: {b.dtype}"
    if b.shape or b.role is ast.Role.PARAM:
        text += "[" + ", ".join(in_words(e) for e in b.shape) + "]"
    if b.strides is not None:
        text += " #strides(" + ", ".join(in_words(e) for e in b.strides) + ")"
    return text + show_attrs(b.attrs) + (" flat" if b.flat else "")


def show_attrs(attrs: tuple[ast.Attr, ...]) -> str:
    text = ""
    for attr in attrs:
        text += f" #{attr.name}"
        if attr.args:
            levels = attr.levels or (None,) * len(attr.args)
            words = [arg if isinstance(arg, str) else in_words(arg) for arg in attr.args]
            parts = [w if level is None else f"{level}: {w}" for level, w in zip(levels, words, strict=True)]
            text += "(" + ", ".join(parts) + ")"
    return text


def _block(body: tuple[ast.Stmt, ...], buffers: dict[str, ast.Buffer]) -> Iterator[str]:
    for statement in body:
        yield from _statement(statement, buffers)


def _indented(body: tuple[ast.Stmt, ...], buffers: dict[str, ast.Buffer]) -> Iterator[str]:
    for line in _block(body, buffers):
        yield "  " + line


def _statement(s: ast.Stmt, buffers: dict[str, ast.Buffer]) -> Iterator[str]:
    attrs = show_attrs(s.attrs)
    match s:
        case ast.Par():
            fully = "fully " if s.fully else ""
            yield f"{fully}par {s.index}: {in_words(s.extent)} (band {s.band}){attrs}"
            yield from _indented(s.body, buffers)
        case ast.Seq():
            yield f"seq {s.index}: {in_words(s.extent)}{attrs}"
            yield from _indented(s.body, buffers)
        case ast.If():
            shown = show_value(s.condition) if isinstance(s.condition, ast.Read) else in_words(s.condition)
            yield f"if {shown}{attrs}"
            yield from _indented(s.then, buffers)
            if s.orelse:
                yield "else"
                yield from _indented(s.orelse, buffers)
        case ast.Bind():
            yield f"{s.id}: {_place(s.buffer, s.subscripts)} = {show_value(s.value)}{attrs}"
        case ast.Accumulate():
            yield f"{s.id}: {_place(s.buffer, s.subscripts)} {s.op.value}= {show_value(s.value)}{attrs}"
        case ast.Atomic():
            yield f"{s.id}: atomic {_place(s.buffer, s.subscripts)} {s.op.value}= {show_value(s.value)}{attrs}"
        case ast.New():
            yield f"new {show_buffer(buffers[s.buffer])}{attrs}"
        case ast.Anchor():
            yield f"{s.id}: anchor {show_value(s.value)}{attrs}"
        case ast.Asm():
            operands = "".join(
                f", {o.mode}: {o.buffer if o.subscripts is None else _place(o.buffer, o.subscripts)}"
                for o in s.operands
            )
            yield f'{s.id}: asm("{s.text}"{operands}){attrs}'
        case ast.Intrinsic():
            yield f"intrinsic {s.name}{attrs} reference"
            yield from _indented(s.reference, buffers)
            yield "hardware"
            yield from _indented(s.hardware, buffers)
        case _:
            assert_never(s)


def _place(buffer: str, subscripts: tuple[ast.Subscript, ...]) -> str:
    if not subscripts:
        return buffer
    parts = (f"{{{show_value(s.value)}}}" if isinstance(s, ast.Gather) else in_words(s) for s in subscripts)
    return f"{buffer}[{', '.join(parts)}]"


def show_value(e: ast.Expr) -> str:
    """The value with its types: constants and index values carry them, operators are written as calls."""
    match e:
        case ast.Const():
            shown = str(e.value).lower() if isinstance(e.value, bool) else repr(e.value)
            return shown if e.dtype.is_bool else f"{shown}:{e.dtype}"
        case ast.IndexValue():
            return f"index({in_words(e.index)})" + ("" if e.dtype.name == "i64" else f":{e.dtype}")
        case ast.ConditionValue():
            return f"truth({in_words(e.condition)})"
        case ast.Read():
            return _place(e.buffer, e.subscripts)
        case ast.Op():
            suffix = "" if e.dtype.is_bool else f".{e.dtype}"
            return f"{e.fn.value}{suffix}({', '.join(show_value(arg) for arg in e.args)})"
        case ast.Cast():
            return f"{e.dtype}({show_value(e.operand)})"
        case ast.Select():
            if isinstance(e.condition, Condition):
                condition = in_words(e.condition)
            else:
                condition = show_value(e.condition)
            return f"select({condition}, {show_value(e.then)}, {show_value(e.other)})"
    assert_never(e)
