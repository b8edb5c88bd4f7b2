"""An engine's flow of tasks that is recorded: the same flow, whose steps leave their times."""

import threading
from collections.abc import Sequence
from typing import Any

from texpr.runtime.tasks.context import TaskContext
from texpr.runtime.tasks.flow import Flow
from texpr.runtime.tasks.functions import name_of
from texpr.runtime.tasks.grants import Grants
from texpr.runtime.tasks.holdings import Bound, Holdings, Places
from texpr.runtime.tasks.residency import Residency, Transfer
from texpr.runtime.tasks.submission import Node, Scope
from texpr.runtime.tasks.task import Task
from texpr.runtime.tasks.tensors import Tensor
from texpr.runtime.tracing.recorder import Memory, Moved, Recorder, Span, Submitted, Vertex


class TracedHoldings(Holdings):
    """Buffers whose making and freeing is recorded."""

    def __init__(
        self, recorder: Recorder, bounds: Sequence[tuple[str, Bound]], places: Places | None, debug: bool
    ) -> None:
        super().__init__(bounds, places, debug=debug)
        self._recorder = recorder

    def allocate(self, residency: Residency, node: int) -> None:
        super().allocate(residency, node)
        self._recorder.memory.append(Memory(self._recorder.now(), node, residency.key.size_bytes, None))

    def free(self, residency: Residency, node: int) -> None:
        super().free(residency, node)
        block = residency.key
        self._recorder.memory.append(Memory(self._recorder.now(), node, -block.size_bytes, str(block)))


class TracedScope(Scope):
    """Tables of dependences beside others that keep every edge, also those to tasks that are over."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder, self._kept = recorder, Scope()

    def submit(self, node: Node, grants: Grants) -> None:
        super().submit(node, grants)
        assert isinstance(node, Task)
        vertex = Vertex(node.number)
        self._kept.submit(vertex, grants)
        parent = node.parent.number if node.parent is not None else None
        name = name_of(node.fn)
        accesses = tuple(map(str, grants.accesses))
        self._recorder.submitted.append(Submitted(self._recorder.now(), node.number, name, parent, accesses, vertex))

    def forget(self, tensor: Tensor) -> None:
        super().forget(tensor)
        self._kept.forget(tensor)


class TracedFlow(Flow):
    def __init__(self, recorder: Recorder, *options: Any) -> None:
        self.recorder = recorder
        super().__init__(*options)

    def new_holdings(self, bounds: Sequence[tuple[str, Bound]], places: Places | None, debug: bool) -> Holdings:
        return TracedHoldings(self.recorder, bounds, places, debug)

    def new_scope(self) -> Scope:
        return TracedScope(self.recorder)

    def _acquire(self, task: Task) -> None:
        before = self.running[task.node]
        super()._acquire(task)
        if self.running[task.node] > before:
            self.recorder.ready.append((self.recorder.now(), task.number, task.node))

    def call(self, task: Task, context: TaskContext) -> None:
        begin = self.recorder.now()
        try:
            super().call(task, context)
        finally:
            self.recorder.ran[task.number] = self._span(begin, task.node)

    def carry(self, transfer: Transfer) -> None:
        block, begin = transfer.residency.key, self.recorder.now()
        try:
            super().carry(transfer)
        finally:
            span = self._span(begin, transfer.node)
            self.recorder.moved.append(Moved(transfer.step.name, str(block), block.size_bytes, transfer.source, span))

    def _finish(self, task: Task) -> None:
        super()._finish(task)
        self.recorder.ended[task.number] = task.phase.name.lower()

    def _span(self, begin: int, node: int) -> Span:
        return Span(begin, self.recorder.now(), node, threading.current_thread().name)
