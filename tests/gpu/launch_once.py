"""A launch of a kernel that no manifest describes, through the runtime's own call of the driver."""

from collections.abc import Sequence
from typing import Any

from texpr.runtime.driver import Way


def launch(
    function: int,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    stream: int,
    arguments: Sequence[Any],
    *,
    attributes: Sequence[int],
    symbol: str,
) -> None:
    """Enqueue it with arguments of ctypes, pointers as integers. Raises E0601 when the driver refuses."""
    kinds = "".join("Q" if isinstance(value, int) else "P" for value in arguments)
    way = Way(symbol, function, grid, block, shared_bytes, kinds, attributes)
    answer = way.once(stream, arguments)
    if answer:
        way.refuse(answer)
