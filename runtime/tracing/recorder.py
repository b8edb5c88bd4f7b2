"""What happened in an engine, as it happens: only times, numbers and names are kept, and made a file of at the end.

Lists are appended to by several threads, in any order; times are in nanoseconds since the recorder began.
"""

from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

from texpr.grammar.paths import as_path, not_written
from texpr.runtime.tasks.submission import Node


class Vertex(Node):
    """A task in the graph that a trace keeps, which has all its edges: it is never over."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Submitted(NamedTuple):
    time: int
    number: int
    name: str
    parent: int | None
    accesses: tuple[str, ...]
    vertex: Vertex


class Span(NamedTuple):
    """What a thread did at a node: it ran a task, or made a transfer."""

    begin: int
    end: int
    node: int
    thread: str


class Moved(NamedTuple):
    """A transfer at the node of its span; a GET is from `source`."""

    step: str
    block: str
    size_bytes: int
    source: int
    span: Span


class Memory(NamedTuple):
    """Bytes that a node has more, or less; `evicted` is a block that went."""

    time: int
    node: int
    size_bytes: int
    evicted: str | None


class Recorder:
    """What an engine did so far. Raises E0606 or E0608 where its file cannot be written."""

    def __init__(self, path: str | Path) -> None:
        self.path = as_path(path)
        try:
            self.path.write_text("", encoding="utf-8")
        except OSError as why:  # now, and not after hours of work
            raise not_written(self.path, why) from None
        self._zero = perf_counter_ns()
        self.submitted: list[Submitted] = []
        self.ready: list[tuple[int, int, int]] = []  # time, task, node
        self.ran: dict[int, Span] = {}
        self.ended: dict[int, str] = {}
        self.moved: list[Moved] = []
        self.memory: list[Memory] = []

    def now(self) -> int:
        return perf_counter_ns() - self._zero
