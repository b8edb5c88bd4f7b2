"""What copy engines move, as pictures: the boxes of a block's tile in each array, and rows of tensor cores' tiles in
the banks of shared memory, as they lie and as they would without a swizzle.

             B above      boxes that a step brings, beside those that go back in the end: of all blocks of a cluster,
    A beside C            and by the warps that send them
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from texpr.grammar.records import dataclass
from texpr.pictures import FAINT, GAP, INK, KINDS, PAPER, SIZE, Picture, cut, legend, paler, readable_on, width_of
from texpr.polyhedral.verify.integers import FileError, Form, compiled, form, names_in, number
from texpr.polyhedral.verify.layouts import address_tree, element_bytes
from texpr.polyhedral.verify.tree import Launch, Place, definitions, expression

ENGINE = ("transaction", "bulk")  # completions of copies by engines
PLACES = ("cluster", "warpgroup", "warp")
SHORT = {"warpgroup": "wg", "warp": "w"}
MOST_BOXES, MOST_TURNS = 512, 64
DRAWN, LEAST = 400.0, 14.0  # pixels of the longest side of a tile, and of the shortest


@dataclass(frozen=True, slots=True)
class _Box:
    """A box of a tile: where it begins, its extents, and who moves it, by place."""

    at: tuple[int, int]
    extents: tuple[int, int]
    who: tuple[tuple[str, int], ...]

    def by(self, place: str) -> int:
        return dict(self.who).get(place, 0)

    @property
    def name(self) -> str:
        return " ".join(f"{SHORT[place]}{value}" for place, value in self.who if place in SHORT)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The boxes of one array, whose two `dims` are told by the names that say where the tile begins; `shared`: those of
    each block come to all of its cluster."""

    buffer: str
    dims: tuple[frozenset[str], frozenset[str]]
    boxes: tuple[_Box, ...]
    stored: bool
    shared: bool

    @property
    def extents(self) -> tuple[int, int]:
        return (
            max(box.at[0] + box.extents[0] for box in self.boxes),
            max(box.at[1] + box.extents[1] for box in self.boxes),
        )

    def turned(self) -> "_Tile":
        boxes = tuple(_Box(box.at[::-1], box.extents[::-1], box.who) for box in self.boxes)
        return _Tile(self.buffer, self.dims[::-1], boxes, self.stored, self.shared)


# ---- tiles -----------------------------------------------------------------------------------------------------------


def box_tiles(data: Mapping[str, Any], launch: Launch, sizes: Mapping[str, int]) -> Picture | str:
    """The boxes of arrays in memory that a launch's engines move; or why there is no such picture."""
    tiles = list(_tiles(data, launch, sizes))
    if not tiles:
        return "no boxes of two dimensions come or go"
    ranks = prod(launch.node["cluster"])
    of = f"cluster of {ranks} blocks" if ranks > 1 else "block"
    picture = Picture(f"{launch.name}: the boxes that a {of} moves, for one step and for one tile")
    scale = DRAWN / max(extent for tile in tiles for extent in tile.extents)
    stored, loaded = [t for t in tiles if t.stored], [t for t in tiles if not t.stored]
    sides = _sides(stored[0], loaded) if len(stored) == 1 and len(loaded) == 2 else None
    if sides is None:
        x = 0.0
        for tile in tiles:
            x += _draw(picture, tile, x, 0, scale) + 2 * GAP
    else:
        beside, above = sides
        left = max(beside.extents[1] * scale, width_of(_title(beside))) + GAP
        top = _height(above, scale) + GAP
        _draw(picture, above, left, 0, scale)
        _draw(picture, beside, 0, top, scale)
        _draw(picture, stored[0], left, top, scale)
    if any(box.name for tile in tiles for box in tile.boxes):
        picture.words(0, picture.height + GAP, "wg, w: the warpgroup and the warp that send a box", FAINT)
    if others := sorted({buffer for buffer, _ in _copies(data, launch)} - {tile.buffer for tile in tiles}):
        picture.words(0, picture.height + GAP, f"not of two dimensions: the boxes of {', '.join(others)}", FAINT)
    if ranks > 1:
        both = [(KINDS[rank % len(KINDS)], "", f"block {rank} of the cluster") for rank in range(ranks)]
        legend(picture, 0, picture.height + GAP / 2, both)
    return picture


def _tiles(data: Mapping[str, Any], launch: Launch, sizes: Mapping[str, int]) -> Iterator[_Tile]:
    """The tiles of two dims, those that are loaded first."""
    found: dict[tuple[bool, str], list[_Tile]] = {}
    for buffer, place in _copies(data, launch):
        side = "source" if place.node["source"]["buffer"] == buffer else "target"
        tile = _moved(data, launch, place, side, sizes)
        if tile is not None:
            found.setdefault((tile.stored, tile.buffer), []).append(tile)
    for (stored, buffer), own in sorted(found.items()):
        boxes = dict.fromkeys(box for tile in own for box in tile.boxes)
        if len({tile.dims for tile in own}) == 1 and len(boxes) <= MOST_BOXES:
            first = [min(box.at[dim] for box in boxes) for dim in (0, 1)]
            moved = tuple(_Box((b.at[0] - first[0], b.at[1] - first[1]), b.extents, b.who) for b in boxes)
            yield _Tile(buffer, own[0].dims, moved, stored, any(tile.shared for tile in own))


def _copies(data: Mapping[str, Any], launch: Launch) -> Iterator[tuple[str, Place]]:
    """The copies of engines, each with the array in memory that it reads or writes."""
    for place in launch.places():
        node = place.node
        if node.get("kind") == "Copy" and node.get("completion") in ENGINE:
            for side in ("source", "target"):
                if data["buffers"][node[side]["buffer"]]["memory"] == "global":
                    yield str(node[side]["buffer"]), place


def _moved(data: Mapping[str, Any], launch: Launch, place: Place, side: str, sizes: Mapping[str, int]) -> _Tile | None:
    """The boxes of one copy: of what is loaded those of one turn of all loops, of what is stored those of a tile."""
    node, stored = place.node, side == "target"
    trees = [expression(subscript) for subscript in node[side]["subscripts"]]
    if None in trees:
        return None
    known = definitions(place, sizes, data["buffers"])
    forms = [form(tree, known) for tree in trees]
    over = {str(index): number(expression(extent), sizes) for index, extent in node["over"]}
    own = {
        name: number(expression(digit["radix"]), sizes)
        for name, digit in launch.digits.items()
        if digit["place"] in PLACES
    }
    moving = {**own, **(_turns(place) if stored else {})}
    wide = [dim for dim, one in enumerate(forms) if any(over.get(name, 1) > 1 for name in _variables(one))]
    if len(wide) != 2:
        return None
    used = [name for name in moving if any(name in _variables(forms[dim]) for dim in wide)]
    if prod(moving[name] for name in used) > MOST_BOXES:
        return None
    boxes = []
    for values in product(*(range(moving[name]) for name in used)):
        at = dict(zip(used, values, strict=True))
        begin, reach = (_at(forms[wide[0]], at), _at(forms[wide[1]], at)), [_reach(forms[dim], over) for dim in wide]
        who = ((str(launch.digits[name]["place"]), value) for name, value in at.items() if name in own)
        boxes.append(_Box(begin, (reach[0], reach[1]), tuple(who)))
    names = [frozenset(names_in(trees[dim]) - {*over, *moving, *sizes}) for dim in wide]
    shared = not stored and not node["own_block"] and prod(launch.node["cluster"]) > 1
    return _Tile(str(node[side]["buffer"]), (names[0], names[1]), tuple(boxes), stored, shared)


def _variables(found: Form) -> set[str]:
    return {key[0] for key in found if len(key) == 1}


def _at(found: Form, values: Mapping[str, int]) -> int:
    """Where a box begins, beside what is alike for all of a tile."""
    return found.get((), 0) + sum(factor * values.get(key[0], 0) for key, factor in found.items() if len(key) == 1)


def _reach(found: Form, over: Mapping[str, int]) -> int:
    return 1 + sum(abs(factor) * (over[key[0]] - 1) for key, factor in found.items() if key and key[0] in over)


def _turns(place: Place) -> dict[str, int]:
    """The loops of so few turns that they are inside a tile."""
    found: dict[str, int] = {}
    for loop in place.loops:
        try:
            turns = number(loop.extent, {})
        except FileError:
            continue
        if turns <= MOST_TURNS:
            found[loop.index] = turns
    return found


def _sides(stored: _Tile, loaded: Sequence[_Tile]) -> tuple[_Tile, _Tile] | None:
    """What is brought, as it stands beside the rows and above the columns of what is stored."""
    beside = [t for tile in loaded for t in (tile, tile.turned()) if t.dims[0] & stored.dims[0]]
    above = [t for tile in loaded for t in (tile, tile.turned()) if t.dims[1] & stored.dims[1]]
    if len(beside) != 1 or len(above) != 1 or beside[0].buffer == above[0].buffer:
        return None
    return beside[0], above[0]


def _title(tile: _Tile) -> str:
    down, across = tile.extents
    how = ", each box to all" if tile.shared else ""
    return f"{tile.buffer}: {down} × {across}{how}"


def _height(tile: _Tile, scale: float) -> float:
    return SIZE + 6 + max(LEAST, tile.extents[0] * scale)


def _draw(picture: Picture, tile: _Tile, x: float, y: float, scale: float) -> float:
    """A tile under its title; how wide both are."""
    picture.words(x, y + SIZE, _title(tile))
    y += SIZE + 6
    tall, wide = (max(LEAST / extent, scale) for extent in tile.extents)
    for box in tile.boxes:
        left, top, w, h = x + box.at[1] * wide, y + box.at[0] * tall, box.extents[1] * wide, box.extents[0] * tall
        fill = KINDS[box.by("cluster") % len(KINDS)]
        fill = paler(fill) if box.by("warpgroup") % 2 else fill
        size = f"{box.extents[0]} × {box.extents[1]}"
        picture.box(left, top, w, h, fill=fill, stroke=PAPER, tip=f"{size} {box.name}")
        text = next((t for t in (f"{size} {box.name}".strip(), box.name, size) if width_of(t, 8) <= w - 4), "")
        if text and h >= 11:
            picture.words(left + w / 2, top + h / 2 + 3, text, readable_on(fill), size=8, middle=True)
    down, across = tile.extents
    picture.box(x, y, across * wide, down * tall, stroke=INK, thick=1.5)
    return max(across * wide, width_of(_title(tile)))


# ---- swizzles --------------------------------------------------------------------------------------------------------

LINE_BYTES, CHUNK_BYTES, ROWS = 128, 16, 8
CELL, HEIGHT = 34.0, 16.0


def swizzle_picture(buffers: Mapping[str, Any], name: str) -> Picture | None:
    """The first rows of a tile in lines of shared memory: where chunks of 16 bytes lie that are the same columns of
    eight rows, as tensor cores read them. None for a tile that is not swizzled."""
    layout = buffers[name]["layout"]
    if not layout["xor"] or len(layout["shape"]) < 2:
        return None
    plain = {**buffers, name: {**buffers[name], "layout": {**layout, "xor": None}}}
    picture = Picture(f"{name}: the first {ROWS} rows in shared memory, chunks of {CHUNK_BYTES} bytes by their columns")
    left = 0.0
    for own, how in ((plain, "in plain rows"), (buffers, "as it lies")):
        left = _lines(picture, left, own, name, how) + 3 * GAP
    picture.words(0, picture.height + GAP, "a line is 32 banks; a number is the chunk's place in its row", FAINT)
    return picture


def _lines(picture: Picture, x: float, buffers: Mapping[str, Any], name: str, how: str) -> float:
    """The lines of memory that the rows take; where the drawing ends."""
    chunks = _chunks(buffers, name)
    lines = sorted({byte // LINE_BYTES for byte in chunks.values()})
    first = [byte for (_, chunk), byte in chunks.items() if chunk == 0]
    banks = [byte % LINE_BYTES // CHUNK_BYTES for byte in first]
    waves = max(map(banks.count, banks))
    picture.words(x, SIZE, cut(f"{how}: {waves} wavefront{'s' * (waves != 1)} for a column", 8 * CELL + 4))
    for (row, chunk), byte in chunks.items():
        across, down = byte % LINE_BYTES // CHUNK_BYTES, lines.index(byte // LINE_BYTES)
        fill = KINDS[chunk % len(KINDS)]
        left, top = x + across * CELL, SIZE + 6 + down * HEIGHT
        picture.box(left, top, CELL - 1, HEIGHT - 1, fill=fill, tip=f"row {row}, chunk {chunk}")
        picture.words(left + CELL / 2, top + 11, str(chunk), readable_on(fill), size=9, middle=True)
    return x + 8 * CELL


def _chunks(buffers: Mapping[str, Any], name: str) -> dict[tuple[int, int], int]:
    """The byte at which each chunk of the first rows begins."""
    shape, size = buffers[name]["layout"]["shape"], element_bytes(buffers, name)
    each, outer = CHUNK_BYTES // size, [0] * (len(shape) - 2)
    address = compiled(address_tree(buffers, name, [*outer, "row", "column"]))
    rows, columns = (number(expression(extent), {}) for extent in shape[-2:])
    across = range(0, min(columns, LINE_BYTES // size), each)
    return {
        (row, column // each): address({"row": row, "column": column}) * size
        for row in range(min(ROWS, rows))
        for column in across
    }
