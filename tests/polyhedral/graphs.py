"""Mapped programs written by hand, in the words of their printed form:

    program(
        "A: i32[K, 64], B: i32[64]",
        loop("K", "k", copy("S0", "a[i] = A[k, i]", over="i < 64")),
        do("S1", "B[j] = a[j]"),
        shared={"a": (64,)}, threads=64,
    )

Names in capitals are sizes, others indices. Elements are i32 where no `types` say otherwise; numbers with a point are
f32, and so is `inf`.
"""

import ast as python
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stages import proved

from texpr.grammar.ast import (
    AccOp,
    Accumulate,
    Always,
    Bind,
    Cast,
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
    Select,
    SizeVar,
)
from texpr.grammar.source import SourceText, Span
from texpr.grammar.types import BOOL, ELEMENT_TYPES, F32, I32, DType
from texpr.polyhedral.layout.make import row_major, staged
from texpr.polyhedral.layout.value import Unit
from texpr.polyhedral.mapped.between import Words
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.operators import (
    Access,
    Box,
    Completion,
    Copy,
    Elementwise,
    Generic,
    Reduce,
    Unused,
    View,
    Within,
)
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import HostNode, Launch, MappedBuffer, MappedProgram
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
_VALUE = {python.Add: Fn.ADD, python.Sub: Fn.SUB, python.Mult: Fn.MUL, python.Div: Fn.DIV}
_COMPARED = {python.Eq: Fn.EQ, python.Lt: Fn.LT}
Types = Mapping[str, DType]
_COMPARE = {
    python.Eq: CompareOp.EQ,
    python.NotEq: CompareOp.NE,
    python.Lt: CompareOp.LT,
    python.LtE: CompareOp.LE,
    python.Gt: CompareOp.GT,
    python.GtE: CompareOp.GE,
}


def _parsed(text: str) -> Any:
    return python.parse(text.strip(), mode="eval").body


def _index(node: Any) -> IndexExpr:
    match node:
        case python.Constant(value=value):
            return IndexConst(value=value)
        case python.Name(id=name):
            return SizeVar(name=name) if name.isupper() else IndexVar(name=name)
        case python.BinOp(op=op, left=left, right=right):
            return IndexBinary(op=_INDEX[type(op)], left=_index(left), right=_index(right))
        case python.Call(func=python.Name(id="min"), args=[left, right]):
            return IndexBinary(op=IndexOp.MIN, left=_index(left), right=_index(right))
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


def value(text: str, types: Types | None = None) -> Expr:
    return _value(_parsed(text), types or {})


def _value(node: Any, types: Types) -> Expr:
    match node:
        case python.Constant(value=value):
            return Const(value=value, dtype=F32 if isinstance(value, float) else I32)
        case python.Name(id="inf"):
            return Const(value=float("inf"), dtype=F32)
        case python.UnaryOp(op=python.USub(), operand=python.Name(id="inf")):
            return Const(value=-float("inf"), dtype=F32)
        case python.Subscript():
            buffer, subscripts = _element(node)
            return Read(buffer=buffer, subscripts=subscripts, dtype=types.get(buffer, I32))
        case python.BinOp(op=op, left=left, right=right):
            args = (_value(left, types), _value(right, types))
            return Op(fn=_VALUE[type(op)], args=args, dtype=args[0].dtype)
        case python.Compare(ops=[op], left=left, comparators=[right]):
            return Op(fn=_COMPARED[type(op)], args=(_value(left, types), _value(right, types)), dtype=BOOL)
        case python.Call(func=python.Name(id="select"), args=args):
            condition, then, other = (_value(a, types) for a in args)
            return Select(condition=condition, then=then, other=other, dtype=then.dtype)
        case python.Call(func=python.Name(id=name), args=[argument]) if name in ELEMENT_TYPES:
            return Cast(operand=_value(argument, types), dtype=ELEMENT_TYPES[name])
        case python.Call(func=python.Name(id=name), args=args):
            values = tuple(_value(a, types) for a in args)
            return Op(fn=Fn(name), args=values, dtype=values[0].dtype)
    raise ValueError(python.unparse(node))


def _span(text: str) -> Span:
    """A span of its own source, so that messages show the statement."""
    return Span(source=SourceText(name="by hand", text=text), start=0, end=len(text))


def leaf(id: str, text: str, types: Types | None = None) -> Leaf:
    span = _span(f"{id}: {text}")
    match python.parse(text).body[0]:
        case python.Assign(targets=[target], value=value):
            buffer, subscripts = _element(target)
            return Bind(id=id, buffer=buffer, subscripts=subscripts, value=_value(value, types or {}), span=span)
        case python.AugAssign(target=target, value=value):
            buffer, subscripts = _element(target)
            added = _value(value, types or {})
            return Accumulate(id=id, op=AccOp.ADD, buffer=buffer, subscripts=subscripts, value=added, span=span)
    raise ValueError(text)


def do(id: str, text: str, *, once: bool = False, atomic: bool = False, types: Types | None = None) -> Generic:
    """A statement of every thread that reaches it, or of the first one."""
    unused = Unused.ONCE if once else Unused.REPLICATED
    return Generic(id=id, leaf=leaf(id, text, types), unused=unused, atomic=atomic)


def box(over: str) -> Box:
    """`q < 2, e < 8`."""
    pairs = [part.split("<") for part in over.split(",") if part]
    return tuple((name.strip(), index(extent.strip())) for name, extent in pairs)


def view(text: str, types: Types | None = None) -> View:
    buffer, subscripts = _element(_parsed(text))
    return View(buffer=buffer, subscripts=subscripts, dtype=(types or {}).get(buffer, I32))


def copy(
    id: str,
    text: str,
    over: str = "",
    completion: str = "now",
    pipe: str = "",
    *,
    within: tuple[str, str] | None = None,
    other: float | None = None,
    access: str = "each",
    types: Types | None = None,
) -> Copy:
    """A copy of a box; only the values of its last index `within` two bounds are wanted, the others become `other`."""
    target, source = (view(side, types) for side in text.split("="))
    filled = None if other is None else Const(value=other, dtype=target.dtype)
    ends = None if within is None else Within(begin=index(within[0]), end=index(within[1]), other=filled)
    return Copy(
        id=id,
        source=source,
        target=target,
        over=box(over),
        within=ends,
        access=Access(access),
        completion=Completion(completion),
        pipe=pipe,
        unused=Unused.REPLICATED,
        span=_span(f"{id}: {text}"),
    )


def each(id: str, over: str, *texts: str, types: Types | None = None) -> Elementwise:
    """Statements of one thread for every element of a box."""
    leaves = tuple(leaf(id, text, types) for text in texts)
    return Elementwise(id=id, leaves=leaves, over=box(over), unused=Unused.REPLICATED)


def reduce(
    id: str,
    targets: str,
    *values: str,
    monoid: str,
    over: str = "",
    lanes: int = 1,
    lift: bool = True,
    last: bool = False,
    types: Types | None = None,
) -> Reduce:
    """The targets, as `m[0]; s[0]`, become the values combined."""
    return Reduce(
        id=id,
        monoid=monoid,
        values=tuple(value(v, types) for v in values),
        targets=tuple(view(t.strip(), types) for t in targets.split(";")),
        over=box(over),
        lanes=lanes,
        lift=lift,
        last=last,
        unused=Unused.REPLICATED,
        span=_span(f"{id}: {targets} = {monoid} of {', '.join(values)}"),
    )


def define(name: str, offset: str | int = 0, weight: int = 1, **places: int) -> Define:
    """An index as a sum of hardware digits, `lane=32` having 32 values: the first has the weight given."""
    digits = []
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
    return Define(index=name, digits=tuple(digits), offset=index(offset))


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
    min_blocks: int = 0,
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
        min_blocks=min_blocks,
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
    types: Types | None = None,
) -> MappedProgram:
    """The launches with their parameters and locals. A buffer in cluster memory has the rank as its first subscript."""
    first, shape = re.split(r": \w+\[", parameters.split("]")[0])
    extents = shape.split(",")
    band = ", ".join(f"{extent} z{number}" for number, extent in enumerate(extents))
    element = ", ".join(f"z{number}" for number in range(len(extents)))
    base = proved(f"kernel hand({parameters}) {{ par {band} {{ {first}[{element}] = 0 }} }}")
    buffers = {
        b.name: _buffer(b.name, b.shape, Memory.GLOBAL, Scope.GRID, b.role, b.dtype) for b in base.program.kernel.params
    }
    placed: tuple[tuple[Mapping[str, tuple[Any, ...]] | None, Memory, Scope], ...] = (
        (shared, Memory.SHARED, Scope.BLOCK),
        (cluster, Memory.CLUSTER, Scope.CLUSTER),
        (registers, Memory.REG, Scope.THREAD),
        (workspace, Memory.GLOBAL, Scope.GRID),
    )
    for table, memory, scope in placed:
        for name, shape in (table or {}).items():
            dtype = (types or {}).get(name, I32)
            buffers[name] = _buffer(name, tuple(map(index, shape)), memory, scope, Role.LOCAL, dtype)
    return MappedProgram(
        kernel=base.program.kernel,
        proved=base,
        target=parse_target("cuda:sm_90a"),
        candidate=Candidate(launches={}),
        host=host,
        buffers=buffers,
        words=tuple(words),
    )


def _buffer(
    name: str, shape: tuple[IndexExpr, ...], memory: Memory, scope: Scope, role: Role, dtype: DType
) -> MappedBuffer:
    ranked = memory is Memory.CLUSTER
    layout = staged(row_major(shape[1:]), shape[0], Unit.RANK) if ranked else row_major(shape)
    return MappedBuffer(name=name, dtype=dtype, memory=memory, scope=scope, layout=layout, role=role)
