"""Breaking printed lines that are too long, where the lexical rules let a newline be blank.

A newline is blank after a comma and after a binary operator, so a line is broken there and nowhere else: at the place
with the fewest open brackets and the loosest operator that still fits, as far right as possible.

    C[i, j] = first_factor * second_factor +
        third_factor

The statements of a long reduction stand on lines of their own, as a newline beside its braces is blank too.
"""

import re
from itertools import pairwise
from typing import Final

MAX_COLUMNS: Final = 120
"""Characters of a line, where it can be broken at all."""
MAX_BROKEN: Final = 1 << 14
"""A line of more characters is left as it is: the search for places is quadratic in it."""
INDENT: Final = "    "

_PARTS: Final = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*")
      | (?P<open>[(\[{])
      | (?P<close>[)\]}])
      | (?P<break>,\ |\ (?:[-+*/%<>]|[=!<>]=|and|or)\ )
    """,
    re.VERBOSE,
)

_LOOSE: Final[dict[str, int]] = {
    ",": 0, "or": 1, "and": 2, **dict.fromkeys(("==", "!=", "<=", ">=", "<", ">"), 4), "+": 5, "-": 5,
}  # fmt: skip


def wrapped(line: str, columns: int = MAX_COLUMNS) -> list[str]:
    """`line` in pieces of at most `columns` characters, as far as its commas and operators allow.

    Later pieces stand one level deeper than the first. The line has no comment.
    """
    if not columns < len(line) <= MAX_BROKEN:
        return [line]
    base = line[: len(line) - len(line.lstrip(" "))]
    pad = base + INDENT
    braces = _braces(line)
    if braces is not None:
        opened, closed = braces
        return [
            *wrapped(line[:opened], columns),
            *(piece for statement in _statements(line[opened:closed]) for piece in wrapped(pad + statement, columns)),
            *wrapped(base + line[closed:], columns),
        ]
    places = _places(line)
    pieces: list[str] = []
    start, lead = 0, ""
    while len(lead) + len(line) - start > columns:
        room = start + columns - len(lead)
        fitting = [place for place in places if start < place[0] <= room + 1]
        if not fitting:
            fitting = [place for place in places if place[0] > start][:1]
        if not fitting:
            break
        cut, _ = min(fitting, key=lambda place: (place[1], -place[0]))
        pieces.append(lead + line[start:cut].rstrip(" "))
        start, lead = cut, pad
    return [*pieces, lead + line[start:]]


def _braces(line: str) -> tuple[int, int] | None:
    """The body of the first reduction outside all brackets: the offsets after its `{` and at its `}`."""
    depth, opened = 0, None
    for match in _PARTS.finditer(line):
        if match.lastgroup == "open":
            if depth == 0 and match.group() == "{":
                opened = match.end()
            depth += 1
        elif match.lastgroup == "close":
            depth -= 1
            if depth == 0 and opened is not None and match.start() > opened:
                return opened, match.start()
            if depth == 0:
                opened = None
    return None


def _statements(body: str) -> list[str]:
    """What stands between the braces of a reduction, cut at each `;` outside all brackets; it stays before a minus,
    which would go on with the line before."""
    depth, start = 0, 0
    found: list[str] = []
    for match in re.finditer(r"[(\[{]|[)\]}]|;", body):
        if match.group() == ";" and depth == 0:
            found.append(body[start : match.start()].strip(" "))
            start = match.end()
        elif match.group() != ";":
            depth += 1 if match.group() in "([{" else -1
    found.append(body[start:].strip(" "))
    return [s + ";" if after.startswith("-") else s for s, after in pairwise([*found, ""])]


def _places(line: str) -> list[tuple[int, int]]:
    """Where a piece may begin: the offset after a comma or an operator, and how tightly it holds, brackets first."""
    depth = 0
    places: list[tuple[int, int]] = []
    for match in _PARTS.finditer(line):
        match match.lastgroup:
            case "open":
                depth += 1
            case "close":
                depth -= 1
            case "break":
                places.append((match.end(), 10 * depth + _LOOSE.get(match.group().strip(), 6)))
    return places
