"""Operands of atoms: which elements a warp takes, where they are, and whether they lie as the atom says.

Addresses that an atom computes and registers that it names are those of its own layouts; the elements are those of the
program's. Both must be the same, but for where a tile begins.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache

import numpy as np

from texpr.grammar.ast import Gather
from texpr.grammar.index.expr import constant_value, names
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.extent import extent
from texpr.polyhedral.layout.make import CHUNK_BYTES, SWIZZLES, swizzled
from texpr.polyhedral.layout.place import coordinates
from texpr.polyhedral.layout.value import Layout, Unit, Xor
from texpr.polyhedral.mapped.atoms import WARP_MATRICES
from texpr.polyhedral.mapped.atoms import Operand as Taken
from texpr.polyhedral.mapped.operators import Contract, Unload
from texpr.polyhedral.mapped.places import Memory
from texpr.polyhedral.mapped.views import View
from texpr.polyhedral.simulate.cells import Array, Cells
from texpr.polyhedral.simulate.evaluate import Evaluator, Lanes, Values
from texpr.polyhedral.simulate.failure import failure
from texpr.polyhedral.walk import subscript_names

Tiled = Contract | Unload
MATRIX = (8, 8)  # what ldmatrix and stmatrix move as a whole


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of a buffer: where they are, and the threads that hold them or ask for them."""

    place: Array
    thread: Array

    def only(self, mask: Array) -> "Elements":
        return Elements(self.place[mask], self.thread[mask])

    def moved(self, place: int, thread: int) -> "Elements":
        return Elements(self.place + place, self.thread + thread)


def warps(node: Tiled, lanes: Lanes, warp: int) -> Iterator[Lanes]:
    """The warps that come to a node, each of them whole. E0604 for one that is not, or whose lanes mean several
    tiles."""
    number = lanes.thread // warp
    for one in np.unique(number).tolist():
        found = lanes.only(number == one)
        if len(found.thread) != warp:
            raise failure(f"{node.id}: {len(found.thread)} of {warp} lanes of a warp come to it", node.span)
        for name, value in meant(node, found).items():
            if (value != value.flat[0]).any():
                raise failure(f"{node.id}: {name} is not the same in all lanes of a warp", node.span)
        yield found


def meant(node: Tiled, lanes: Lanes) -> dict[str, Array]:
    """The values of the names that say which tiles a node means."""
    own = {name for name, _ in node.over}
    return {name: np.asarray(lanes.values[name]) for name in sorted(node.names - own)}


@dataclass(slots=True)
class Operands:
    """Operands that were found and checked once are the same in other blocks, for the same tile."""

    evaluator: Evaluator
    found: dict[Hashable, Elements] = field(default_factory=dict)

    def find(self, node: Tiled, role: str, warp: Lanes, axes: Mapping[str, Array]) -> Elements:
        """The elements of a role's view for each value of these indices. E0604 where they lie otherwise than the atom
        takes them."""
        view: View = getattr(node, role)
        cells = self.evaluator.memory[view.buffer]
        writes, first = role == "target", int(warp.thread[0])
        if cells.team:
            copy = first - first % cells.team
        else:
            copies = self.evaluator.copies
            copy = int((copies.written if writes else copies.read)(cells.buffer, warp.thread[:1])[0])
        begin = int(cells.begin(np.asarray(copy)))
        thread = copy if cells.team else first
        outer = [
            (n, int(np.asarray(warp.values[n]).flat[0])) for n in sorted(subscript_names(view.subscripts) - {*axes})
        ]
        box = tuple((name, int(a[0]), int(a[-1]), len(a)) for name, a in axes.items())
        key = (id(node), role, tuple(outer), box, begin % cells.step, first - thread)
        if key not in self.found:
            at = _grid(warp, axes)
            own = self._elements(view, cells, at, copy)
            taken = node.atom.operands[role]
            if role == ("source" if isinstance(node, Unload) and node.atom.loads else "target"):
                _check_rows(node, view, cells, own, at)
            else:
                _check_taken(node, view, taken, cells, own, at)
            self.found[key] = own.moved(-begin, -thread)
        return self.found[key].moved(begin, thread)

    def _elements(self, view: View, cells: Cells, at: Lanes, copy: int) -> Elements:
        """For one thread of a warp; elements in registers are where their holders have them."""
        if cells.team:
            at = replace(at, thread=self.evaluator.holder(view.buffer, view.subscripts, at))
        own = at.thread if cells.team else np.full(at.thread.shape, copy)
        return Elements(self.evaluator.address(cells, own, view.subscripts, at), at.thread)


def _grid(lanes: Lanes, axes: Mapping[str, Array]) -> Lanes:
    """The first of these threads, once for each value of the indices, the last one fastest."""
    points = np.meshgrid(*axes.values(), indexing="ij")
    first = {name: v[:1] if isinstance(v, np.ndarray) else v for name, v in lanes.values.items()}
    named = {name: point.reshape(-1) for name, point in zip(axes, points, strict=True)}
    return Lanes(np.repeat(lanes.thread[:1], points[0].size), Values(first, **named))


def _check_taken(node: Tiled, view: View, taken: Taken, cells: Cells, found: Elements, at: Lanes) -> None:
    """E0604 unless the elements lie as the atom takes them, tile by tile: of an `Unload` of sums matrix by matrix."""
    if cells.buffer.memory is not taken.memory or (isinstance(node, Contract) and cells.buffer.dtype != taken.dtype):
        kind = f"{taken.dtype} of {taken.memory.value} memory"
        raise failure(f"{node.id}: {node.atom.name} takes {kind}, and {view.buffer} is another", node.span)
    by_matrix = isinstance(node, Unload) and not node.atom.loads
    rows, columns = MATRIX if by_matrix else (constant_value(e) or 1 for e in taken.layout.shape)
    if (
        taken.layout.xor is not None
    ):  # tiles wider than a panel are parts of larger ones, whose panels lie further apart
        columns = min(columns, CHUNK_BYTES // view.dtype.size_bytes << taken.layout.xor.bits)
    row, column = (np.asarray(at.values[name]) for name in _order(node, view, taken))
    expected = coordinates(replace(taken.layout, xor=None), (row % rows, column % columns))
    tile = row // rows * (int(column.max(initial=0)) + 1) + column // columns
    _, first, number = np.unique(tile, return_index=True, return_inverse=True)
    actual = _actual(cells, taken, found)
    for unit in taken.layout.units:
        apart = actual[unit] - expected[unit]
        if (apart if unit is Unit.LANE else apart - apart[first][number]).any():
            raise failure(f"{node.id}: {view.buffer} lies otherwise than {node.atom.name} takes it", node.span)


def _check_rows(node: Tiled, view: View, cells: Cells, found: Elements, at: Lanes) -> None:
    """E0604 unless each row of a matrix is a whole chunk of memory, and chunks lie under the swizzle that the atom's
    wrapper finds them by, where it has one; rows lie anywhere."""
    if cells.layout.xor != _swizzle(node, view, cells):
        raise failure(f"{node.id}: {view.buffer} lies under another swizzle than {node.atom.name} takes", node.span)
    count = CHUNK_BYTES // view.dtype.size_bytes
    column = np.asarray(at.values[node.over[-1][0]]) % count
    first = found.place % cells.step - column
    if (first % count != 0).any() or (np.diff(first)[np.diff(column) > 0] != 0).any():
        raise failure(f"{node.id}: the rows of {view.buffer} are no chunks of {CHUNK_BYTES} bytes", node.span)


def _swizzle(node: Tiled, view: View, cells: Cells) -> Xor | None:
    """The swizzle that a tile in shared memory is to have: of what warps load for products that of the atom's tile, of
    whole rows of sums that of the rows of their box; else any."""
    assert isinstance(node, Unload), "what is moved by rows"
    tile = node.atom.operands["source" if node.atom.loads else "target"].layout
    if node.atom.loads:
        return tile.xor or cells.layout.xor
    columns, size = constant_value(cells.buffer.shape[-1]) or 0, view.dtype.size_bytes
    if constant_value(tile.shape[0]) != MATRIX[0] * WARP_MATRICES or columns * size not in SWIZZLES:
        return cells.layout.xor
    return swizzled((columns,), size, columns * size).xor


def _order(node: Tiled, view: View, taken: Taken) -> tuple[str, str]:
    """The indices of the rows and columns of an operand's tile: in shared memory as it lies there."""
    if isinstance(node, Unload):
        return node.over[0][0], node.over[1][0]
    row, column, depth = (name for name, _ in node.over)
    if view is node.c:
        return row, column
    if taken.memory is Memory.REG:
        return (row, depth) if view is node.a else (depth, column)
    outer, last = row if view is node.a else column, view.subscripts[-1]
    return (outer, depth) if not isinstance(last, Gather) and depth in names(last) else (depth, outer)


def _actual(cells: Cells, taken: Taken, found: Elements) -> dict[Unit, Array]:
    """Where the elements are, addresses before the XOR of the atom."""
    inside = found.place % cells.step
    if taken.layout.xor is not None:
        inside = np.asarray(taken.layout.xor.apply(inside))
    return {Unit.ADDRESS: inside, Unit.REGISTER: inside, Unit.LANE: found.thread % _lanes(taken.layout)}


@cache
def _lanes(layout: Layout) -> int:
    """The threads of the team that holds a tile, 1 of one in memory."""
    return constant_value(extent(layout, Unit.LANE)) or 1
