"""The graph of the tasks of a trace, as SVG or DOT: what had to wait for what.

In the SVG each column holds tasks that had to wait for one of the column before. A colour is a name, a dashed frame a
task that failed or was cancelled, a small circle a join node.
"""

import math
from collections.abc import Mapping
from html import escape

from texpr.grammar.diagnostics import fail
from texpr.runtime.tracing.trace_file import Trace

MAX_DRAWN = 2000  # tasks; nobody sees more
WIDTH, HEIGHT, GAP_X, GAP_Y = 120, 26, 50, 10
COLOURS = ("#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9", "#fce5cd", "#d0e0e3", "#ead1dc")
Node = int | str


def _graph(trace: Trace) -> dict[Node, tuple[Node, ...]]:
    """Each node with those before it; children come after their parents. Raises E0606 for more than MAX_DRAWN."""
    if len(trace.tasks) > MAX_DRAWN:
        said = f"the trace has {len(trace.tasks)} tasks, and a drawing of more than {MAX_DRAWN} shows nothing"
        raise fail("E0606", said, help="trace a smaller run")
    found: dict[Node, tuple[Node, ...]] = {}
    for run in trace.tasks.values():
        parent = () if run.parent is None else (run.parent,)
        found[run.number] = tuple(b for b in (*run.after, *parent) if b in trace.tasks or b in trace.joins)
    for name, before in trace.joins.items():
        found[name] = tuple(b for b in before if b in trace.tasks or b in trace.joins)
    return found


def draw_dot(trace: Trace) -> str:
    lines = ["digraph tasks {", "  rankdir=LR; node [shape=box];"]
    graph = _graph(trace)
    for node in graph:
        run = trace.tasks.get(node) if isinstance(node, int) else None
        label = "" if run is None else f"{run.name}#{run.number}".replace("\\", "\\\\").replace('"', '\\"')
        style = ", shape=point" if run is None else "" if run.status == "done" else ", style=dashed"
        lines.append(f'  "{node}" [label="{label}"{style}];')
    lines += [f'  "{before}" -> "{node}";' for node, befores in graph.items() for before in befores]
    return "\n".join((*lines, "}", ""))


def draw_svg(trace: Trace) -> str:
    graph = _graph(trace)
    places = _places(graph)
    colours = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(sorted({r.name for r in trace.tasks.values()}))}
    width = max((x for x, _ in places.values()), default=0) + WIDTH + GAP_X
    height = max((y for _, y in places.values()), default=0) + HEIGHT + GAP_Y
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" '
        'font-size="11">'
    ]
    for node, befores in graph.items():
        x, y = places[node]
        for before in befores:
            bx, by = places[before]
            right, left = bx + (WIDTH if isinstance(before, int) else 0), x
            middle = (right + left) / 2
            path = f"M{right:g},{by + HEIGHT / 2:g} C{middle:g},{by + HEIGHT / 2:g} {middle:g},{y + HEIGHT / 2:g}"
            lines.append(f'<path d="{path} {left:g},{y + HEIGHT / 2:g}" fill="none" stroke="#888"/>')
    for node, (x, y) in places.items():
        run = trace.tasks.get(node) if isinstance(node, int) else None
        if run is None:
            lines.append(f'<circle cx="{x:g}" cy="{y + HEIGHT / 2:g}" r="3"/>')
            continue
        dashed = "" if run.status == "done" else ' stroke-dasharray="4"'
        title = f"{run.name}#{run.number}"
        told = f"{title} {run.status}: {run.end_us - run.begin_us:.1f} us at {run.worker}"
        shown = title if len(title) <= 18 else title[:17] + "…"
        lines.append(
            f'<g><title>{escape(told)}</title><rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="4" '
            f'fill="{colours[run.name]}" stroke="#555"{dashed}/><text x="{x + WIDTH / 2:g}" y="{y + 17:g}" '
            f'text-anchor="middle">{escape(shown)}</text></g>'
        )
    return "\n".join((*lines, "</svg>", ""))


def _places(graph: Mapping[Node, tuple[Node, ...]]) -> dict[Node, tuple[float, float]]:
    """Columns by the longest way from the beginning; within a column, near the middle of those before."""
    columns: dict[Node, int] = {}
    work = list(graph)
    while work:
        node = work[-1]
        missing = [before for before in graph[node] if before not in columns]
        if missing:
            work += missing
            continue
        columns[work.pop()] = 1 + max((columns[before] for before in graph[node]), default=-1)
    places: dict[Node, tuple[float, float]] = {}
    for column in range(max(columns.values(), default=-1) + 1):
        members = [node for node in graph if columns[node] == column]
        wanted = {node: _mean([places[before][1] for before in graph[node]]) for node in members}
        for row, node in enumerate(sorted(members, key=lambda node: (wanted[node], str(node).zfill(12)))):
            places[node] = GAP_X / 2 + column * (WIDTH + GAP_X), GAP_Y + row * (HEIGHT + GAP_Y)
    return places


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
