"""What a trial takes of this machine's memory, counted before anything is made.

Each array of the call is there twice (a copy is kept for the comparison); while its sample is drawn, an element takes
8 bytes more. A check adds the cells of the float64 interpreter for every parameter and local, and what is in flight.
"""

import math
from collections.abc import Iterator, Mapping

from texpr.codegen.manifest import JsonExpr, Manifest, Parameter, evaluate
from texpr.grammar.ast import IndexExpr, Kernel, Par, Role, Seq
from texpr.grammar.core import statements
from texpr.grammar.diagnostics import fail
from texpr.grammar.index.interval import bounds, index_range
from texpr.grammar.strides import reach
from texpr.grammar.types import ELEMENT_TYPES
from texpr.runtime.call_memory import host_memory_bytes
from texpr.samples import greatest_at

MAX_ELEMENTS = 1 << 31  # of one array
TRIAL_BYTES = 24  # that a trial takes for one element: random f64, aligned copy, copy before the run
CELL_BYTES = 128  # of one element in the float64 interpreter: value, bound and what the bound is computed from
FLIGHT_BYTES = 1 << 27  # that the interpreter takes for the iterations in flight


def check_count(name: str, count: int) -> None:
    """E0602 for an array with which a trial would take more than the machine has."""
    if count > MAX_ELEMENTS or count * TRIAL_BYTES > host_memory_bytes():
        raise fail("E0602", f"{name} would have {count} elements", help="choose smaller sizes by -D")


def check_memory(
    kernel: Kernel, manifest: Manifest, sizes: Mapping[str, int], *, check: bool, workspace: JsonExpr = 0
) -> None:
    """E0602 where the arrays of a call, its workspaces and its check take more than the machine has."""
    needs: dict[str, int] = {}
    drawn = 0
    for parameter in manifest.parameters:
        if parameter.scalar:
            continue
        count, room = _extent(parameter, sizes)
        check_count(parameter.name, max(count, room))
        needs[parameter.name] = 2 * room * ELEMENT_TYPES[parameter.dtype].size_bytes + check * CELL_BYTES * count
        drawn = max(drawn, 8 * count)
    if check:
        needs.update((name, CELL_BYTES * count) for name, count in _locals(kernel, sizes))
    total = sum(needs.values()) + drawn + evaluate(workspace, sizes) + check * FLIGHT_BYTES
    if total > host_memory_bytes():
        what = "its arrays and their check" if check else "its arrays"
        most = max(needs, key=lambda name: needs[name], default="workspaces")
        raise fail(
            "E0602",
            f"{kernel.name} would need {_gigabytes(total)} for {what}, most of it for {most}, and this machine has "
            f"{_gigabytes(host_memory_bytes())}",
            help="choose smaller sizes by -D" + (", or run without --check" if check else ""),
        )


def _extent(parameter: Parameter, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Elements of an array, and elements from its first to its last one in memory."""
    shape = [max(0, evaluate(extent, sizes)) for extent in parameter.shape]
    count = math.prod(shape)
    if parameter.flat:
        return count, count
    steps = [evaluate(stride, sizes) for stride in parameter.strides]
    return count, reach(shape, steps)[1]


def _locals(kernel: Kernel, sizes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Every local with the elements of one copy, where the indices in its extents are at their greatest."""
    ranges: dict[str, tuple[IndexExpr, IndexExpr]] = {}
    for stmt in statements(kernel.body):
        if isinstance(stmt, Par | Seq):
            found = index_range(stmt.extent, ranges)
            if found is not None:
                ranges[stmt.index] = found
    for buffer in kernel.buffers:
        if buffer.role is Role.LOCAL:
            greatest = [found[1] for found in (bounds(extent, ranges) for extent in buffer.shape) if found is not None]
            yield buffer.name, math.prod(max(0, greatest_at(extent, sizes)) for extent in greatest)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB" if count < 10**15 else "an impossible amount of memory"
