"""What a program says around a sum, element by element: what stands before it, what becomes of it, and what it leaves.

    let b = f32(bias[j])                          leaves     b = f32(bias[j])
    C[i, j] = relu(b + sum K k { … })                        s = #sum_0
                                                             C[i, j] = relu(b + s)
                                                  outputs    C[i, j]

All leaves run in order where the sum is there, for one iteration by one thread. A sum that begins with something else
than 0 is added to that: additions of one accumulation have no order. An array that a leaf writes is touched at one
element alone, so iterations stay apart, and what is read of it after is what was bound. What several iterations of the
band accumulate in one element is `over` them: of `S[i] += s` every thread has a part (`row_parts.py`).
"""

from collections.abc import Sequence
from dataclasses import replace

from texpr.grammar.ast import Accumulate, Bind, Cast, Const, Expr, Gather, IndexVar, Leaf, New, Read, Role, Seq, Stmt
from texpr.grammar.permissions import keeps_order
from texpr.grammar.records import dataclass
from texpr.grammar.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, U8, DType
from texpr.grammar.walk import walk
from texpr.polyhedral.map.conflicts import shared_updates
from texpr.polyhedral.map.contraction import Contraction
from texpr.polyhedral.map.long_sums import narrow
from texpr.polyhedral.map.problem import Problem
from texpr.polyhedral.map.vectors import Element
from texpr.polyhedral.walk import touched, written

SUM = "#sum_"
"""What the names of the buffers, of no dimension, begin with that have what sums come to; behind it their numbers."""

# Types of what holds a sum, by the type that it is made in.
SUMMED = {F64: (F64, F32, F16, BF16), F32: (F32, F16, BF16, F8E4M3, F8E5M2), I32: (I32, I16, I8, U8)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An element of an array that an iteration leaves, its type, and the last leaf that writes it."""

    element: Element
    dtype: DType
    leaf: Leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class Epilogue:
    """`leaves` in order, of which `sums` read what each sum comes to; `locals` are the scalars that an iteration has
    for itself; those `over` the band add to what other iterations do. Where it is `plain` the one output is the one
    sum, rounded once to its type."""

    leaves: tuple[Leaf, ...]
    sums: tuple[Leaf, ...]
    locals: tuple[str, ...]
    outputs: tuple[Output, ...]
    plain: bool
    over: tuple[Accumulate, ...]

    @property
    def rows(self) -> tuple[Output, ...]:
        """What is left where no element of its own is: those over the band."""
        return tuple(Output(element=(own.buffer, own.subscripts), dtype=F32, leaf=own) for own in self.over)


def epilogue(problem: Problem, ones: Sequence[Contraction], body: Sequence[Stmt]) -> Epilogue | None:
    """What is around the sums of the contractions of a body; None where it is more than leaves, each once for every
    iteration."""
    leaves, sums, local = list[Leaf](), list[Leaf](), list[str]()
    for stmt in body:
        match stmt:
            case New(buffer=name):
                local.append(name)
            case Seq():
                number = next((n for n, one in enumerate(ones) if one.work.at(stmt) is not None), None)
                if number is None:
                    return None
                own, leaves = _sums(ones[number], leaves, f"{SUM}{number}")
                leaves.append(own)
                sums.append(own)
            case Bind() | Accumulate():
                leaves.append(stmt)
            case _:
                return None
    kernel = problem.proved.program.kernel
    if any(kernel.buffer(one.update.buffer).dtype not in SUMMED.get(one.dtype, ()) for one in ones):
        return None
    several = (_of_several(problem, ones[0], leaf, local) for leaf in leaves)
    over = tuple(leaf for leaf in several if leaf is not None)
    outputs = _outputs(problem, [leaf for leaf in leaves if leaf not in over], local)
    if outputs is None or not (outputs or over) or not all(_is_alone(problem, own, leaves) for own in over):
        return None
    plain = leaves[0] is sums[0] and len(sums) == 1 and _rounded_once(problem, sums[0], leaves[1:], local)
    return Epilogue(
        leaves=tuple(leaves), sums=tuple(sums), locals=tuple(local), outputs=outputs, plain=plain, over=over
    )


def _sums(one: Contraction, before: list[Leaf], name: str) -> tuple[Leaf, list[Leaf]]:
    """The leaf that takes the sum of a name, and what is left before it: a bind of 0 is not."""
    update = one.update
    target = (update.buffer, update.subscripts)
    total = Read(buffer=name, subscripts=(), dtype=one.dtype, span=update.span)
    last = max((n for n, leaf in enumerate(before) if _touches(leaf, target)), default=None)
    if last is not None and _is_zero_of(before[last], target):
        bound = before[last]
        value: Expr = total if bound.value.dtype == one.dtype else Cast(operand=total, dtype=bound.value.dtype)
        sums = replace(bound, id=update.id, value=value, span=update.span, attrs=update.attrs)
        return sums, [*before[:last], *before[last + 1 :]]
    return replace(update, value=total), before


def _touches(leaf: Leaf, target: Element) -> bool:
    return target in touched(leaf)


def _is_zero_of(leaf: Leaf, target: Element) -> bool:
    return (
        isinstance(leaf, Bind) and written(leaf) == target and isinstance(leaf.value, Const) and leaf.value.value == 0
    )


def _of_several(problem: Problem, one: Contraction, leaf: Leaf, local: Sequence[str]) -> Accumulate | None:
    """The leaf, where several iterations of the band update the element of an array: that is a sum over the band."""
    if not isinstance(leaf, Accumulate) or leaf.buffer in local:
        return None
    return leaf if shared_updates(problem.proved.program, leaf.id, one.nest.indices) else None


def _is_alone(problem: Problem, leaf: Accumulate, leaves: Sequence[Leaf]) -> bool:
    """Whether a leaf over the band adds f32 to an array that no other one touches, at indices of the band, in any
    order."""
    array = problem.kernel.buffer(leaf.buffer)
    kept = array.role is Role.LOCAL and array.source_name in problem.kept.buffers
    value = narrow(leaf.value) if kept or leaf.id in problem.long else leaf.value
    others = (name for other in leaves if other is not leaf for name, _ in touched(other))
    plain = all(isinstance(s, IndexVar) for s in leaf.subscripts) and len({*leaf.subscripts}) == len(leaf.subscripts)
    read = any(isinstance(node, Read) and node.buffer == leaf.buffer for node in walk(leaf.value))
    floats = value.dtype == F32 and array.dtype.is_float
    return plain and floats and not read and not keeps_order(leaf) and leaf.buffer not in others


def _outputs(problem: Problem, leaves: Sequence[Leaf], local: Sequence[str]) -> tuple[Output, ...] | None:
    """What the leaves leave in arrays; None where they touch another element of one of these."""
    found: dict[str, Output] = {}
    for leaf in leaves:
        element = written(leaf)
        assert element is not None, "a bind or an accumulation"
        if element[0] not in local:
            dtype = problem.kernel.buffer(element[0]).dtype
            found[element[0]] = Output(element=element, dtype=dtype, leaf=leaf)
    for leaf in leaves:
        for name, subscripts in touched(leaf):
            if name in found and found[name].element[1] != subscripts:
                return None
    gathered = any(isinstance(s, Gather) for output in found.values() for s in output.element[1])
    return None if gathered else tuple(found.values())


def _rounded_once(problem: Problem, sums: Leaf, after: Sequence[Leaf], local: Sequence[str]) -> bool:
    """Whether the sum is stored as it is, or rounded once and nowhere else."""
    held = written(sums)
    assert held is not None, "a bind or an accumulation"
    if isinstance(sums, Accumulate):
        return False
    if not after:
        return held[0] not in local
    (final, *more) = after
    if more or not isinstance(final, Bind) or held[0] not in local:
        return False
    value, rounded = final.value, problem.kernel.buffer(final.buffer).dtype
    if rounded.is_integer:
        return isinstance(value, Read) and value.buffer == held[0] and value.dtype == rounded == I32
    while isinstance(value, Cast) and value.dtype in (F32, F64, rounded):
        value = value.operand
    if not isinstance(value, Read) or value.buffer != held[0]:
        return False
    return problem.proved.program.kernel.buffer(held[0]).dtype in (F32, rounded)
