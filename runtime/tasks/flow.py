"""The flow of tasks: what each waits for, its way to a worker, and what follows from its end.

One lock guards the graph, the residency of blocks and all counts; functions of tasks, commits and transfers run outside
it. A task goes through these phases:

    submitted    tasks before it are not over                           `submit`
    acquiring    placed, promised its memory, its buffers on their way  `_ready`, `_acquire`
    running      in the queue of its node, with a worker, or over       `run`, `_over`
    done         its children and commits are over, too                 `_finish`

Whoever takes the lock calls `settle` before letting go: it sees, one by one, to tasks that ended, to transfers that
the machine wants, and to requests that it answered. A task that fails leaves what it could have written without a
value; tasks that need it are cancelled when they ask for it, and so on; nothing else stops.
"""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.context import TaskContext
from texpr.runtime.tasks.distributions import Placement, owner
from texpr.runtime.tasks.elsewhere import Failed
from texpr.runtime.tasks.functions import FunctionDefinition, kinds_of
from texpr.runtime.tasks.holdings import Bound, Holdings, Places
from texpr.runtime.tasks.placement import fitting, places_of
from texpr.runtime.tasks.policies import Policy
from texpr.runtime.tasks.ranks import Ranks
from texpr.runtime.tasks.residency import GRANTED, HOME, Outcome, Transfer
from texpr.runtime.tasks.services import Services
from texpr.runtime.tasks.stuck import fail_stuck
from texpr.runtime.tasks.submission import NOBODY, Node, Scope
from texpr.runtime.tasks.task import NO_GRANTS, Counters, Phase, Task, no_value
from texpr.runtime.tasks.tensors import Tensor, foreign
from texpr.runtime.tasks.turns import First, Lock
from texpr.runtime.tasks.workers import Commit, Crew
from texpr.runtime.transport.interface import Transport

ACQUIRING, RUNNING, DONE = Phase.ACQUIRING, Phase.RUNNING, Phase.DONE  # names of the module are found faster


class Flow:
    """All tasks of an engine. `crew` has threads for each node; `load` counts tasks at the nodes that have workers."""

    def __init__(
        self,
        bounds: Sequence[tuple[str, Bound]],
        workers: Sequence[int],
        policy: Policy,
        ahead: int,
        strict: bool,
        debug: bool,
        transport: Transport | None = None,
        placement: Placement = owner,
    ) -> None:
        self.strict = strict
        self.counters = Counters()
        self.lock = Lock()
        self._first = First(self.lock.plain)
        self.progress = threading.Condition(self.lock.plain)
        self.watchers = 0  # threads that wait for `progress`
        self.unfinished = 0  # tasks of nobody that are not done
        self._ahead = ahead  # how many of them there may be
        self._held_up = 0  # threads that wait to submit more
        self.failures: list[Task | Failed] = []
        self.tensors: dict[Tensor, None] = {}
        self.closed: str | None = None
        self.defect: BaseException | None = None
        self.ranks = Ranks(self, transport, placement) if transport is not None and transport.size > 1 else None
        self.rank = self.ranks.rank if self.ranks is not None else 0
        self.holdings = self.new_holdings(bounds, self.ranks.homes.places if self.ranks is not None else None, debug)
        self.load = {node: 0 for node, count in enumerate(workers) if count}
        self.kinds = frozenset(self.holdings.nodes[node].kind for node in self.load)
        self.has_cpu = "cpu" in self.kinds
        self.definitions: dict[Any, FunctionDefinition] = {}  # of compiled kernels
        self.workers = workers
        self.running = [0] * len(workers)  # tasks that have all they declared
        self.starving = [0] * len(workers)  # those of them whose functions wait for memory
        self.machine = self.holdings.machine
        self._away = [self.holdings.away(node) for node in range(len(workers))]
        self._scope = self.new_scope()
        self._only = next(iter(self.load)) if len(self.load) == 1 else None
        self._places = places_of(self, policy)
        self.active = 0  # jobs that workers or copiers have or will have
        self._short: list[deque[Task]] = [deque() for _ in workers]  # tasks that wait for memory
        self._waiting: dict[Task, None] = {}  # tasks that are not with a worker
        self.ending: deque[Task] = deque()
        self._settling = False
        self._near = -1  # the node of the worker that is under the lock and may go on with a task,
        self._next: Task | None = None  # and that task, which needs no queue
        self.waiters: dict[Any, None] = {}  # functions of tasks, and callers of `flush`, that wait for buffers
        self.services = Services(self)
        self.crew = Crew(self, workers)

    # what a trace sees to (`tracing/traced.py`)

    def new_holdings(self, bounds: Sequence[tuple[str, Bound]], places: Places | None, debug: bool) -> Holdings:
        return Holdings(bounds, places, debug=debug)

    def new_scope(self) -> Scope:
        return Scope()

    def call(self, task: Task, context: TaskContext) -> None:
        task.fn(context, *task.args)

    def carry(self, transfer: Transfer) -> None:
        self.holdings.carry(transfer)

    # submission

    def submit(self, parent: Task | None, task: Task, last: bool) -> Task:
        """Take a drafted task, the last child or another one of `parent` if that is given."""
        found = task.grants
        if self.ranks is not None:
            self.ranks.prepare(task)
        self._first.give_way()
        with self.lock.soon():
            if self.unfinished >= self._ahead and parent is None:
                self._hold_up()
            if self.closed is not None:
                self.check_sound()
                raise fail("E0711", f"{task} is submitted to an engine that {self.closed}")
            for _, block, _ in found.touched:
                if block.tensor.owner is not self:
                    self._adopt(task, block.tensor)
            for tensor in found.whole:
                if tensor.owner is not self:
                    self._adopt(task, tensor)
            task.number = self.counters.submitted
            if self.ranks is not None and parent is None:
                self.ranks.enlist(task)
            if len(self._short) > 1 and task.rank == self.rank and not fitting(self, task):
                task.error = self.holdings.too_small(task, self.load, kinds_of(task.fn))
                if self.ranks is None or parent is not None:
                    raise task.error
                task.holds = ()  # other ranks have the task, too: it fails
            self.counters.submitted += 1
            scope = self._scope
            if parent is None:
                self.unfinished += 1
            else:
                # A last child of a last child belongs to the task above both, so that chains keep nobody alive.
                task.parent = parent.parent if last and parent.tail and parent.parent is not None else parent
                task.tail = last
                task.parent.left += 1
                scope = parent.scope = parent.scope or self.new_scope()
            scope.submit(task, found)
            if task.waiting == 0:
                self._ready(task)
                self.settle()
            else:
                self._waiting[task] = None
        return task

    def _hold_up(self) -> None:
        """Wait until half of the tasks that may be ahead are over: more would only take memory."""
        if self.crew.is_mine(threading.get_ident()):
            return
        self._held_up += 1
        try:
            while self.unfinished > self._ahead // 2 and self.closed is None:
                self.progress.wait()
        finally:
            self._held_up -= 1

    def _adopt(self, task: Task, tensor: Tensor) -> None:
        if tensor.owner is not None:
            raise foreign(f"{task}: tensor {tensor.name}", tensor)
        tensor.owner = self
        self.tensors[tensor] = None

    # on the way to a worker; all of it under the lock

    def _ready(self, task: Task) -> None:
        """Nothing is before the task: it is placed, now or when a node has room."""
        if self.ranks is not None and task.rank != self.rank:
            self.ranks.ready(task)
        elif self._only is not None:
            self.start(task, self._only)
        else:
            self._waiting[task] = None
            self._places.put(task)

    def start(self, task: Task, node: int) -> None:
        """Ask for the task's memory and its buffers at a node."""
        task.phase, task.node = ACQUIRING, node
        self.load[node] += 1
        if task.error is not None:
            self._over(task)
        elif (away := self._away[node]) != HOME and (self._short[away] or not self.holdings.promise(task)):
            self._short[away].append(task)
            self._waiting[task] = None
        else:
            self._acquire(task)

    def _acquire(self, task: Task) -> None:
        outcome = self.holdings.acquire(task)
        if outcome is GRANTED:
            if self._waiting:
                self._waiting.pop(task, None)
            self.active += 1
            self.running[task.node] += 1
            if self._next is None and self._near == task.node:
                self._next = task
            else:
                self.crew.give(task.node, task)
        elif outcome is Outcome.REFUSED:
            self._cancel(task)
        else:
            self._waiting[task] = None

    def _cancel(self, task: Task) -> None:
        """A task needs a block that has no value."""
        self.holdings.undo(task, task.next - 1)
        task.error = no_value(task, task.holds[task.next - 1].block)
        task.phase = Phase.CANCELLED
        self.counters.cancelled += 1
        self._over(task)

    def _over(self, task: Task) -> None:
        """A task's function has returned, or will never run."""
        self._waiting.pop(task, None)
        self.load[task.node] -= 1
        if self._away[task.node] != HOME:
            self.holdings.withdraw(task)
        self.ending.append(task)

    def settle(self) -> None:
        """See to what has come up, until there is nothing left."""
        machine, ending = self.machine, self.ending
        if self._settling or not (ending or machine.started or machine.answered):
            return
        self._settling = True
        try:
            while ending or machine.started or machine.answered:
                if machine.started:
                    for transfer in machine.started:
                        self.active += 1
                        self.counters.transfers += 1
                        self.crew.move(transfer)
                    machine.started.clear()
                if machine.answered:
                    answered, machine.answered = machine.answered, []
                    for token, outcome in answered:
                        self._answer(token, outcome)
                if ending:
                    self._less(ending.popleft())
                if not ending:
                    for node in self.load:
                        self._retry(self._away[node])
                    self._places.draw()
        finally:
            self._settling = False

    def _answer(self, token: Any, outcome: Outcome) -> None:
        if type(token) is Task:
            if outcome is Outcome.REFUSED:
                self._cancel(token)
            else:
                self._acquire(token)
        elif type(token) is Commit:
            token.refused = outcome is Outcome.REFUSED
            self.active += 1
            self.crew.give(token.task.node, token)
        else:
            if token.answer(outcome):
                self.waiters.pop(token, None)

    def _retry(self, node: int) -> None:
        """Tasks that wait for memory, in order."""
        short = self._short[node]
        while short and self.holdings.promise(short[0]):
            self._acquire(short.popleft())

    # the end of a task; all of it under the lock

    def _less(self, task: Task) -> None:
        """One less of what a task waits for at its end: its function, its children, its commits."""
        current: Task | None = task
        while current is not None:
            current.left -= 1
            if current.left:
                return
            parent = current.parent
            self._finish(current)
            current = parent

    def _finish(self, task: Task) -> None:
        """A task, its children and commits are over: others may follow."""
        self.counters.finished += 1
        if task.error is not None:
            self.holdings.spoil(task, task.error)
            self.failures.append(task)
            self.counters.failed += task.phase is not Phase.CANCELLED
            if self.ranks is not None and task.parent is not None:
                self.ranks.failed(task)
        if task.error is None:
            task.phase = DONE
        elif task.phase is not Phase.CANCELLED:
            task.phase = Phase.FAILED
        if task.parent is None and (self.ranks is None or self.ranks.finished(task)):
            self.unfinished -= 1
        task.scope, task.holds, task.args, task.grants = None, (), (), NO_GRANTS  # tables keep the task for a while
        if (self.watchers and (task.watched or not self.unfinished)) or (
            self._held_up and self.unfinished <= self._ahead // 2
        ):
            self.progress.notify_all()
        open_: list[Node] = [task]
        while open_:
            node = open_.pop()
            node.done = True
            for after in node.successors:
                after.waiting -= 1
                if after.waiting == 0:
                    if type(after) is Task:
                        del self._waiting[after]
                        self._ready(after)
                    else:
                        open_.append(after)
            node.successors = NOBODY

    def idle(self) -> None:
        """A job is over. Where it was the last one and tasks are left, these wait for ever, and fail."""
        self.active -= 1
        if self.active or not self._waiting or self.closed is not None or (self.ranks and self.ranks.stand_ins):
            return
        for task in fail_stuck(self.holdings, self._waiting, self._short):
            self._over(task)
        self.settle()

    # what workers report

    def run(self, task: Task) -> Task | None:
        """A worker runs a task; gives one that it can run next, if the end of this one made it ready."""
        task.phase = RUNNING
        context = TaskContext(self.services, task)
        error: BaseException | None = None
        try:
            self.call(task, context)
        except BaseException as why:  # whatever it is, it is the task's, and the worker goes on
            error = why
        error = context.close(error)
        with self.lock.soon() if task.node == HOME else self._first:
            task.error = error
            if context.leaving is not None:
                self.holdings.leave(task, context.leaving, context.failed)
            self.holdings.give_up(task, context.untaken)
            self._over(task)
            self.running[task.node] -= 1
            if self.starving[task.node]:
                self.progress.notify_all()
            self._near = task.node if self.closed is None else -1
            self.settle()
            self._near, following, self._next = -1, self._next, None
            self.idle()
        return following

    def carried(self, transfer: Transfer, error: BaseException | None) -> None:
        """A transfer is made, or failed."""
        if transfer.passage is not None:
            self.holdings.nodes[transfer.node].passed(transfer.passage)
            transfer.passage = None
        with self._first:
            self.machine.done(transfer, error)
            self._retry(transfer.node)
            self.settle()
            if any(self.starving):
                self.progress.notify_all()
            self.idle()

    # the end of tensors, and of the engine

    def forget(self, tensor: Tensor) -> None:
        """No task works on a tensor any more, nor will; under the lock."""
        self.holdings.forget(tensor)
        self._scope.forget(tensor)
        self.tensors.pop(tensor, None)

    def collapse(self, why: BaseException) -> None:
        """The engine cannot go on, by a defect of ours or because of another rank: nobody is to wait for ever; under
        the lock."""
        self.defect = self.defect or why
        if self.closed is None:
            self.closed = "collapsed"
            self.wake()

    def check_sound(self) -> None:
        """Raises why the engine collapsed, if it did."""
        if self.defect is not None:
            raise self.defect

    def wake(self) -> None:
        """The engine ends: what waits for a buffer gets none."""
        for waiter in list(self.waiters):
            waiter.answer(Outcome.REFUSED)
        self.waiters.clear()
        self.progress.notify_all()
