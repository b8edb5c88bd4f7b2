"""Strides: where the elements of a buffer lie among one another, counted in elements.

A layout that the mapping fixed is kept; a free one becomes row-major and dense. What lies in a block has constant
extents and strides.

    t: shape (4, 8), free   ->   (8, 1)
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import assert_never

from texpr.grammar.ast import IndexConst, IndexExpr
from texpr.grammar.diagnostics import InternalError, fail
from texpr.grammar.index.expr import const, row_major
from texpr.polyhedral.mapped.program import Fixed, Free, MappedBuffer

Strides = Mapping[str, tuple[IndexExpr, ...]]

MAX_ENUMERATED = 1 << 16  # elements up to which injectivity is checked one by one


def choose_strides(buffers: Iterable[MappedBuffer], own: Sequence[MappedBuffer]) -> dict[str, tuple[IndexExpr, ...]]:
    """The strides of every buffer, by name; `own` are those of blocks and threads. Raises E0403."""
    inside = {buffer.name for buffer in own}
    found: dict[str, tuple[IndexExpr, ...]] = {}
    for buffer in buffers:
        match buffer.layout:
            case Fixed(strides=strides):
                found[buffer.name] = strides
            case Free() if buffer.name in inside:
                shape = tuple(const(max(extent, 1)) for extent in numbers(buffer, buffer.shape))
                found[buffer.name] = row_major(shape)
            case Free():
                found[buffer.name] = row_major(buffer.shape)
            case _:
                assert_never(buffer.layout)
    return found


def numbers(buffer: MappedBuffer, exprs: Iterable[IndexExpr]) -> tuple[int, ...]:
    """Extents or strides of a buffer in a block. Raises E0403 where one is no number."""
    found: list[int] = []
    for expr in exprs:
        if not isinstance(expr, IndexConst):
            raise fail(
                "E0403",
                f"{buffer.name} is placed in {buffer.memory} memory, so its extents must be numbers",
                buffer.span,
                help="bind the size at compile time, or place the buffer with `new global`",
            )
        found.append(expr.value)
    return tuple(found)


def span_elements(buffer: MappedBuffer, strides: Sequence[IndexExpr]) -> int:
    """The elements from the first to the last one of a buffer in a block, holes included; 0 when it is empty."""
    shape = numbers(buffer, buffer.shape)
    if any(extent <= 0 for extent in shape):
        return 0
    steps = numbers(buffer, strides)
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, steps, strict=True))


def check_strides(own: Sequence[MappedBuffer], strides: Strides) -> None:
    """InternalError unless every buffer of a block has one non-negative stride per dimension and no two elements share
    an address. Small buffers are enumerated; of large ones the strides, sorted, must nest."""
    for buffer in own:
        if not _injective(numbers(buffer, buffer.shape), numbers(buffer, strides[buffer.name])):
            raise InternalError(f"the layout {strides[buffer.name]} of {buffer.name} is not injective")


def _injective(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if len(strides) != len(shape) or any(s < 0 for s in strides):
        return False
    count = 1
    for extent in shape:
        count *= max(extent, 0)
    if count <= MAX_ENUMERATED:
        cells = product(*(range(extent) for extent in shape))
        return len({sum(i * s for i, s in zip(cell, strides, strict=True)) for cell in cells}) == count
    reach = 0
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent > 1:
            if stride <= reach:
                return False
            reach += (extent - 1) * stride
    return True
