"""A mapping as one page: HTML that is whole in itself, and is read without scripts.

Everything comes from the data of `texpr map --json`, so a page can be made of a file, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from texpr.box_pictures import box_tiles, swizzle_picture
from texpr.footprints import bank_picture, footprint
from texpr.hierarchy_pictures import block_tile, digit_strips, launches_at
from texpr.pictures import Picture, stacked
from texpr.polyhedral.verify.certificates import RefutedError
from texpr.polyhedral.verify.integers import FileError
from texpr.polyhedral.verify.sectors import addresses
from texpr.polyhedral.verify.stage import Finding, claim_of
from texpr.polyhedral.verify.tree import Launch
from texpr.timeline_pictures import pipe_picture

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 2rem auto; max-width: 76rem;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1rem; margin-top: 1.6rem; }
table { border-collapse: collapse; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; vertical-align: top; border-bottom: 1px solid #eee; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code, pre, td.c { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 12.5px; }
pre { background: #f6f6f6; padding: .7rem; overflow-x: auto; }
details { margin: .4rem 0; } summary { cursor: pointer; }
.more { color: #b3261e; font-weight: 600; } .faint { color: #666; }
svg { display: block; margin: .4rem 0 1rem; max-width: none; }
"""
MOST_LINES, NEWLINE = 16, "\n"  # of a table of alternatives that is shown at once


def page(data: Mapping[str, Any], text: str, findings: Sequence[Finding], alternatives: str) -> str:
    """The page of a mapping: `text` is the mapping in words, `alternatives` a table or a sentence."""
    title = f"{data['kernel']} on {data['target']}"
    body = "\n".join(_body(data, text, findings, alternatives))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _body(data: Mapping[str, Any], text: str, findings: Sequence[Finding], alternatives: str) -> Iterator[str]:
    yield f"<h1>{escape(data['kernel'])} <span class=faint>on {escape(data['target'])}</span></h1>"
    if data["representative"]:
        sizes = ", ".join(f"{name} = {value}" for name, value in data["representative"].items())
        yield f"<p>Judged at {escape(sizes)}; right for every size. All figures are for these sizes.</p>"
    for note in (*data["report"]["schedule"], *data["report"]["notes"]):
        yield f"<p>{escape(note)}</p>"
    for launch in launches_at(data):
        yield from _launch(data, launch)
    yield "<h2>Buffers</h2>"
    rows = [
        (name, b["dtype"], ", ".join(e["text"] for e in b["shape_"]), b["memory"], b["reason"])
        for name, b in ((n, {**b, "shape_": b["layout"]["shape"]}) for n, b in data["buffers"].items())
    ]
    yield _table(("buffer", "type", "shape", "memory", "why there"), rows)
    yield "<h2>What is proved</h2>"
    yield "<p>From this mapping's data alone, by <code>texpr verify</code>.</p>"
    yield _table(("", "about", "finding"), [(f.verdict.value, f.about, f.text) for f in findings])
    yield "<h2>Alternatives</h2>"
    shown, rest = _cut(alternatives)
    yield f"<pre>{escape(shown)}</pre>"
    if rest:
        count = alternatives.count(NEWLINE)
        yield f"<details><summary>all {count}</summary><pre>{escape(alternatives)}</pre></details>"
    yield f"<h2>The mapping in words</h2><pre>{escape(text)}</pre>"


def _cut(text: str) -> tuple[str, bool]:
    """The first lines of a long table, and whether there are more."""
    lines = text.splitlines()
    return NEWLINE.join(lines[:MOST_LINES]), len(lines) > MOST_LINES


def _launch(data: Mapping[str, Any], launch: Launch) -> Iterator[str]:
    node = launch.node
    grid = ", ".join(extent["text"] for extent in node["grid"])
    cluster = "" if list(node["cluster"]) == [1, 1, 1] else f", clusters of {tuple(node['cluster'])}"
    yield f"<h2>{escape(launch.name)}</h2>"
    threads = f"{launch.threads} thread{'s' * (launch.threads != 1)} a block"
    yield f"<p>Grid ({escape(grid)}), {threads}{escape(cluster)}.</p>"
    if launch.when or launch.hosts:
        yield "<p>The host asks, or repeats, before it starts this launch; the mapping in words says where.</p>"
    moved = data["bytes"].get(launch.name, {})
    if moved:
        shown = "; ".join(f"{memory} memory {_bytes(n)}" for memory, n in moved.items())
        yield f"<p>Its threads' requests move: {shown}.</p>"
    yield digit_strips(launch, data["representative"]).svg()
    tiles = _tiles(data, launch)
    if isinstance(tiles, str):
        yield f"<p>No picture of a tile: {tiles}.</p>"
    for drawn in () if isinstance(tiles, str) else tiles:
        yield f"<h3>{escape(drawn.title)}</h3>{drawn.svg()}"
    own = [entry for entry in data["accesses"] if entry["launch"] == launch.name]
    yield "<h3>Accesses</h3>"
    yield _accesses(own) if own else "<p>All its accesses are to registers.</p>"
    yield from _pictures(data, own)


def _tiles(data: Mapping[str, Any], launch: Launch) -> list[Picture] | str:
    """What is drawn of a block's tile, of pipes and of what engines bring; or why nothing is."""
    sizes = data["representative"]
    found = [block_tile(data, launch, sizes), box_tiles(data, launch, sizes)]
    drawn = [picture for picture in found if isinstance(picture, Picture)]
    drawn += [pipe_picture(launch.node, pipe) for pipe in launch.node["pipes"]]
    brought = dict.fromkeys(name for pipe in launch.node["pipes"] for name in pipe["buffers"])
    drawn += [picture for name in brought if (picture := swizzle_picture(data["buffers"], name)) is not None]
    return drawn or str(found[0])


def _bytes(n: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if n >= unit:
            return f"{n / unit:.3g} {name}"
    return f"{n} bytes"


def _accesses(own: Sequence[Mapping[str, Any]]) -> str:
    head = (
        "statement",
        "mode",
        "access",
        "memory",
        "d",
        "known by",
        "per request",
        "ideal",
        "requests",
        "together",
        "",
    )
    counted = [entry.get("counted") for entry in own]
    head = (*head, *(("counted each", "counted") if any(counted) else ()))
    rows = []
    for entry, found in zip(own, counted, strict=True):
        per = "" if entry["per_request"] is None else _counted(entry["per_request"], entry["unit"])
        ideal = "" if entry["ideal"] is None else f"{entry['ideal']:g}"
        d = "" if entry["d"] is None else str(entry["d"])
        known = "" if entry["d"] is None else str(entry["d_by"])
        requests = "" if entry["requests"] is None else f"{entry['requests']:,}"
        shown = (entry["statement"], entry["mode"], entry["relation"], entry["memory"], d, known)
        more = (f"{found['per_request']:.4g}", f"{found['requests']:,}") if found else ("", "")
        rows.append((*shown, per, ideal, requests, str(entry["width"]), entry["why"], *(more if any(counted) else ())))
    return _table(
        head, rows, numbers={4, 7, 8, 9, 11, 12}, marked={k for k, entry in enumerate(own) if _wasteful(entry)}
    )


def _counted(count: float, unit: str) -> str:
    return f"{count:g} {unit[:-1] if count == 1 else unit}"


def _wasteful(entry: Mapping[str, Any]) -> bool:
    """Whether a request takes twice as much as it must."""
    return entry["per_request"] is not None and entry["per_request"] >= 2 * entry["ideal"]


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[int] | None = None, marked: set[int] | None = None
) -> str:
    def cell(k: int, text: str, tag: str, more: bool) -> str:
        kind = "n" if k in (numbers or ()) else "c" if tag == "td" else ""
        kind += " more" if more else ""
        return f'<{tag} class="{kind}">{escape(text)}</{tag}>'

    first = "".join(cell(k, text, "th", False) for k, text in enumerate(head))
    lines = [
        "".join(cell(k, text, "td", n in (marked or ()) and head[k] == "per request") for k, text in enumerate(row))
        for n, row in enumerate(rows)
    ]
    return f'<div class="wide"><table><tr>{first}</tr>{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'


def _pictures(data: Mapping[str, Any], own: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    shown = [picture for entry in own for picture in pictures_of(data, entry)]
    for number, picture in enumerate(shown):
        opened = " open" if number < 4 else ""
        yield f"<details{opened}><summary><code>{escape(picture.title)}</code></summary>{picture.svg()}</details>"


def pictures_of(data: Mapping[str, Any], entry: Mapping[str, Any]) -> Iterator[Picture]:
    """The request of an access at its first sample, in lines of memory or in banks."""
    if not entry["samples"] or data["warp_size"] == 1:
        return
    drawn = footprint(entry, data["buffers"], data["representative"])
    if drawn is not None:
        yield drawn
    elif entry["memory"] in ("shared", "cluster"):
        yield bank_picture(entry, entry["samples"][0]["first"], _in_plain_rows(data, entry))


def _in_plain_rows(data: Mapping[str, Any], entry: Mapping[str, Any]) -> list[int | None] | None:
    """The same request if the buffer lay in dense rows; None where it does."""
    layout = data["buffers"][entry["buffer"]]["layout"]
    shape = [extent["tree"] for extent in layout["shape"]]
    if not all(type(extent) is int for extent in shape):
        return None
    terms, step = [], 1
    for dim in reversed(range(len(shape))):
        zero = {"text": "0", "tree": 0}
        plain = {"dim": dim, "divisor": 1, "modulus": None, "offset": zero, "unit": "address"}
        terms.append({**plain, "stride": {"text": str(step), "tree": step}})
        step *= shape[dim]
    dense = {**data["buffers"][entry["buffer"]], "layout": {**layout, "terms": terms, "xor": None}}
    changed = {**data, "buffers": {**data["buffers"], entry["buffer"]: dense}}
    launch = next(found for found in launches_at(data) if found.name == entry["launch"])
    try:
        return addresses(
            claim_of(changed, entry, launch, data["representative"]), entry["samples"][0]["at"], data["warp_size"]
        )
    except (RefutedError, FileError, LookupError):
        return None


def drawing(data: Mapping[str, Any]) -> str:
    """All pictures of a mapping, below one another, as one SVG."""
    found: list[Picture] = []
    for launch in launches_at(data):
        found.append(digit_strips(launch, data["representative"]))
        tiles = _tiles(data, launch)
        found += [] if isinstance(tiles, str) else tiles
        own = [entry for entry in data["accesses"] if entry["launch"] == launch.name]
        found += [picture for entry in own for picture in pictures_of(data, entry)]
    return stacked(f"{data['kernel']} on {data['target']}", found).svg() + "\n"
