"""Pictures of mappings as SVG: boxes and words at places, stacked without overlap, in colours that all eyes tell apart.

Words are set in a monospaced face, so their width is known: `CHARACTER` of the size for each character.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from html import escape
from typing import Any

from texpr.grammar.records import dataclass

CHARACTER = 0.61  # of a face's size
SIZE = 11  # of words, in pixels
GAP = 14
INK, FAINT, PAPER, ALERT = "#1a1a1a", "#8a8a8a", "#ffffff", "#b3261e"
FACE = "DejaVu Sans Mono, Menlo, Consolas, monospace"

# Cividis at nine places: its lightness grows evenly, and people without red, green or blue cones see it alike.
_RAMP = ("#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838")
# Okabe and Ito's colours, for kinds of things.
KINDS = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#bbbbbb")


def lane_colour(lane: int, lanes: int) -> str:
    """Lane 0 is dark blue, the last one yellow."""
    at = lane / max(1, lanes - 1) * (len(_RAMP) - 1)
    low = min(int(at), len(_RAMP) - 2)
    return _between(_RAMP[low], _RAMP[low + 1], at - low)


def _between(one: str, other: str, share: float) -> str:
    parts = [(int(one[k : k + 2], 16), int(other[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in parts)


def paler(colour: str) -> str:
    """The colour, more than half way to white."""
    return _between(colour, PAPER, 0.55)


def readable_on(colour: str) -> str:
    """Black or white, whichever is read more easily on a colour."""
    r, g, b = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return INK if 0.299 * r + 0.587 * g + 0.114 * b > 0.55 else PAPER


VERBS = {"read": "reads", "write": "writes", "update": "updates", "atomic": "updates indivisibly"}


def told(entry: Mapping[str, Any]) -> str:
    """An access of a mapping's data in words."""
    return f"{entry['statement']} {VERBS.get(entry['mode'], entry['mode'])} {entry['relation']}"


def width_of(text: str, size: float = SIZE) -> float:
    return len(text) * CHARACTER * size


def cut(text: str, width: float, size: float = SIZE) -> str:
    """The text, or as much of it as has room, with an ellipsis."""
    room = int(width / (CHARACTER * size))
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


@dataclass(slots=True)
class Picture:
    """A drawing of a size, with a title for those who hear it; marks are SVG elements in order."""

    title: str
    width: float = 0
    height: float = 0
    marks: list[str] = field(default_factory=list)

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: str = "none",
        stroke: str = "none",
        thick: float = 1,
        dashed: bool = False,
        tip: str = "",
    ) -> None:
        told = f"<title>{escape(tip)}</title>" if tip else ""
        dash = ' stroke-dasharray="3 2"' if dashed else ""
        edge = f' stroke="{stroke}" stroke-width="{thick:g}"{dash}' if stroke != "none" else ""
        shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{fill}"{edge}'
        self.marks.append(f"{shape}>{told}</rect>" if told else f"{shape}/>")
        self._reach(x + w, y + h)

    def words(
        self,
        x: float,
        y: float,
        text: str,
        colour: str = INK,
        size: float = SIZE,
        bold: bool = False,
        middle: bool = False,
    ) -> None:
        """A line of words whose base line is at y, beginning at x or, in the `middle`, around it."""
        how = ' text-anchor="middle"' if middle else ""
        how += ' font-weight="bold"' if bold else ""
        self.marks.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}"{how}>{escape(text)}</text>'
        )
        self._reach(x + width_of(text, size) / (2 if middle else 1), y + 3)

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = INK, thick: float = 1) -> None:
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self.marks.append(f'<line {ends} stroke="{colour}" stroke-width="{thick:g}"/>')
        self._reach(max(x1, x2), max(y1, y2))

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    @property
    def inside(self) -> str:
        return "\n".join(self.marks)

    def svg(self) -> str:
        """The picture by itself."""
        w, h = self.width + 2, self.height + 4
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}"'
        told = f"<title>{escape(self.title)}</title>"
        ground = f'<rect width="{w:.0f}" height="{h:.0f}" fill="{PAPER}"/>'
        return f'{head} role="img" font-family="{FACE}">{told}\n{ground}\n{self.inside}\n</svg>'


def stacked(title: str, pictures: Sequence[Picture]) -> Picture:
    """Pictures below one another, each under its title."""
    whole, y = Picture(title), 0.0
    whole.words(4, 16, title, size=14, bold=True)
    y = 30
    for each in pictures:
        whole.words(4, y + SIZE, each.title, bold=True)
        y += SIZE + 8
        whole.marks.append(f'<g transform="translate(4 {y:.1f})">{each.inside}</g>')
        whole._reach(4 + each.width, y + each.height)
        y += each.height + 2 * GAP
    return whole


def legend(picture: Picture, x: float, y: float, entries: Sequence[tuple[str, str, str]]) -> None:
    """Swatches (fill, stroke, words) in a row, those that have no room in further rows."""
    at = x
    for fill, stroke, text in entries:
        room = 18 + width_of(text) + GAP
        if at > x and at + room > 900:
            at, y = x, y + SIZE + 6
        picture.box(at, y, 12, 12, fill=fill, stroke=stroke if stroke else FAINT, thick=2 if stroke else 1)
        picture.words(at + 17, y + 10, text)
        at += room


def lanes_legend(picture: Picture, x: float, y: float, lanes: int) -> None:
    """The ramp of lane colours with the numbers at its ends."""
    picture.words(x, y + 10, "lane 0")
    x += width_of("lane 0 ")
    for lane in range(lanes):
        picture.box(x + lane * 5, y, 5, 12, fill=lane_colour(lane, lanes))
    picture.words(x + lanes * 5 + 6, y + 10, str(lanes - 1))
