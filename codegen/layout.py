"""Layouts: the strides of every block tensor.

A layout that the mapping fixed is kept; a free one becomes row-major and dense. Strides and extents in elements.

    t: shape (4, 8), free   ->   (8, 1)
"""

from itertools import product
from math import prod

from texpr.codegen.graph import BlockGraph, BlockTensor
from texpr.grammar.diagnostics import InternalError

Strides = dict[str, tuple[int, ...]]

MAX_ENUMERATED = 1 << 16  # elements up to which injectivity is checked one by one


def choose_layouts(graph: BlockGraph) -> Strides:
    """The strides of every block tensor of a graph, by name."""
    return {t.name: t.strides if t.strides is not None else _row_major(t.shape) for t in graph.tensors}


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(max(extent, 1) for extent in shape[dim + 1 :]) for dim in range(len(shape)))


def span_elements(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The number of elements from the first to the last one of a tensor, holes included; 0 when it is empty."""
    if any(extent <= 0 for extent in shape):
        return 0
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


def check_layouts(graph: BlockGraph, strides: Strides) -> None:
    """Verify a layout plan: InternalError unless every tensor has one non-negative stride per dimension and no two
    elements share an address. Small tensors are enumerated; of large ones the strides, sorted, must nest."""
    if set(strides) != {t.name for t in graph.tensors}:
        raise InternalError(f"{graph.name}: the layout plan and the tensors differ")
    for tensor in graph.tensors:
        if not _injective(tensor, strides[tensor.name]):
            raise InternalError(f"{graph.name}: the layout {strides[tensor.name]} of {tensor.name} is not injective")


def _injective(tensor: BlockTensor, strides: tuple[int, ...]) -> bool:
    if len(strides) != len(tensor.shape) or any(s < 0 for s in strides):
        return False
    count = 1
    for extent in tensor.shape:
        count *= max(extent, 0)
    if count <= MAX_ENUMERATED:
        cells = product(*(range(extent) for extent in tensor.shape))
        return len({sum(i * s for i, s in zip(cell, strides, strict=True)) for cell in cells}) == count
    reach = 0
    for stride, extent in sorted(zip(strides, tensor.shape, strict=True)):
        if extent > 1:
            if stride <= reach:
                return False
            reach += (extent - 1) * stride
    return True
