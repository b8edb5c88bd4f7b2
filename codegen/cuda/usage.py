"""What a block graph uses: tensors with how, sizes, indices. Only what is used is declared in the text."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from texpr.codegen.graph import BlockGraph, BlockNode, Define, Fresh, Generic, Guard, Loop
from texpr.grammar.ast import (
    Always,
    And,
    Cast,
    Compare,
    Condition,
    ConditionValue,
    Const,
    Expr,
    Gather,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexValue,
    IndexVar,
    Not,
    Op,
    Or,
    Read,
    Select,
    SizeVar,
    Subscript,
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Names used in one block graph. `indices` has digits and host indices too."""

    read: frozenset[str]
    written: frozenset[str]
    indices: frozenset[str]
    sizes: frozenset[str]

    @property
    def tensors(self) -> frozenset[str]:
        return self.read | self.written


Part = Expr | Subscript | Condition


def parts_of(roots: Iterable[Part]) -> Iterator[Part]:
    """Every node of value, index and condition trees. Walks without recursion."""
    work = list(roots)
    while work:
        part = work.pop()
        yield part
        match part:
            case IndexBinary(left=left, right=right) | Compare(left=left, right=right):
                work += [left, right]
            case And(parts=parts) | Or(parts=parts):
                work += parts
            case Not(part=inner) | IndexValue(index=inner) | ConditionValue(condition=inner):
                work.append(inner)
            case Op(args=args):
                work += args
            case Cast(operand=inner) | Gather(value=inner):
                work.append(inner)
            case Read(subscripts=subscripts):
                work += subscripts
            case Select(condition=condition, then=then, other=other):
                work += [condition, then, other]
            case IndexConst() | IndexVar() | SizeVar() | Const() | Always():
                pass


def nodes_of(body: Iterable[BlockNode]) -> Iterator[BlockNode]:
    """Every node of a body, parents before children, in text order."""
    work = list(body)[::-1]
    while work:
        node = work.pop()
        yield node
        match node:
            case Loop(body=inner):
                work.extend(reversed(inner))
            case Guard(body=inner, orelse=orelse):
                work.extend(reversed(inner + orelse))
            case Define() | Generic() | Fresh():
                pass


def usage_of(graph: BlockGraph, layouts: dict[str, tuple[IndexExpr, ...]]) -> Usage:
    """The usage of a graph; `layouts` has the expressions that an access to each tensor brings in (strides, and the
    extents that gathered subscripts are checked against)."""
    roots: list[Part] = []
    written: set[str] = set()
    defines: dict[str, tuple[str, ...]] = {}
    for node in nodes_of(graph.body):
        match node:
            case Loop(extent=extent):
                roots.append(extent)
            case Guard(condition=condition):
                roots.append(condition)
            case Generic(leaf=leaf, store=store):
                roots.append(leaf.value)
                if store is not None:
                    roots += store.subscripts
                    written.add(store.tensor)
            case Define(index=index, terms=terms):
                defines[index] = defines.get(index, ()) + tuple(name for _, name in terms)
            case Fresh():
                pass
    read, indices, sizes = _names(roots)
    sizes |= _names([e for t in sorted(read | written) for e in layouts.get(t, ())])[2]
    pending = list(indices)
    while pending:
        for name in defines.get(pending.pop(), ()):
            if name not in indices:
                indices.add(name)
                pending.append(name)
    for digit in graph.digits:
        if digit.name in indices:
            more = _names([digit.radix, digit.stride])
            indices |= more[1]
            sizes |= more[2]
    return Usage(frozenset(read), frozenset(written), frozenset(indices), frozenset(sizes))


def _names(roots: list[Part]) -> tuple[set[str], set[str], set[str]]:
    read: set[str] = set()
    indices: set[str] = set()
    sizes: set[str] = set()
    for part in parts_of(roots):
        match part:
            case Read(buffer=name):
                read.add(name)
            case IndexVar(name=name):
                indices.add(name)
            case SizeVar(name=name):
                sizes.add(name)
            case _:  # the other kinds hold no name
                pass
    return read, indices, sizes
