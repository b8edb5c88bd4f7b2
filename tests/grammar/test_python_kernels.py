"""The conformance kernels, written out as Python functions, give the trees of their texts."""

import dataclasses
import re
from pathlib import Path
from typing import Any, assert_never

import pytest
from front_end import from_text

from texpr.grammar import syntax as s
from texpr.grammar.python.function import parse_function
from texpr.grammar.text.parser import parse_text

KERNELS = sorted((Path(__file__).parents[1] / "kernels").glob("*.tex"))
REDUCTIONS = {"sum": "sum", "prod": "prod", "maximum": "max", "minimum": "min"}


def python_of(item: s.KernelDef | s.FnDef) -> str:
    """A kernel or fn as a Python function."""
    params = ", ".join(f"{p.name}: {_annotation(p)}" for p in item.params)
    result = f" -> {_type(item.result)}" if isinstance(item, s.FnDef) and item.result is not None else ""
    return f"def {item.name}({params}){result}:\n" + "\n".join(_block(item.body, 1)) + "\n"


def _annotation(param: s.Param) -> str:
    attrs = "".join(f", {_attribute(a)}" for a in param.attrs)
    if param.direction is None and param.attrs and param.type.shape is not None:
        return _type(param.type)[:-1] + attrs + "]"
    wrap = {"in": "inp", "out": "out", "inout": "inout", None: ""}[param.direction]
    return f"{wrap}({_type(param.type)}{attrs})"


def _type(of_type: s.TypeExpr) -> str:
    if of_type.shape is None:
        return of_type.element
    return f"{of_type.element}[{', '.join(repr(_text(e)) for e in of_type.shape) or '()'}]"


def _text(e: s.Expr) -> str:
    """An index expression as TExpr text, for a string."""
    return _expr(e).replace("//", "/")


def _attribute(attr: s.Attr) -> str:
    args = ", ".join((f"{a.level}: " if a.level else "") + _text(a.value) for a in attr.args)
    return repr(f"#{attr.name}" + (f"({args})" if attr.args else ""))


def _head(dims: tuple[s.Dim, ...], attrs: tuple[s.Attr, ...], word: str) -> str:
    extents = []
    for number, dim in enumerate(dims):
        if isinstance(dim.extent, s.Range):
            extents.append(f"range({_expr(dim.extent.low)}, {_expr(dim.extent.high)})")
        else:
            extents.append(_expr(dim.extent) if number % 2 else repr(_text(dim.extent)))
    return f"for {', '.join(d.index for d in dims)} in {word}({', '.join([*extents, *map(_attribute, attrs)])})"


def _block(block: s.Block, depth: int) -> list[str]:
    lines = [line for statement in block.body for line in _stmt(statement, depth)]
    return lines or ["    " * depth + "pass"]


def _stmt(node: s.Stmt, depth: int) -> list[str]:
    pad = "    " * depth
    match node:
        case s.Par() | s.Seq():
            word = "seq" if isinstance(node, s.Seq) else "fully_par" if node.fully else "par"
            return [f"{pad}{_head(node.dims, node.attrs, word)}:", *_block(node.body, depth + 1)]
        case s.If():
            return _if(node, depth, "if")
        case s.Assign() | s.Atomic():
            return _assign(node, depth)
        case s.New():
            parts = [
                _type(node.type) if node.type is not None else _expr(node.flat_extent or s.IntLit(value=1, text="1"))
            ]
            parts += [repr(node.level)] if node.level else []
            return [f"{pad}{node.name} = new({', '.join([*parts, *map(_attribute, node.attrs)])})"]
        case s.Let():
            return [f"{pad}{node.name} = {_expr(node.value)}"]
        case s.Reg():
            of_type = f"{_type(node.type)}, " if node.type is not None else ""
            return [f"{pad}{node.name} = reg({of_type}{_expr(node.value)})"]
        case s.Anchor():
            return [f"{pad}anchor({_expr(node.value)})"]
        case s.CallStmt():
            return [pad + _expr(node.call)]
        case s.Return():
            return [f"{pad}return {_expr(node.value)}" if node.value is not None else f"{pad}return"]
        case s.Asm():
            groups: dict[str, list[str]] = {}
            for operand in node.operands:
                groups.setdefault({"in": "in_"}.get(operand.label, operand.label), []).append(_expr(operand.value))
            keywords = "".join(f", {label}=({', '.join(values)},)" for label, values in groups.items())
            return [f'{pad}asm("{node.text.text}"{keywords})']
        case s.SizeDef():
            raise AssertionError("a size has no Python form")
        case _:
            assert_never(node)


def _if(node: s.If, depth: int, word: str) -> list[str]:
    pad = "    " * depth
    lines = [f"{pad}{word} {_expr(node.condition)}:", *_block(node.then, depth + 1)]
    match node.orelse:
        case None:
            return lines
        case s.If():
            return lines + _if(node.orelse, depth, "elif")
        case s.Block():
            return [*lines, f"{pad}else:", *_block(node.orelse, depth + 1)]


def _assign(node: s.Assign | s.Atomic, depth: int) -> list[str]:
    lines, pad = [], "    " * depth
    words = ["atomic"] if isinstance(node, s.Atomic) else []
    words += [f"attr({', '.join(map(_attribute, node.attrs))})"] if node.attrs else []
    if words:
        lines.append(f"{pad}with {', '.join(words)}:")
        pad += "    "
    target, value = _expr(node.target), _expr(node.value)
    if isinstance(node.target, s.Call):
        target = f"fragment[{target.removeprefix('fragment(').removesuffix(')')}]"
    if node.op in ("max=", "min="):
        return [*lines, f"{pad}{target} = {node.op[:-1]}({target}, {value})"]
    return [*lines, f"{pad}{target} {node.op} {value}"]


def _expr(e: s.Expr | s.Slice) -> str:
    match e:
        case s.IntLit() | s.FloatLit() | s.StringLit():
            return repr(e.text) if isinstance(e, s.StringLit) else e.text
        case s.BoolLit():
            return str(e.value)
        case s.Name():
            return e.name
        case s.Member():
            return f"{e.owner}.{e.name}"
        case s.Unary():
            return f"({e.op} {_expr(e.operand)})"
        case s.Binary():
            return f"({_expr(e.left)} {e.op} {_expr(e.right)})"
        case s.Slice():
            return f"{_expr(e.start)}:{_expr(e.extent)}"
        case s.View():
            return f"{e.name}[{', '.join(map(_expr, e.subscripts))}]"
        case s.Call(name="select", args=(c, a, b)):
            return f"({_expr(a)} if {_expr(c)} else {_expr(b)})"
        case s.Call():
            return f"{e.name}({', '.join(map(_expr, e.args))})"
        case s.Reduce():
            return f"{REDUCTIONS[e.op]}({_with_lets(e)} {_head(e.dims, e.attrs, 'seq')})"
        case _:
            assert_never(e)


def _with_lets(e: s.Reduce) -> str:
    """The expression of a reduction, with `:=` at the first use of what its `let`s name."""
    body = _expr(e.body)
    for let in reversed(e.lets):
        named = f"({let.name} := {_expr(let.value)})"
        body = re.sub(rf"\b{let.name}\b", lambda _, named=named: named, body, count=1)
    return body


def plain(tree: Any) -> Any:
    """A tree without comments, and with `v max= e` as the `v = max(v, e)` that Python writes for it."""
    if isinstance(tree, tuple):
        return tuple(map(plain, tree))
    if not isinstance(tree, s.Node):
        return tree
    if isinstance(tree, s.Assign) and tree.op in ("max=", "min="):
        value = s.Call(name=tree.op[:-1], args=(tree.target, tree.value))
        tree = dataclasses.replace(tree, op="=", value=value)
    changes = {f.name: plain(getattr(tree, f.name)) for f in dataclasses.fields(tree) if f.compare}
    changes |= {name: () for name in ("dangling",) if name in changes}
    changes |= {name: s.NO_TRIVIA for name in ("trivia",) if name in changes}
    return dataclasses.replace(tree, **changes)


def functions() -> list[tuple[str, s.KernelDef | s.FnDef]]:
    """Every kernel and fn of the conformance programs."""
    return [
        (f"{path.stem}.{item.name}", item)
        for path in KERNELS
        for item in parse_text(path.read_text(encoding="utf-8"), name=path.name).items
        if isinstance(item, s.KernelDef | s.FnDef)
        and not any(isinstance(part, s.SizeDef) for part in item.body.body)  # in Python that is a constant of the file
    ]


FUNCTIONS = functions()


def test_there_are_kernels_to_write() -> None:
    assert len(FUNCTIONS) > 50


@pytest.mark.parametrize(("name", "item"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_a_kernel_written_in_python_is_the_kernel(name: str, item: s.KernelDef | s.FnDef) -> None:
    from texpr.grammar.text.printer import print_module

    postponed = "from __future__ import annotations\n\n"
    function = from_text(postponed + python_of(item), f"{name}.py", item.name)
    kind = "kernel" if isinstance(item, s.KernelDef) else "fn"
    attrs = tuple(eval(_attribute(a)) for a in item.attrs)
    where = ", ".join(_text(c) for c in item.where) if isinstance(item, s.KernelDef) and item.where else None
    reference = None
    if isinstance(item, s.FnDef) and item.reference is not None:
        text = postponed + python_of(dataclasses.replace(item, body=item.reference, reference=None))
        reference = from_text(text, f"{name}.reference.py", item.name)
    made = parse_function(function, kind=kind, attrs=attrs, where=where, reference=reference)
    expected = plain(item)
    assert print_module(dataclasses.replace(made, items=made.items[-1:])) == print_module(
        dataclasses.replace(made, items=(expected,))
    )
    assert made.items[-1] == expected
