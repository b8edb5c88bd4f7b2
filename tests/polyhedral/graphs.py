"""Mapped programs written by hand, in the words of their printed form:

    program(
        "A: i32[K, 64], B: i32[64]",
        loop("K", "k", copy("S0", "a[i] = A[k, i]", over="i < 64")),
        do("S1", "B[j] = a[j]"),
        shared={"a": (64,)}, threads=64,
    )

Names in capitals are sizes, others indices; all elements are i32.
"""

import ast as python
from collections.abc import Mapping, Sequence
from typing import Any

from stages import proved

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Always,
    Bind,
    Compare,
    CompareOp,
    Condition,
    Const,
    Expr,
    Fn,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    Leaf,
    Op,
    Read,
    Role,
    SizeVar,
)
from texpr.grammar.source import SourceText, Span
from texpr.grammar.types import I32
from texpr.polyhedral.mapped.between import Words
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.operators import Completion, Copy, Generic, Unused, View
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import Free, HostNode, Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.sync import Action, Barrier, Pipe
from texpr.polyhedral.mapped.tree import Define, Guard, Last, Loop, Node, Part, Parts
from texpr.polyhedral.mapped.walks import located
from texpr.polyhedral.program import Hazard
from texpr.polyhedral.target import parse_target

_INDEX = {
    python.Add: IndexOp.ADD,
    python.Sub: IndexOp.SUB,
    python.Mult: IndexOp.MUL,
    python.FloorDiv: IndexOp.DIV,
    python.Mod: IndexOp.MOD,
}
_VALUE = {python.Add: Fn.ADD, python.Sub: Fn.SUB, python.Mult: Fn.MUL}
_COMPARE = {
    python.Eq: CompareOp.EQ,
    python.NotEq: CompareOp.NE,
    python.Lt: CompareOp.LT,
    python.LtE: CompareOp.LE,
    python.Gt: CompareOp.GT,
    python.GtE: CompareOp.GE,
}


def _parsed(text: str) -> Any:
    return python.parse(text, mode="eval").body


def _index(node: Any) -> IndexExpr:
    match node:
        case python.Constant(value=value):
            return IndexConst(value=value)
        case python.Name(id=name):
            return SizeVar(name=name) if name.isupper() else IndexVar(name=name)
        case python.BinOp(op=op, left=left, right=right):
            return IndexBinary(op=_INDEX[type(op)], left=_index(left), right=_index(right))
    raise ValueError(python.unparse(node))


def index(value: str | int) -> IndexExpr:
    return _index(_parsed(str(value)))


def condition(text: str) -> Condition:
    if text in ("true", "false"):
        return Always(value=text == "true")
    node = _parsed(text)
    return Compare(op=_COMPARE[type(node.ops[0])], left=_index(node.left), right=_index(node.comparators[0]))


def _element(node: Any) -> tuple[str, tuple[IndexExpr, ...]]:
    parts = node.slice.elts if isinstance(node.slice, python.Tuple) else [node.slice]
    return node.value.id, tuple(_index(p) for p in parts)


def _value(node: Any) -> Expr:
    match node:
        case python.Constant(value=value):
            return Const(value=value, dtype=I32)
        case python.Subscript():
            buffer, subscripts = _element(node)
            return Read(buffer=buffer, subscripts=subscripts, dtype=I32)
        case python.BinOp(op=op, left=left, right=right):
            return Op(fn=_VALUE[type(op)], args=(_value(left), _value(right)), dtype=I32)
    raise ValueError(python.unparse(node))


def _span(text: str) -> Span:
    """A span of its own source, so that messages show the statement."""
    return Span(source=SourceText(name="by hand", text=text), start=0, end=len(text))


def leaf(id: str, text: str) -> Leaf:
    span = _span(f"{id}: {text}")
    match python.parse(text).body[0]:
        case python.Assign(targets=[target], value=value):
            buffer, subscripts = _element(target)
            return Bind(id=id, buffer=buffer, subscripts=subscripts, value=_value(value), span=span)
        case python.AugAssign(target=target, value=value):
            buffer, subscripts = _element(target)
            return Accumulate(id=id, op=AccOp.ADD, buffer=buffer, subscripts=subscripts, value=_value(value), span=span)
    raise ValueError(text)


def do(id: str, text: str, *, once: bool = False, atomic: bool = False) -> Generic:
    """A statement of every thread that reaches it, or of the first one."""
    return Generic(id=id, leaf=leaf(id, text), unused=Unused.ONCE if once else Unused.REPLICATED, atomic=atomic)


def copy(id: str, text: str, over: str = "", completion: str = "now", pipe: str = "") -> Copy:
    bind = leaf(id, text)
    assert isinstance(bind, Bind) and isinstance(bind.value, Read)
    pairs = [part.split("<") for part in over.split(",") if part]
    return Copy(
        id=id,
        source=View(buffer=bind.value.buffer, subscripts=bind.value.subscripts, dtype=I32),
        target=View(buffer=bind.buffer, subscripts=bind.subscripts, dtype=I32),
        over=tuple((name.strip(), index(extent.strip())) for name, extent in pairs),
        completion=Completion(completion),
        pipe=pipe,
        unused=Unused.REPLICATED,
        span=bind.span,
    )


def define(name: str, **places: int) -> Define:
    """An index as a sum of hardware digits, `lane=32` having 32 values: the first has weight 1."""
    digits, weight = [], 1
    for place, radix in places.items():
        where = {"grid": Place.GRID_X, "rank": Place.CLUSTER}.get(place) or Place(place)
        stride = IndexConst(value=1)
        digits.append(
            Digit(
                name=f"{name}_{place}",
                index=name,
                weight=weight,
                radix=IndexConst(value=radix),
                stride=stride,
                place=where,
            )
        )
        weight *= radix
    return Define(index=name, digits=tuple(digits))


def loop(index_name: str, extent: str | int, *body: Node) -> Loop:
    return Loop(index=index_name, extent=index(extent), body=body)


def when(text: str, *body: Node, orelse: Sequence[Node] = ()) -> Guard:
    return Guard(condition=condition(text), body=body, orelse=tuple(orelse))


def once(*body: Node) -> Guard:
    """What the first thread of the block, or of the part, does alone."""
    return Guard(condition=Always(value=True), body=body, once=True)


def barrier(scope: str, *parts: str, action: str = "both", name: str = "") -> Barrier:
    return Barrier(scope=Scope(scope), parts=parts, action=Action(action), name=name)


def part(name: str, warps: int, *body: Node) -> Part:
    return Part(name=name, warps=warps, body=body)


def parts(*every: Part) -> Parts:
    return Parts(parts=every)


def last(counter: str, n: str | int, *body: Node, at: Sequence[str | int] = ()) -> Last:
    return Last(counter=counter, at=tuple(map(index, at)), n=index(n), body=body)


def order(
    source: str, sink: str, buffer: str, hazard: str = "flow", scope: str = "block", after: str = "", distance: int = 1
) -> Order:
    """`source` is over before `sink` begins, in the same iteration, or `distance` iterations `after` in a loop."""
    return Order(
        source=source,
        sink=sink,
        buffer=buffer,
        hazard=Hazard(hazard),
        scope=Scope(scope),
        carried_by=after or None,
        distance=distance if after else None,
    )


def launch(
    *body: Node,
    threads: int,
    name: str = "hand",
    grid: str | int = 1,
    cluster: int = 1,
    pipes: Sequence[Pipe] = (),
    orders: Sequence[Order] = (),
) -> Launch:
    digits = {d.name: d for p in located(body) if isinstance(p.node, Define) for d in p.node.digits}
    one = IndexConst(value=1)
    return Launch(
        name=name,
        grid=(index(grid), one, one),
        cluster=(cluster, 1, 1),
        threads=threads,
        digits=tuple(digits.values()),
        body=body,
        pipes=tuple(pipes),
        orders=tuple(orders),
    )


def program(
    parameters: str,
    *host: HostNode,
    shared: Mapping[str, tuple[int, ...]] | None = None,
    cluster: Mapping[str, tuple[int, ...]] | None = None,
    registers: Mapping[str, tuple[int, ...]] | None = None,
    workspace: Mapping[str, tuple[str | int, ...]] | None = None,
    words: Sequence[Words] = (),
) -> MappedProgram:
    """The launches with their parameters and locals. A buffer in cluster memory has the rank as its first subscript."""
    first, shape = parameters.split("]")[0].split(": i32[")
    extents = shape.split(",")
    band = ", ".join(f"{extent} z{number}" for number, extent in enumerate(extents))
    element = ", ".join(f"z{number}" for number in range(len(extents)))
    base = proved(f"kernel hand({parameters}) {{ par {band} {{ {first}[{element}] = 0 }} }}")
    buffers = {b.name: _buffer(b.name, b.shape, Memory.GLOBAL, Scope.GRID, b.role) for b in base.program.kernel.params}
    placed: tuple[tuple[Mapping[str, tuple[Any, ...]] | None, Memory, Scope], ...] = (
        (shared, Memory.SHARED, Scope.BLOCK),
        (cluster, Memory.CLUSTER, Scope.CLUSTER),
        (registers, Memory.REG, Scope.THREAD),
        (workspace, Memory.GLOBAL, Scope.GRID),
    )
    for table, memory, scope in placed:
        for name, shape in (table or {}).items():
            buffers[name] = _buffer(name, tuple(map(index, shape)), memory, scope, Role.LOCAL)
    return MappedProgram(
        kernel=base.program.kernel,
        proved=base,
        target=parse_target("cuda:sm_90a"),
        candidate=Candidate(launches={}),
        host=host,
        buffers=buffers,
        words=tuple(words),
    )


def _buffer(name: str, shape: tuple[IndexExpr, ...], memory: Memory, scope: Scope, role: Role) -> MappedBuffer:
    return MappedBuffer(name=name, dtype=I32, shape=shape, memory=memory, scope=scope, layout=Free(), role=role)
