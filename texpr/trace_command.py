"""`texpr trace`: what the trace of an engine of tasks says."""

from pathlib import Path

from texpr.command_line import Command, option, say
from texpr.command_options import AS_JSON, print_json


def trace(file: Path, svg: Path | None, dot: Path | None, as_json: bool) -> None:
    """Sum up a trace of tasks: critical path, overlap, idle workers, bytes moved; or draw its graph."""
    from texpr.inspect import write_whole
    from texpr.runtime.tracing.drawing import draw_dot, draw_svg
    from texpr.runtime.tracing.summary import summarise
    from texpr.runtime.tracing.trace_file import read_trace

    found = read_trace(file)
    for path, draw in ((svg, draw_svg), (dot, draw_dot)):
        if path is not None:
            write_whole(path, draw(found).encode())
    summary = summarise(found)
    if as_json:
        print_json(summary.to_json())
    else:
        say(str(summary))


TRACE = Command(
    name="trace",
    run=trace,
    options=(
        option("file", type=Path, metavar="FILE", help='what `Engine(trace="FILE")` wrote'),
        option("--svg", type=Path, metavar="FILE", help="draw the graph of the tasks"),
        option("--dot", type=Path, metavar="FILE", help="write the graph for Graphviz"),
        AS_JSON,
    ),
)
