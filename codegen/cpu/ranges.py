"""Guards become loop bounds: the body of a launch as Python will loop over it.

A guard that fills a loop's body is cut into parts. A part that is linear in the loop's index bounds its range; a part
without the index moves before the loop; the rest stays. LLVM vectorises a loop without a branch much better.

    loop v < 4096: define i = 4096*c + v; guard i < N: S    ->    for v in range(min(4096, N - 4096*c)): i = …; S
"""

from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass, replace
from typing import assert_never

from texpr.grammar.ast import (
    Always,
    And,
    Compare,
    CompareOp,
    Condition,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexOp,
    IndexVar,
    Not,
    Or,
    Read,
)
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.expr import ONE, add, combine, conjunction, const
from texpr.grammar.index.linear import Linear, constant, linear
from texpr.grammar.records import dataclass
from texpr.grammar.source import NO_SPAN, Span
from texpr.grammar.types import DType
from texpr.polyhedral.mapped.operators import Elementwise, Generic
from texpr.polyhedral.mapped.tree import Define, Fresh, Guard, Loop, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """`for index in range(low, high)`. `cores`: the iterations of one part of a parallel launch."""

    index: str
    low: IndexExpr
    high: IndexExpr
    body: tuple["CpuNode", ...]
    unroll: bool = False
    cores: bool = False
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    condition: Condition | Read
    body: tuple["CpuNode", ...]
    orelse: tuple["CpuNode", ...] = ()
    span: Span = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """`index = source // stride % radix`: one digit of a counter."""

    index: str
    source: str
    stride: IndexExpr
    radix: IndexExpr


CpuNode = Define | Split | Range | Branch | Generic | Elementwise | Fresh


def bound_ranges(body: tuple[Node, ...]) -> tuple[CpuNode, ...]:
    """The body with every guard that bounds a loop made its bound; statement instances and their order are kept."""
    result: list[CpuNode] = []
    for node in body:
        match node:
            case Define() | Generic() | Elementwise() | Fresh():
                result.append(node)
            case Guard(condition=condition, body=inner, orelse=orelse):
                branch = Branch(
                    condition=condition, body=bound_ranges(inner), orelse=bound_ranges(orelse), span=node.span
                )
                _append(result, branch)
            case Loop():
                _append(result, _range(node))
            case _:
                raise fail("E0502", f"{type(node).__name__} is not emitted for a CPU")
    return tuple(result)


def _append(result: list[CpuNode], node: CpuNode) -> None:
    """Append, joining neighbours under one affine condition: statements cannot change its value."""
    last = result[-1] if result else None
    if (
        isinstance(node, Branch)
        and isinstance(last, Branch)
        and not isinstance(node.condition, Read)
        and node.condition == last.condition
        and not node.orelse
        and not last.orelse
    ):
        result[-1] = Branch(condition=last.condition, body=last.body + node.body, span=last.span)
    else:
        result.append(node)


def _range(loop: Loop) -> CpuNode:
    body = bound_ranges(loop.body)
    low: IndexExpr = IndexConst(value=0)
    high = loop.extent
    before: list[Condition] = []
    count = 0
    definitions: dict[str, Linear] = {}
    while count < len(body) and isinstance(node := body[count], Define | Fresh):
        count += 1
        if isinstance(node, Define):
            definitions[node.index] = _defined(node, definitions)
    branch = body[count] if count == len(body) - 1 else None
    if isinstance(branch, Branch) and not branch.orelse and not isinstance(branch.condition, Read):
        rest: list[Condition] = []
        for part in _parts(branch.condition):
            bounds = _bounds(part, loop.index, definitions)
            if bounds is None:
                rest.append(part)
            elif not isinstance(bounds, tuple):
                before.append(bounds)
            else:
                low, high = _meet(IndexOp.MAX, low, bounds[0]), _meet(IndexOp.MIN, high, bounds[1])
        inside: tuple[CpuNode, ...] = branch.body
        if rest:
            inside = (Branch(condition=conjunction(rest), body=branch.body, span=branch.span),)
        body = (*body[:count], *inside)
    result: CpuNode = Range(index=loop.index, low=low, high=high, body=body, unroll=loop.unroll, span=loop.span)
    if before:
        result = Branch(condition=conjunction(before), body=(result,), span=loop.span)
    return result


def _meet(op: IndexOp, left: IndexExpr, right: IndexExpr | None) -> IndexExpr:
    return left if right is None else combine(op, left, right)


def _parts(condition: Condition) -> tuple[Condition, ...]:
    match condition:
        case And(parts=parts):
            return tuple(p for part in parts for p in _parts(part))
        case Compare() | Or() | Not() | Always():
            return (condition,)
        case _:
            assert_never(condition)


Bounds = tuple[IndexExpr | None, IndexExpr | None]


def _bounds(part: Condition, index: str, definitions: dict[str, Linear]) -> Bounds | Condition | None:
    """What a condition says of `index`: bounds [low, high), or itself without it, or None where it is not linear."""
    match part:
        case Always():
            return part
        case Compare(op=op, left=left, right=right):
            difference = linear(left, definitions) - linear(right, definitions)
        case And() | Or() | Not():
            return None
        case _:
            assert_never(part)
    step = difference.coefficient(index)
    if step is None or (op is CompareOp.NE and step != 0):
        return None
    if step == 0:
        return _rearranged(op, difference)
    match op:
        case CompareOp.LT:
            return _at_most(difference + 1, index, step)
        case CompareOp.LE:
            return _at_most(difference, index, step)
        case CompareOp.GT:
            return _at_most(constant(1) - difference, index, -step)
        case CompareOp.GE:
            return _at_most(-difference, index, -step)
        case CompareOp.EQ if abs(step) == 1:
            value = difference.without(index) * -step
            return value.expression(), (value + 1).expression()
        case _:
            return None


def _rearranged(op: CompareOp, difference: Linear) -> Compare:
    """`difference op 0` with the negative terms on the right."""
    left = difference.part(lambda _, factor: factor > 0)
    return Compare(op=op, left=left.expression(), right=(left - difference).expression())


def _at_most(form: Linear, index: str, step: int) -> Bounds:
    """Bounds of `index` where `form <= 0` and its coefficient there is `step`."""
    rest = form.without(index)
    if step == 1:
        return None, (constant(1) - rest).expression()
    if step > 0:  # index <= floor(-rest / step)
        return None, add(combine(IndexOp.DIV, (-rest).expression(), const(step)), ONE)
    if step == -1:
        return rest.expression(), None
    return combine(IndexOp.CEILDIV, rest.expression(), const(-step)), None


def flattened(cores: Range) -> Range:
    """One loop instead of two, where the cores' chunks of an index lie end to end.

    for c in range(first, last): for v in range(min(1024, N - 1024*c)): i = 1024*c + v; S(i)
        ->   for i in range(1024*first, min(1024*last, N)): S(i)
    """
    definitions: dict[str, Linear] = {}
    if not cores.body or not isinstance(inner := cores.body[-1], Range) or inner.low != IndexConst(value=0):
        return cores
    for node in cores.body[:-1]:
        if not isinstance(node, Define):
            return cores
        definitions[node.index] = _defined(node, definitions)
    outer = dict(definitions)
    if not inner.body or not isinstance(define := inner.body[0], Define):
        return cores
    index = _defined(define, definitions)
    width = index.coefficient(cores.index)
    if not width or index != _variable(cores.index) * width + _variable(inner.index):
        return cores
    ends: list[Linear] = []
    for limit in _limits(inner.high):
        if limit != IndexConst(value=width):
            end = linear(limit, outer) + _variable(cores.index) * width
            if end.coefficient(cores.index) != 0:
                return cores
            ends.append(end)
    if IndexConst(value=width) not in _limits(inner.high) or names_in(inner.body[1:]) & {
        cores.index,
        inner.index,
        *outer,
    }:
        return cores
    low = (linear(cores.low) * width).expression()
    high = (linear(cores.high) * width).expression()
    for end in ends:
        high = _meet(IndexOp.MIN, high, end.expression())
    return Range(index=define.index, low=low, high=high, body=inner.body[1:], cores=cores.cores, span=inner.span)


def over_indices(body: tuple[CpuNode, ...], outside: Mapping[str, Linear] | None = None) -> tuple[CpuNode, ...]:
    """The body with every loop over a part of an index made one over the index itself, where nothing else has the part;
    `outside` has what the definitions around say.

    for v in range(min(4096, N - first)): i = first + v; S(i)    ->    for i in range(first, min(first + 4096, N)): S(i)
    """
    definitions = dict(outside or {})
    found: list[CpuNode] = []
    for node in body:
        match node:
            case Define():
                definitions[node.index] = _defined(node, definitions)
            case Branch():
                then, orelse = over_indices(node.body, definitions), over_indices(node.orelse, definitions)
                node = replace(node, body=then, orelse=orelse)
            case Range():
                node = _over_index(node, definitions)
                inside = {name: form for name, form in definitions.items() if name != node.index}
                node = replace(node, body=over_indices(node.body, inside))
        found.append(node)
    return tuple(found)


def _over_index(loop: Range, definitions: Mapping[str, Linear]) -> Range:
    known = isinstance(loop.low, IndexConst) and isinstance(loop.high, IndexConst)
    if known or loop.cores or loop.unroll or not loop.body or not isinstance(define := loop.body[0], Define):
        return loop
    own = {**definitions, loop.index: _variable(loop.index)}
    index = _defined(define, own)
    start = index - _variable(loop.index)
    if start.coefficient(loop.index) != 0 or loop.index in names_in(loop.body[1:]):
        return loop
    high = None
    for limit in _limits(loop.high):
        end = (start + linear(limit, dict(definitions))).expression()
        high = end if high is None else _meet(IndexOp.MIN, high, end)
    assert high is not None
    low = (start + linear(loop.low, dict(definitions))).expression()
    return replace(loop, index=define.index, low=low, high=high, body=loop.body[1:])


def _variable(name: str) -> Linear:
    return linear(IndexVar(name=name))


def _defined(define: Define, definitions: dict[str, Linear]) -> Linear:
    total = constant(0)
    for digit in define.digits:
        total += linear(IndexVar(name=digit.name), definitions) * digit.weight
    return total + linear(define.offset, definitions)


def _limits(high: IndexExpr) -> tuple[IndexExpr, ...]:
    if isinstance(high, IndexBinary) and high.op is IndexOp.MIN:
        return _limits(high.left) + _limits(high.right)
    return (high,)


def names_in(value: object) -> frozenset[str]:
    """Every index name that a tree, or a tuple of trees, uses."""
    found: set[str] = set()
    stack: list[object] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, IndexVar):
            found.add(item.name)
        elif isinstance(item, Define):
            found.update(digit.name for digit in item.digits)
            stack.append(item.offset)
        elif isinstance(item, Split):
            found.add(item.source)
            stack += [item.stride, item.radix]
        elif isinstance(item, tuple):
            stack.extend(item)
        elif is_dataclass(item) and not isinstance(item, type | Span | DType):
            stack.extend(getattr(item, f.name) for f in fields(item))
    return frozenset(found)
