"""Who runs what, as pictures: the digits of every index by place, and the tile of a block with the lanes of a warp."""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from texpr.grammar.records import dataclass
from texpr.pictures import (
    FAINT,
    GAP,
    INK,
    KINDS,
    SIZE,
    Picture,
    cut,
    lane_colour,
    lanes_legend,
    legend,
    paler,
    readable_on,
    told,
    width_of,
)
from texpr.polyhedral.verify.integers import FileError, Form, form, number
from texpr.polyhedral.verify.tree import Launch, Place, definitions, expression, launches

PLACES = {
    "grid.x": KINDS[7], "grid.y": KINDS[7], "grid.z": KINDS[7], "cluster": KINDS[3], "warpgroup": KINDS[6],
    "warp": KINDS[1], "lane": KINDS[0], "vector": KINDS[4], "serial": KINDS[2], "core": KINDS[5],
}  # fmt: skip
NAMES = {"grid": KINDS[7], **{name: fill for name, fill in PLACES.items() if not name.startswith("grid")}}
TILE_WIDTH, TILE_HEIGHT, MOST_CELLS, FOLDED = 700.0, 420.0, 2048, 128
WARP = 32
ROW = 30.0


def digit_strips(launch: Launch, sizes: Mapping[str, int]) -> Picture:
    """Each index as the product of its digits, those of the greatest weight first."""
    picture = Picture(f"{launch.name}: the digits of each index, and where they run")
    rows = list(_rows(launch))
    left = max((width_of(name) for name, _ in rows), default=0) + 16
    y = 0.0
    values = {**sizes, **{loop.index: 0 for loop in launch.hosts}}
    used: set[str] = set()
    for index, digits in rows:
        picture.words(0, y + 18, index)
        x = left
        for name, weight in sorted(digits, key=lambda pair: -abs(pair[1])):
            digit = launch.digits.get(name)
            place = str(digit["place"]) if digit else "serial"
            used.add(place.partition(".")[0])
            radix = _radix(digit, values)
            upper, lower = f"{radix} {place}", f"× {weight}"
            room = max(width_of(upper), width_of(lower, 9)) + 12
            fill = PLACES[place]
            picture.box(x, y, room, ROW - 4, fill=fill, stroke=PAPER_EDGE, tip=name)
            picture.words(x + room / 2, y + 11.5, upper, readable_on(fill), middle=True)
            picture.words(x + room / 2, y + 22, lower, readable_on(fill), size=9, middle=True)
            x += room + 2
        y += ROW
    if not rows:
        picture.words(0, SIZE, "no index is shared out: one thread runs all")
        return picture
    legend(picture, 0, y + 4, [(fill, "", name) for name, fill in NAMES.items() if name in used])
    return picture


PAPER_EDGE = "#ffffff"


def _radix(digit: Mapping[str, Any] | None, values: Mapping[str, int]) -> str:
    if digit is None:
        return "?"
    try:
        return str(number(expression(digit["radix"]), values))
    except FileError:
        return str(digit["radix"]["text"])


def _rows(launch: Launch) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    seen = set[str]()
    for place in launch.places():
        if place.node.get("kind") == "Define" and place.node["digits"]:
            index = str(place.node["index"])
            if index not in seen:
                seen.add(index)
                yield index, tuple((str(d["name"]), int(d["weight"])) for d in place.node["digits"])


# ---- tiles -----------------------------------------------------------------------------------------------------------


def block_tile(data: Mapping[str, Any], launch: Launch, sizes: Mapping[str, int]) -> Picture | str:
    """The elements that a block touches in one access, with those of each lane of its first warp; or why there is no
    such picture."""
    found = _shown_access(data, launch)
    if found is None:
        return "its threads make no access to global memory whose address says where they stand"
    entry, place = found
    known = definitions(place, sizes, data["buffers"])
    if place.node.get("kind") == "Copy" and place.node.get("access") != "each" and place.node.get("over"):
        known[str(place.node["over"][-1][0])] = {}
    forms = [form(tree, known) for tree in entry["subscripts"]]
    axes = [_axis(launch, one, sizes) for one in forms]
    if any(axis is None for axis in axes):
        return "its subscripts are not affine in the lanes"
    known_axes = [axis for axis in axes if axis is not None]
    rows, columns = (known_axes[-2], known_axes[-1]) if len(known_axes) > 1 else ({}, known_axes[-1])
    return _tile(launch, entry, rows, columns, place, sizes)


def _shown_access(data: Mapping[str, Any], launch: Launch) -> tuple[Mapping[str, Any], Place] | None:
    """A store to a parameter, else a read of one."""
    own = [
        e for e in data["accesses"]
        if e["launch"] == launch.name and e["memory"] == "global" and e["by"] == "threads" and e["samples"]
        and e["subscripts"] and sum(first is not None for first in e["samples"][0]["first"]) > 1
    ]  # fmt: skip
    own.sort(key=lambda e: (e["mode"] == "read", data["buffers"][e["buffer"]]["role"] != "param"))
    return (own[0], launch.at(tuple(own[0]["path"]))) if own else None


Axis = dict[str, int]


def _axis(launch: Launch, found: Form, sizes: Mapping[str, int]) -> Axis | None:
    """The coefficient of each variable; factors that are no variable move the whole tile, unless a lane is in them."""
    lanes = {name for name, digit in launch.digits.items() if digit["place"] in ("lane", "warp", "warpgroup")}
    axis: Axis = {}
    for key, factor in found.items():
        if len(key) == 1 and not key[0].startswith("["):
            axis[key[0]] = factor
        elif any(name in part for part in key for name in lanes):
            return None
    return axis


def _tile(
    launch: Launch, entry: Mapping[str, Any], rows: Axis, columns: Axis, place: Place, sizes: Mapping[str, int]
) -> Picture | str:
    by_thread = {n: d for n, d in launch.digits.items() if d["place"] in ("lane", "warp", "warpgroup")}
    loops = _loops(place, entry, sizes)
    inside = {name for name in (*rows, *columns) if name in by_thread or name in loops}
    ranges = {n: loops[n] if n in loops else number(expression(by_thread[n]["radix"]), sizes) for n in inside}
    spans = [[f * (ranges[n] - 1) for n, f in axis.items() if n in inside] for axis in (rows, columns)]
    height, width = (sum(map(abs, span)) + 1 for span in spans)
    grid = _Grid.of(height, width + entry["width"] - 1, [-sum(min(0, x) for x in span) for span in spans])
    if grid is None:
        return f"the tile of a block, {height} by {width}, is too long to be drawn"
    picture = Picture(_title(launch, entry["buffer"], grid))
    warp_size = WARP
    turns = _every(loops) if prod(loops.values()) * warp_size <= MOST_CELLS else [{}]
    for turn in turns[1:]:
        for lane in range(warp_size):
            at = {**_thread(by_thread, lane, 0, sizes), **turn}
            grid.cell(picture, _point(rows, columns, at), entry["width"], paler(lane_colour(lane, warp_size)))
    for thread in range(min(launch.threads, MOST_CELLS)):
        lane, warp = thread % warp_size, thread // warp_size
        fill = lane_colour(lane, warp_size) if warp == 0 else ("#d9d9d9", "#efefef")[warp % 2]
        at = _thread(by_thread, lane, warp, sizes)
        x, y, w = grid.cell(picture, _point(rows, columns, at), entry["width"], fill, tip=f"warp {warp}, lane {lane}")
        if warp == 0 and w >= width_of("00", 8) and grid.scale >= 9:
            picture.words(x + w / 2, y + grid.scale / 2 + 3, str(lane), readable_on(fill), size=8, middle=True)
    picture.box(0, 0, grid.across * grid.scale, grid.down * grid.scale, stroke=INK, thick=1.5)
    below = grid.down * grid.scale + GAP / 2
    picture.words(0, below + SIZE, cut(f"{told(entry)}: {entry['composed']}", TILE_WIDTH), FAINT)
    below += SIZE + 8
    lanes_legend(picture, 0, below, warp_size)
    others = [("#d9d9d9", "", "other warps"), ("#c8cdd6", "", "paler: warp 0 at later turns of its loops")]
    legend(picture, 280, below, others)
    return picture


@dataclass(frozen=True, slots=True)
class _Grid:
    """A tile on paper: `scale` pixels an element, from the `first` row and column on. A single long row is folded into
    rows of `across`."""

    height: int
    width: int
    across: int
    scale: float
    first: tuple[int, int]

    @staticmethod
    def of(height: int, width: int, first: list[int]) -> "_Grid | None":
        across = width
        while height == 1 and across > FOLDED and width / across < across / 16:
            across = -(-across // 2)
        scale = min(18.0, TILE_WIDTH / across, TILE_HEIGHT / max(height, -(-width // across)))
        return _Grid(height, width, across, scale, (first[0], first[1])) if scale >= 1 else None

    @property
    def down(self) -> int:
        return self.height if self.height > 1 else -(-self.width // self.across)

    def cell(
        self, picture: Picture, point: tuple[int, int], width: int, fill: str, tip: str = ""
    ) -> tuple[float, float, float]:
        """Draw the elements from a point on; where they begin, and how wide they are."""
        row, column = point[0] + self.first[0], point[1] + self.first[1]
        if self.height == 1:
            row, column = divmod(column, self.across)
        x, y, w = column * self.scale, row * self.scale, self.scale * width
        picture.box(x, y, max(w - 0.4, 0.6), max(self.scale - 0.4, 0.6), fill=fill, tip=tip)
        return x, y, w


def _title(launch: Launch, name: str, grid: _Grid) -> str:
    size = f"{grid.height} × {grid.width} elements" if grid.height > 1 else f"{grid.width} elements"
    folded = f", in rows of {grid.across}" if grid.across < grid.width else ""
    return f"{launch.name}: the tile of a block in {name}, {size}{folded}, at the first turn of its loops"


def _point(rows: Axis, columns: Axis, at: Mapping[str, int]) -> tuple[int, int]:
    row, column = (sum(f * at.get(name, 0) for name, f in axis.items()) for axis in (rows, columns))
    return row, column


def _thread(by_thread: Mapping[str, Any], lane: int, warp: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """The digits of a thread."""
    coordinates = {"lane": lane, "warp": warp, "warpgroup": warp // 4}
    return {
        name: coordinates[str(d["place"])]
        // max(1, number(expression(d["stride"]), sizes))
        % max(1, number(expression(d["radix"]), sizes))
        for name, d in by_thread.items()
    }


def _every(loops: Mapping[str, int]) -> list[dict[str, int]]:
    """The values of some loops, turn by turn."""
    return [dict(zip(loops, values, strict=True)) for values in product(*map(range, loops.values()))]


def _loops(place: Place, entry: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
    """The loops that a thread makes inside a block's tile: those of numbers alone."""
    found: dict[str, int] = {}
    own = [(loop.index, loop.extent) for loop in place.loops]
    own += [(str(index), expression(extent)) for index, extent in place.node.get("over") or ()]
    for index, extent in own:
        try:
            turns = number(extent, {})
        except FileError:
            continue
        if turns <= 64:
            found[index] = turns
    return found


def launches_at(data: Mapping[str, Any]) -> list[Launch]:
    """The launches of a mapping in text order."""
    return list(launches(data["host"]))
