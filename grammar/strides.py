"""Arrays in memory, in integers: strides of dense ones, and how far an array reaches; how expressions name where one
begins. Standard library only.

dense((2, 3, 4))              (12, 4, 1)
reach((2, 3), (-3, 1))        (-3, 3)         from the least address to one after the greatest, its first element at 0
"""

from collections.abc import Sequence


def address_name(parameter: str) -> str:
    """The address of a parameter's first element in bytes, as a name in expressions: no other name has brackets."""
    return f"address({parameter})"


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a row-major array without holes."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def reach(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The half-open range of addresses that an array's elements lie in; (0, 0) where it has none."""
    if any(extent <= 0 for extent in shape):
        return 0, 0
    ends = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends) + 1
