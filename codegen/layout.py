"""What a block has of its own: layouts of numbers, in each of which no two elements share an address."""

from collections.abc import Sequence

from texpr.grammar.diagnostics import InternalError, fail
from texpr.grammar.index.expr import constant_value
from texpr.polyhedral.layout.extent import ends, extent
from texpr.polyhedral.layout.injective import injective
from texpr.polyhedral.layout.text import show
from texpr.polyhedral.layout.value import Layout
from texpr.polyhedral.mapped.program import MappedBuffer


def room(buffer: MappedBuffer) -> int:
    """The elements that a buffer in a block takes, holes included. Raises E0403 where that is no number."""
    found = constant_value(extent(buffer.layout))
    if found is None:
        raise fail(
            "E0403",
            f"{buffer.name} is placed in {buffer.memory} memory, so its extents must be numbers",
            buffer.span,
            help="bind the size at compile time, or place the buffer with `new global`",
        )
    return found


def check_layouts(own: Sequence[MappedBuffer]) -> None:
    """InternalError unless every layout of a block begins at address 0 and keeps distinct elements apart. E0403 as
    `room`."""
    first: dict[Layout, MappedBuffer] = {}
    for buffer in own:
        first.setdefault(buffer.layout, buffer)
    for layout, buffer in first.items():
        room(buffer)
        if constant_value(ends(layout)[0]) != 0 or not injective(layout).holds:
            raise InternalError(f"the layout of {buffer.name} is not injective: {show(layout)}")
