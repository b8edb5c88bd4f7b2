"""The order of a pipe's turns as a picture: which part of a block fills which slot when, and when it is free again.

The picture says what must be before what, and nothing of how long it takes: filling and using a slot are drawn alike.
"""

from collections.abc import Mapping
from typing import Any

from texpr.pictures import FAINT, GAP, INK, KINDS, SIZE, Picture, readable_on, width_of

TURNS, UNIT, ROW = 10, 30.0, 24.0


def pipe_picture(launch: Mapping[str, Any], pipe: Mapping[str, Any]) -> Picture:
    """One pipe of a launch: a row for those who fill its slots, one for those who use them, one for each slot."""
    stages = int(pipe["stages"])
    fill, use = (", ".join(end["part"] or "all threads" for end in pipe[side]) for side in ("producers", "consumers"))
    buffers = ", ".join(pipe["buffers"])
    picture = Picture(f"{launch['name']}: pipe {pipe['name']} of {stages} slots with {buffers}; order only, not time")
    filled, used = _turns(stages)
    rows = [(f"{fill} fills", filled), (f"{use} uses", used)]
    left = max(width_of(name) for name, _ in (*rows, ("slot 00", []))) + 12
    y = 0.0
    for name, spans in rows:
        picture.words(0, y + 15, name)
        for turn, (start, end) in enumerate(spans):
            _span(picture, left, y, turn, stages, start, end, str(turn))
        y += ROW
    y += 4
    picture.line(left, y, left + UNIT * max(end for _, end in used), y, FAINT)
    y += 4
    for slot in range(min(stages, TURNS)):
        picture.words(0, y + 15, f"slot {slot}")
        for turn in range(slot, TURNS, stages):
            colour = _colour(turn, stages)
            start, end = filled[turn][0], used[turn][1]
            picture.box(
                left + start * UNIT, y + 2, (end - start) * UNIT - 2, ROW - 6, fill="#f6f6f6", stroke=colour, thick=2
            )
            picture.words(left + (start + end) / 2 * UNIT, y + 15, f"turn {turn}", INK, size=9, middle=True)
        y += ROW
    picture.words(0, y + GAP, _told(pipe, stages), FAINT, size=SIZE)
    return picture


def _span(picture: Picture, left: float, y: float, turn: int, stages: int, start: float, end: float, text: str) -> None:
    colour = _colour(turn, stages)
    picture.box(left + start * UNIT, y + 2, (end - start) * UNIT - 2, ROW - 6, fill=colour, tip=f"turn {turn}")
    picture.words(left + (start + end) / 2 * UNIT, y + 15, text, readable_on(colour), middle=True)


def _colour(turn: int, stages: int) -> str:
    return KINDS[turn % stages % len(KINDS)]


def _turns(stages: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """When each turn is filled and used, where either takes a unit and filling starts as soon as the slot is free;
    a slot takes two units to arrive."""
    filled: list[tuple[float, float]] = []
    used: list[tuple[float, float]] = []
    for turn in range(TURNS):
        free = used[turn - stages][1] if turn >= stages else 0.0
        start = max(filled[-1][0] + 1 if filled else 0.0, free)
        filled.append((start, start + 1))
        begin = max(used[-1][1] if used else 0.0, start + 2)
        used.append((begin, begin + 1))
    return filled, used


def _told(pipe: Mapping[str, Any], stages: int) -> str:
    size = f" of {pipe['bytes']} bytes" if pipe.get("bytes") else ""
    return (
        f"a turn is full after {pipe['commits']} commit{'s' * (pipe['commits'] != 1)}{size}, free after "
        f"{pipe['releases']} release{'s' * (pipe['releases'] != 1)}; turn n is in slot n mod {stages}"
    )
