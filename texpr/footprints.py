"""What one warp's request touches, as a picture: lines of memory with the elements of each lane, sectors outlined; and
the words of shared memory by banks, as they lie and as they would without padding or swizzle."""

from collections.abc import Mapping, Sequence
from typing import Any

from texpr.pictures import (
    ALERT,
    FAINT,
    GAP,
    INK,
    SIZE,
    Picture,
    lane_colour,
    lanes_legend,
    legend,
    readable_on,
    told,
    width_of,
)
from texpr.polyhedral.verify.integers import FileError, number

LINE, SECTOR, WORD, BANKS = 128, 32, 4, 32
MAX_LINES = 40  # that are drawn, of a request
CELL_HEIGHT, LINE_WIDTH = 16.0, 704.0
ANY_ADDRESS = 16


def footprint(entry: Mapping[str, Any], buffers: Mapping[str, Any], sizes: Mapping[str, int]) -> Picture | None:
    """The request of an access in global memory at its first sample; None where there is none."""
    if entry["memory"] != "global" or not entry["samples"]:
        return None
    sample = entry["samples"][0]
    size, lanes = entry["element_bytes"], len(sample["first"])
    owners = _owners(entry, sample)
    lines = sorted({byte // LINE for byte in owners})
    picture = Picture(told(entry))
    picture.words(0, SIZE, _figures(entry, sample))
    names = {line: _element(buffers[entry["buffer"]], line * LINE // size, sizes) for line in lines}
    left = max(width_of(names[line]) for line in lines) + 8
    y = SIZE + 8.0
    before = None
    for line in lines[:MAX_LINES]:
        if before is not None and line != before + 1:
            y += 3
        before = line
        picture.words(0, y + 12, names[line])
        _line(picture, left, y, line, owners, size, lanes)
        y += CELL_HEIGHT + 2
    if len(lines) > MAX_LINES:
        picture.words(left, y + 12, f"and {len(lines) - MAX_LINES} more lines")
        y += CELL_HEIGHT
    y += 8
    lanes_legend(picture, 0, y, lanes)
    outlined = (
        f"sector of {SECTOR} bytes that is fetched" if entry["mode"] == "read" else f"sector of {SECTOR} bytes touched"
    )
    legend(picture, 280, y, [("#ffffff", INK, outlined), ("#eeeeee", "", "byte of it that no lane wants")])
    return picture


def _figures(entry: Mapping[str, Any], sample: Mapping[str, Any]) -> str:
    at = ", ".join(f"{name} {value}" for name, value in sample["at"].items() if value)
    d = (
        ""
        if entry["d"] is None
        else f", d = {entry['d']}{'' if entry['d_by'] == 'certificate' else ' (' + entry['d_by'] + ')'}"
    )
    wide = f", {entry['width']} elements together" if entry["width"] > 1 else ""
    unit = entry["unit"] if sample["parts"] != 1 else entry["unit"][:-1]
    counted = entry.get("counted")
    told = f"; ncu counted {counted['per_request']:.4g} of each request of its line" if counted else ""
    return f"{sample['parts']} {unit}, {sample['ideal']} at best{wide}{d}; warp at {at or 'the first place'}{told}"


def _owners(entry: Mapping[str, Any], sample: Mapping[str, Any]) -> dict[int, int]:
    """The first lane that wants each byte."""
    reach = entry["width"] * entry["element_bytes"]
    found: dict[int, int] = {}
    for lane, first in enumerate(sample["first"]):
        if first is not None:
            for byte in range(first, first + reach):
                found.setdefault(byte, lane)
    return found


def _line(picture: Picture, x: float, y: float, line: int, owners: Mapping[int, int], size: int, lanes: int) -> None:
    """One line of memory: a cell for each element, those of one lane beside one another joined."""
    cell = LINE_WIDTH * size / LINE
    start, cells = line * LINE, LINE // size
    for sector in range(LINE // SECTOR):
        own = range(start + sector * SECTOR, start + (sector + 1) * SECTOR)
        if any(byte in owners for byte in own):
            picture.box(x + sector * LINE_WIDTH / 4, y, LINE_WIDTH / 4, CELL_HEIGHT, fill="#eeeeee")
    at = 0
    while at < cells:
        lane = owners.get(start + at * size)
        end = at + 1
        while end < cells and lane is not None and owners.get(start + end * size) == lane:
            end += 1
        if lane is not None:
            colour, room = lane_colour(lane, lanes), (end - at) * cell
            picture.box(x + at * cell, y + 1, room - 0.5, CELL_HEIGHT - 2, fill=colour, tip=f"lane {lane}")
            face = next((face for face in (9, 7) if width_of(str(lane), face) <= room - 1), None)
            if face is not None:
                middle = x + at * cell + room / 2
                picture.words(middle, y + 11.5, str(lane), readable_on(colour), size=face, middle=True)
        at = end
    for sector in range(LINE // SECTOR):
        own = range(start + sector * SECTOR, start + (sector + 1) * SECTOR)
        edge = INK if any(byte in owners for byte in own) else "#dddddd"
        thick = 2 if edge == INK else 0.5
        picture.box(x + sector * LINE_WIDTH / 4 + 0.75, y, LINE_WIDTH / 4 - 1.5, CELL_HEIGHT, stroke=edge, thick=thick)


def _element(buffer: Mapping[str, Any], address: int, sizes: Mapping[str, int]) -> str:
    """The element at an address, where strides alone say it; otherwise the address."""
    layout, steps = buffer["layout"], dict[int, int]()
    try:
        for term in layout["terms"]:
            if term["divisor"] != 1 or term["modulus"] is not None or number(term["offset"]["tree"], sizes):
                return f"{buffer['name']} + {address}"
            steps[term["dim"]] = number(term["stride"]["tree"], sizes)
    except FileError:
        return f"{buffer['name']} + {address}"
    if layout["xor"] or len(steps) != len(layout["shape"]) or address < 0:
        return f"{buffer['name']} + {address}"
    at, rest = [0] * len(steps), address
    for dim, step in sorted(steps.items(), key=lambda item: -item[1]):
        at[dim], rest = divmod(rest, step) if step else (0, rest)
    return f"{buffer['name']}[{', '.join(map(str, at))}]"


# ---- banks -----------------------------------------------------------------------------------------------------------


def bank_picture(
    entry: Mapping[str, Any], first: Sequence[int | None], without: Sequence[int | None] | None
) -> Picture:
    """The banks that a request of shared memory takes; `without`: the same in rows without padding and swizzle."""
    picture = Picture(told(entry))
    y = _banks(picture, 0, entry, first, "as it lies")
    if without is not None and list(without) != list(first):
        y = _banks(picture, y + GAP, entry, without, "in plain rows, without padding or swizzle")
    lanes_legend(picture, 0, y + 6, len(first))
    legend(picture, 280, y + 6, [("#ffffff", ALERT, "a wavefront more than there need be")])
    return picture


def _banks(picture: Picture, y: float, entry: Mapping[str, Any], first: Sequence[int | None], how: str) -> float:
    """The stacks of words above one another, in each bank; lanes that want one word share it."""
    lanes, bytes_each = len(first), entry["width"] * entry["element_bytes"]
    group = max(1, BANKS * WORD // max(bytes_each, WORD))
    active = [(lane, byte) for lane, byte in enumerate(first) if byte is not None]
    rounds = [active[k : k + group] for k in range(0, len(active), group)]
    stacks = [_stacks(own, bytes_each) for own in rounds]
    total = sum(max(map(len, one.values())) for one in stacks)
    least = sum(-(-sum(map(len, one.values())) // BANKS) for one in stacks)
    picture.words(0, y + SIZE, f"{how}: {total} wavefront{'s' * (total != 1)}, {least} at best")
    y += SIZE + 8
    cell, left = LINE_WIDTH / BANKS, width_of("wavefront 00 ")
    for bank in range(0, BANKS, 4):
        picture.words(left + (bank + 0.5) * cell, y + 9, str(bank), FAINT, size=9, middle=True)
    picture.words(0, y + 9, "bank", FAINT, size=9)
    y += 13
    wave = 0
    for one in stacks:
        most = max(map(len, one.values()))
        needed = -(-sum(map(len, one.values())) // BANKS)
        for level in range(min(most, MAX_LINES)):
            spare = level >= needed
            picture.words(0, y + 11.5, f"wavefront {wave}", ALERT if spare else INK, size=9)
            picture.box(
                left, y, LINE_WIDTH, CELL_HEIGHT - 1, fill="#f6f6f6", stroke=ALERT if spare else "#cccccc", thick=1
            )
            for bank, words in one.items():
                if level < len(words):
                    _word(picture, left + bank * cell, y, cell, words[level], lanes)
            y += CELL_HEIGHT + 1
            wave += 1
        y += 4
    return y


def _stacks(own: Sequence[tuple[int, int]], bytes_each: int) -> dict[int, list[list[int]]]:
    """For each bank its different words, each with the lanes that want it."""
    words: dict[int, list[int]] = {}
    for lane, byte in own:
        for part in range(0, bytes_each, min(WORD, bytes_each)):
            lanes = words.setdefault((byte + part) // WORD, [])
            if lane not in lanes:
                lanes.append(lane)
    found: dict[int, list[list[int]]] = {}
    for word in sorted(words):
        found.setdefault(word % BANKS, []).append(words[word])
    return found


def _word(picture: Picture, x: float, y: float, cell: float, own: Sequence[int], lanes: int) -> None:
    colour = lane_colour(own[0], lanes)
    who = f"lane {own[0]}" if len(own) == 1 else f"lanes {', '.join(map(str, own))}"
    picture.box(x + 0.5, y + 1, cell - 1, CELL_HEIGHT - 3, fill=colour, tip=who)
    text = str(own[0]) if len(own) == 1 else f"{own[0]}+"
    picture.words(x + cell / 2, y + 11, text, readable_on(colour), size=9 if len(text) < 3 else 8, middle=True)
