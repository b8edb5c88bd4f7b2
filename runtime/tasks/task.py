"""Tasks as the engine keeps them, and as users hold them: what was submitted, where it stands, how it ended."""

import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.records import dataclass
from texpr.runtime.tasks.grants import Grants
from texpr.runtime.tasks.permissions import Access, Mode
from texpr.runtime.tasks.submission import NOBODY, Node, Scope
from texpr.runtime.tasks.tensors import Block

if TYPE_CHECKING:
    from texpr.runtime.tasks.flow import Flow


class Phase(IntEnum):
    SUBMITTED = 0  # tasks before it are not over
    ACQUIRING = 1  # its buffers are on their way
    RUNNING = 2  # a worker has it, or will; its function, children or commits are not over
    DONE = 3
    FAILED = 4
    CANCELLED = 5


SUBMITTED = Phase.SUBMITTED
MAX_TOLD = 8  # tasks that an error names


@dataclass(slots=True)
class Counters:
    """What happened so far. `undeclared`: accesses that tasks made without declaring them."""

    submitted: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    undeclared: int = 0
    transfers: int = 0


class Task(Node):
    """A task. Its users ask `done`, `wait` and `exception`."""

    __slots__ = (
        "_flow", "args", "error", "fn", "grants", "guests", "holds", "left", "memory", "next", "node", "number",
        "parent", "phase", "rank", "scope", "tail", "watched",
    )  # fmt: skip

    def __init__(self, flow: "Flow", number: int, fn: Callable[..., Any], args: Sequence[Any]) -> None:
        self.successors: list[Node] = NOBODY
        self.waiting = 0
        self.done = False
        self._flow, self.number, self.fn, self.args = flow, number, fn, args
        self.grants: Grants = NO_GRANTS
        self.holds: Sequence[Access] = ()  # to the blocks that are its own while it runs
        self.next = 0  # how many of them it has asked for
        self.node = 0  # the memory in which it runs
        self.rank = 0  # the rank at which it runs; at others it is a stand-in
        self.memory = 0  # bytes of its own that it was promised there
        self.guests: list[Block] | None = None  # blocks beside `holds` that stay there while it runs
        self.left = 1  # its function, children and commits that are not over
        self.parent: Task | None = None
        self.scope: Scope | None = None  # of its children
        self.tail = False  # it was submitted as its parent's last
        self.phase = SUBMITTED
        self.error: BaseException | None = None
        self.watched = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the task and its children are over; False when the time is up, or the engine has ended. Raises
        E0711 inside a task, which would wait for itself."""
        flow = self._flow
        if flow.crew.is_mine(threading.get_ident()):
            raise fail("E0711", f"a task's function waits for {self}", help="submit what follows as a child")
        with flow.lock.soon():
            flow.watchers += 1
            self.watched = True
            try:
                flow.progress.wait_for(lambda: self.phase >= Phase.DONE or flow.closed is not None, timeout_s)
            finally:
                flow.watchers -= 1
            return self.phase >= Phase.DONE

    def exception(self) -> BaseException | None:
        """Why the task failed or was cancelled; None where it did not, or is not over."""
        return self.error

    def __str__(self) -> str:
        return f"task {getattr(self.fn, '__name__', type(self.fn).__name__)}#{self.number}"

    __repr__ = __str__


NO_GRANTS = Grants()


def no_value(task: Task, block: Block) -> TExprError:
    """E0710: a task needs a block that another one should have written."""
    residency = block.residency
    why = residency.spoilt if residency is not None else None
    told = fail("E0710", f"{task}: {block} has no value")
    told.__cause__ = why
    return told


def holds_of(accesses: Sequence[Access]) -> Sequence[Access]:
    """What a task takes before it runs: its accesses to blocks that it shares with others, those that accumulate in one
    order for all tasks, so that no two wait for each other. A cancellable access works on a copy, and reads at most."""
    sums = 0
    for mode, block, cancellable in accesses:
        if mode is _TEMP or cancellable or block.is_zero:
            return holds_of([_of_copy(access) for access in accesses if _is_held(access)])
        if mode is _ACCUMULATE:
            sums += 1
    if sums > 1:
        return sorted(accesses, key=lambda access: (access.block.tensor.serial, access.block.number))
    return accesses


def _is_held(access: Access) -> bool:
    mode, block, cancellable = access
    return not (block.is_zero or mode is _TEMP or (cancellable and mode is not Mode.READ_WRITE))


def _of_copy(access: Access) -> Access:
    return Access(Mode.READ, access.block) if access.cancellable else access


_ACCUMULATE, _TEMP = Mode.ACCUMULATE, Mode.TEMP
