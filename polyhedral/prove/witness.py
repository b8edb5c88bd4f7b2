"""Counterexamples: the least point of a set of violations, in names and numbers, and in the words of a message.

Sizes come first (each as small as can be, in order of appearance), then the iterations. The mapping of a `Diagnostic`
names indices as the core tree does, so that the interpreter can replay it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from texpr.grammar.ast import Buffer, Gather, IndexExpr
from texpr.grammar.index.value import index_value
from texpr.polyhedral import isl
from texpr.polyhedral.facts import size_names
from texpr.polyhedral.isl import least_point
from texpr.polyhedral.program import Access, Program, ProgramStatement


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """Two instances: values of the free sizes, then of the loops around each."""

    sizes: tuple[int, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]


def least(program: Program, points: isl.Set) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The least values of all free sizes at which a non-empty set has a point, and its least point there. Sizes that
    the set does not name have the least values that are known to be possible."""
    facts = program.facts
    names = facts.names(points)
    point = least_point(facts.ordered(points))
    values = dict(zip(names, point, strict=False))
    for group in facts.groups if len(names) < len(facts.sizes) else ():
        if values.keys().isdisjoint(size_names(group)):
            values |= zip(size_names(group), least_point(group), strict=True)
    return tuple(values[name] for name in facts.sizes), point[len(names) :]


def least_pair(program: Program, pairs: isl.Map, first: ProgramStatement) -> Pair:
    """The lexicographically least pair of a non-empty relation between instances."""
    sizes, point = least(program, pairs.wrap().flatten())
    return Pair(sizes, point[: len(first.loops)], point[len(first.loops) :])


def sizes_mapping(program: Program, values: Sequence[int]) -> dict[str, int]:
    return {size.name: value for size, value in zip(program.kernel.sizes, values, strict=True)}


def instance_mapping(statement: ProgramStatement, values: Sequence[int]) -> dict[str, int]:
    return {loop.index: value for loop, value in zip(statement.loops, values, strict=True)}


def instance_text(program: Program, statement: ProgramStatement, sizes: Sequence[int], values: Sequence[int]) -> str:
    """`i = 1, j = 3`, in the author's names and ranges; empty outside all loops."""
    environment = {**sizes_mapping(program, sizes), **instance_mapping(statement, values)}
    return ", ".join(
        f"{loop.node.source_name} = {value + int(index_value(loop.node.low, environment))}"
        for loop, value in zip(statement.loops, values, strict=True)
    )


def sizes_text(program: Program, values: Sequence[int]) -> str:
    """`with N = 1, ` before the words of a label; empty when all sizes are bound."""
    if not values:
        return ""
    return "with " + ", ".join(f"{s.name} = {v}" for s, v in zip(program.kernel.sizes, values, strict=True)) + ", "


def touched(
    access: Access,
    environment: Mapping[str, int],
    element: Sequence[int],
    outer: int,
    flat_strides: Sequence[IndexExpr],
) -> tuple[int, ...]:
    """The subscripts of an access at an instance; gathered ones are taken from the element, a point of its relation."""
    if flat_strides:
        strides = [int(index_value(stride, environment)) for stride in flat_strides]
        return (sum(s * c for s, c in zip(strides, element[outer:], strict=True)),)
    return tuple(
        element[outer + k] if isinstance(subscript, Gather) else int(index_value(subscript, environment))
        for k, subscript in enumerate(access.subscripts)
    )


def element_text(buffer: Buffer, element: Sequence[int]) -> str:
    """`C[0, 3]`, or the bare name at rank 0."""
    name = buffer.source_name or buffer.name
    return f"{name}[{', '.join(str(c) for c in element)}]" if element else name
