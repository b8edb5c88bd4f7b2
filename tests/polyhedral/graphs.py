"""Mapped programs written by hand, in the words of their printed form:

    program(
        "A: i32[K, 64], B: i32[64]",
        loop("K", "k", copy("S0", "a[i] = A[k, i]", over="i < 64")),
        do("S1", "B[j] = a[j]"),
        shared={"a": (64,)}, threads=64,
    )

The texts are those of `written.py`.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stages import proved
from written import Types, condition, element, index, leaf, parsed, span_of, value

from texpr.grammar.ast import (
    Always,
    Const,
    IndexConst,
    IndexExpr,
    Role,
)
from texpr.grammar.types import I32, DType
from texpr.polyhedral.layout.make import row_major, staged
from texpr.polyhedral.layout.value import Unit, Xor
from texpr.polyhedral.mapped.access import Access, Completion
from texpr.polyhedral.mapped.between import Words
from texpr.polyhedral.mapped.candidate import Candidate
from texpr.polyhedral.mapped.operators import Copy, Elementwise, Generic, Reduce, Scan, Unused
from texpr.polyhedral.mapped.order import Order
from texpr.polyhedral.mapped.places import Digit, Memory, Place, Scope
from texpr.polyhedral.mapped.program import HostNode, Launch, MappedBuffer, MappedProgram
from texpr.polyhedral.mapped.sync import Action, Barrier, Pipe
from texpr.polyhedral.mapped.tree import Define, Guard, Last, Loop, Node, Part, Parts
from texpr.polyhedral.mapped.views import Box, View, Within
from texpr.polyhedral.mapped.walks import launches, located, tree_writes
from texpr.polyhedral.program import Hazard
from texpr.polyhedral.target import parse_target

_PLACES = {"grid": Place.GRID_X, "grid_y": Place.GRID_Y, "rank": Place.CLUSTER}


def do(
    id: str, text: str, *, once: bool = False, atomic: bool = False, types: Types | None = None, fast: bool = False
) -> Generic:
    """A statement of every thread that reaches it, or of the first one."""
    unused = Unused.ONCE if once else Unused.REPLICATED
    return Generic(id=id, leaf=leaf(id, text, types, fast=fast), unused=unused, atomic=atomic)


def box(over: str) -> Box:
    """`q < 2, e < 8`."""
    pairs = [part.split("<") for part in over.split(",") if part]
    return tuple((name.strip(), index(extent.strip())) for name, extent in pairs)


def view(text: str, types: Types | None = None) -> View:
    buffer, subscripts = element(parsed(text))
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
        span=span_of(f"{id}: {text}"),
    )


def each(id: str, over: str, *texts: str, types: Types | None = None, fast: bool = False) -> Elementwise:
    """Statements of one thread for every element of a box."""
    leaves = tuple(leaf(id, text, types, fast=fast) for text in texts)
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
        span=span_of(f"{id}: {targets} = {monoid} of {', '.join(values)}"),
    )


def scan(id: str, targets: str, *values: str, monoid: str, exclusive: bool = False, **how: Any) -> Scan:
    """The targets, as `p[x]; n[x]`, become the values up to each combined."""
    found = reduce(id, targets, *values, monoid=monoid, **how)
    fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    return Scan(**fields, exclusive=exclusive)


def define(name: str, offset: str | int = 0, weight: int = 1, **places: int | str) -> Define:
    """An index as a sum of hardware digits, `lane=32` having 32 values: the first has the weight given. A place of so
    many as a text says is the last one."""
    digits = []
    for place, radix in places.items():
        where = _PLACES.get(place) or Place(place)
        stride = IndexConst(value=1)
        digits.append(
            Digit(
                name=f"{name}_{place}",
                index=name,
                weight=weight,
                radix=index(radix),
                stride=stride,
                place=where,
            )
        )
        weight *= radix if isinstance(radix, int) else 1
    return Define(index=name, digits=tuple(digits), offset=index(offset))


def loop(index_name: str, extent: str | int, *body: Node, unroll: bool = False) -> Loop:
    return Loop(index=index_name, extent=index(extent), body=body, unroll=unroll)


def when(text: str, *body: Node, orelse: Sequence[Node] = ()) -> Guard:
    return Guard(condition=condition(text), body=body, orelse=tuple(orelse))


def once(*body: Node) -> Guard:
    """What the first thread of the block, or of the part, does alone."""
    return Guard(condition=Always(value=True), body=body, once=True)


def barrier(scope: str, *parts: str, action: str = "both", name: str = "", relaxed: bool = False) -> Barrier:
    return Barrier(scope=Scope(scope), parts=parts, action=Action(action), name=name, relaxed=relaxed)


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
    grid: str | int | tuple[str, str] = 1,
    cluster: int = 1,
    pipes: Sequence[Pipe] = (),
    orders: Sequence[Order] = (),
) -> Launch:
    digits = {d.name: d for p in located(body) if isinstance(p.node, Define) for d in p.node.digits}
    across, down = grid if isinstance(grid, tuple) else (grid, 1)
    return Launch(
        name=name,
        grid=(index(across), index(down), index(1)),
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
    swizzles: Mapping[str, Xor] | None = None,
    facts: str = "",
) -> MappedProgram:
    """The launches with their parameters and locals, of sizes of which `facts` hold. A buffer in cluster memory has the
    rank as its first subscript."""
    written = {name for one in launches(host) for name in tree_writes(one.body)}
    arrays = re.findall(r"(\w+): \w+\[([^]]*)\]", parameters)
    body = "".join(_written(name, shape) for name, shape in arrays if name in written)
    known = f"where {facts} " if facts else ""
    base = proved(f"kernel hand({parameters}) {known}{{ {body} }}")
    buffers = {
        b.name: replace(_buffer(b.name, b.shape, Memory.GLOBAL, Scope.GRID, b.role, b.dtype), align=b.align)
        for b in base.program.kernel.params
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
            buffer = _buffer(name, tuple(map(index, shape)), memory, scope, Role.LOCAL, dtype)
            buffers[name] = replace(buffer, layout=replace(buffer.layout, xor=(swizzles or {}).get(name)))
    return MappedProgram(
        kernel=base.program.kernel,
        proved=base,
        target=parse_target("cuda:sm_90a"),
        candidate=Candidate(launches={}),
        host=host,
        buffers=buffers,
        words=tuple(words),
    )


def _written(array: str, shape: str) -> str:
    """A statement that writes an array: what is proved of a program by hand is what it writes."""
    extents = shape.split(",")
    band = ", ".join(f"{extent} {array}_z{number}" for number, extent in enumerate(extents))
    element = ", ".join(f"{array}_z{number}" for number in range(len(extents)))
    return f"par {band} {{ {array}[{element}] = 0 }}; "


def _buffer(
    name: str, shape: tuple[IndexExpr, ...], memory: Memory, scope: Scope, role: Role, dtype: DType
) -> MappedBuffer:
    ranked = memory is Memory.CLUSTER
    layout = staged(row_major(shape[1:]), shape[0], Unit.RANK) if ranked else row_major(shape)
    return MappedBuffer(name=name, dtype=dtype, memory=memory, scope=scope, layout=layout, role=role)
