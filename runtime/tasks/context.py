"""What a task's function is given first: its buffers, by `get_buf_…`, and the submission of its children.

A buffer whose access was declared is there at once. One that was not is fetched while the task waits, which is legal,
counted (`engine.counters.undeclared`) and warned about (W0701). Functions never wait for other tasks: what needs their
results is submitted as a further child.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from texpr.grammar.diagnostics import Diagnostic, Severity, TExprError, TExprWarning, fail
from texpr.runtime.tasks.buffers import Buffer, undecided
from texpr.runtime.tasks.device_nodes import DeviceNode
from texpr.runtime.tasks.drafts import draft
from texpr.runtime.tasks.grants import outside
from texpr.runtime.tasks.nodes import MemoryNode
from texpr.runtime.tasks.permissions import ALLOWS, EFFECT, MODE_WORDS, Access, Mode, Right
from texpr.runtime.tasks.residency import HOME, Outcome
from texpr.runtime.tasks.services import Services, Waiter
from texpr.runtime.tasks.states import Op
from texpr.runtime.tasks.task import Task, no_value
from texpr.runtime.tasks.tensors import Block, Slice

NO_BLOCKS: Set[Block] = frozenset()


class TaskContext:
    """The runtime, as one task sees it. `node` is the number of the memory in which it runs, 0 is home."""

    __slots__ = (
        "_arrays", "_buffers", "_declared", "_held", "_own", "_services", "_submitted_last", "_written", "failed",
        "is_over", "leaving", "task",
    )  # fmt: skip

    def __init__(self, services: Services, task: Task) -> None:
        self._services, self.task = services, task
        self.is_over = False
        self._submitted_last = False
        self._arrays: list[Any] | None = None  # memory of its own away from home
        self._buffers: list[Buffer] | None = None
        self._held: dict[Block, bool] | None = None  # blocks that are its own now: handed out or not yet
        self._declared: dict[Block, Access] | None = None  # but for temporaries
        self._own: Set[Block] = NO_BLOCKS  # of which it declared memory of its own
        self._written: set[Block] | None = None  # that it has committed
        self.leaving: list[Block] | None = None  # blocks that go back with the end of the task,
        self.failed: TExprError | None = None  # and why a GPU has not done with them what it was to do

    @property
    def node(self) -> int:
        return self.task.node

    @property
    def memory(self) -> MemoryNode:
        return self._services.flow.holdings.nodes[self.task.node]

    @property
    def kind(self) -> str:
        """Which entry of a `FunctionDefinition` runs here: `cpu` or `cuda`."""
        return self.memory.kind

    @property
    def stream(self) -> int | None:
        """On a GPU, the handle of the stream on which the task works: what is there when the function returns, or gives
        a buffer back, is waited for."""
        return self.memory.stream

    @property
    def device(self) -> int | None:
        """The number of the GPU."""
        memory = self.memory
        return memory.device.number if isinstance(memory, DeviceNode) else None

    # buffers

    def get_buf(self, asked: Block | Access, fill: Any = None) -> Buffer:
        """The buffer of a declared access, as it was declared; `fill` is for one that begins with anything in it."""
        access = asked if isinstance(asked, Access) else self.declared(asked)
        if access is None:
            raise fail(
                "E0703",
                f"{self.task} asks for a buffer of {str(asked)[:80]}, to which it has declared no access",
                help="declare one, or say which by `get_buf_read` and the like",
            )
        mode, block, cancellable = access
        begins = fill if mode in (Mode.WRITE, Mode.TEMP) else None
        return (self._private if cancellable or mode is Mode.TEMP else self._shared)(block, mode, begins)

    def get_buf_read(self, block: Block | Slice) -> Buffer:
        """The block's values, which cannot be written."""
        return self._shared(block, Mode.READ, None)

    def get_buf_write(self, block: Block | Slice, fill: Any = None) -> Buffer:
        """Memory for all of the block's values, with anything in it, or filled with a number."""
        return self._shared(block, Mode.WRITE, fill)

    def get_buf_read_write(self, block: Block | Slice) -> Buffer:
        """The block's values, to be changed."""
        return self._shared(block, Mode.READ_WRITE, None)

    def get_buf_accumulate(self, block: Block | Slice) -> Buffer:
        """Memory to which the task adds, by `+=`: it may hold terms of other tasks, or the block's values."""
        return self._shared(block, Mode.ACCUMULATE, None)

    def get_buf_tmp(self, block: Block | Slice, fill: Any = None) -> Buffer:
        """Memory of the block's shape, the task's own; it may be committed as the task's permissions allow."""
        return self._private(block, Mode.TEMP, fill)

    def get_buf_cwrite(self, block: Block | Slice, fill: Any = None) -> Buffer:
        """As `get_buf_write`, cancellable: the task's own memory, of which nothing reaches the block uncommitted."""
        return self._private(block, Mode.WRITE, fill)

    def get_buf_cread_write(self, block: Block | Slice) -> Buffer:
        """As `get_buf_read_write`, cancellable: a copy of the block's values."""
        return self._private(block, Mode.READ_WRITE, None)

    def get_buf_caccumulate(self, block: Block | Slice) -> Buffer:
        """As `get_buf_accumulate`, cancellable: zeros of the task's own."""
        return self._private(block, Mode.ACCUMULATE, 0)

    def cancel(self, block: Block) -> None:
        """A declared access whose buffer the task has not asked for is not needed: others may have the block."""
        held = self._holding()
        if held.get(block) is not False:
            raise fail("E0703", f"{self.task} cancels its access to {block}, which it does not hold")
        del held[block]
        self._services.give_back(block, self.task.node, False, None)

    # children

    def submit(self, fn: Any, *declared: Any, args: Sequence[Any] = (), **named: Any) -> Task:
        """Submit a child: a task that may do no more than this one (E0705). Others wait for it as for this one."""
        return self._submit(fn, declared, args, named, False)

    def submit_last(self, fn: Any, *declared: Any, args: Sequence[Any] = (), **named: Any) -> Task:
        """Submit the last child, which takes this task's place: a chain of such tasks keeps none of them alive."""
        return self._submit(fn, declared, args, named, True)

    def _submit(
        self, fn: Any, declared: tuple[Any, ...], args: Sequence[Any], named: Mapping[str, Any], last: bool
    ) -> Task:
        if self.is_over:
            raise fail("E0711", f"{self.task} is over, and cannot submit children")
        if self._submitted_last:
            raise fail("E0703", f"{self.task} submits a child after its last one")
        flow = self._services.flow
        task = flow.submit(self.task, draft(flow, self.task, fn, declared, args, named), last)
        self._submitted_last = last
        return task

    # what buffers ask of their task

    def give_back(self, block: Block, spoilt: TExprError | None) -> None:
        """The block's own buffer is no longer this task's. Raises E0717 where a GPU has not done what it was to do."""
        failed = self._waited()
        del self._holding()[block]
        if spoilt is None:
            self._wrote(block)
        self._services.give_back(block, self.task.node, True, spoilt if spoilt is not None else failed)
        if failed is not None:
            raise failed

    def conclude(self, function: object, buffers: Iterable[Buffer]) -> None:
        """What the accesses of buffers ask for, when a function is over. Where it is the task's own, all go back with
        its end."""
        fn = self.task.fn
        ends = function is fn or function is getattr(fn, "entries", {}).get(self.kind)
        for buffer in buffers:
            (buffer.conclude if ends else buffer.commit)()

    def leave(self, block: Block) -> None:
        del self._holding()[block]
        self.leaving = [*(self.leaving or ()), block]

    def _waited(self) -> TExprError | None:
        """What this thread has begun on a GPU is over; why it failed."""
        if self.task.node == HOME:
            return None
        try:
            self.memory.finish()
        except TExprError as why:
            return why
        return None

    def commit(self, block: Block, op: Op, values: Any) -> None:
        """What the task computed in its own memory goes to the block as soon as nobody holds it; the task is not over
        before. Nobody waits for it here, so tasks that commit to each other's blocks do not wait for each other."""
        self._check_children(block, Mode.WRITE if op is Op.WRITE else Mode.ACCUMULATE)
        self._wrote(block)
        self._services.commit(self.task, block, op, values)

    def _wrote(self, block: Block) -> None:
        if self._written is None:
            self._written = set()
        self._written.add(block)

    def close(self, error: BaseException | None) -> BaseException | None:
        """The function has returned or raised: buffers that it kept are given back. The task's error, if any."""
        for buffer in self._buffers or ():
            if not buffer.decided:
                if buffer.modifies:
                    error = error if error is not None else undecided(buffer)
                try:
                    (buffer.cancel if buffer.modifies else buffer.release)()
                except TExprError as why:  # of a GPU that has failed; the buffer is given back all the same
                    error = error if error is not None else why
        self.failed = self._waited()
        for array in self._arrays or ():
            self.memory.drop(array)
        self.is_over = True
        return error if error is not None else self.failed

    def own(self, block: Block) -> Any:
        """Memory of the task's own for a block's values."""
        array = self.memory.own(block.shape, block.tensor.dtype)
        self.memory.check(array)
        if self.task.node != HOME:
            self._arrays = [*(self._arrays or ()), array]
        return array

    @property
    def untaken(self) -> list[Block]:
        """Blocks that the task declared, and whose buffers it did not ask for."""
        if self._held is None:
            return [block for _, block, _ in self.task.holds]
        return [block for block, taken in self._held.items() if not taken]

    # the ways to a buffer

    def _holding(self) -> dict[Block, bool]:
        if self._held is None:
            self._held = {block: False for _, block, _ in self.task.holds}
        return self._held

    def _checked(self, block: Block | Slice, mode: Mode) -> Block:
        """The block, which the task may access in this way."""
        if self.is_over:
            raise fail("E0706", f"{self.task} asks for a buffer after its end")
        if not isinstance(block, Block):
            raise fail("E0703", f"{self.task}: a buffer is of one block, not of {str(block)[:80]}")
        right = self.task.grants.right(block)
        if mode is not Mode.TEMP and (right is None or mode not in ALLOWS[right]):
            raise outside(self.task, mode, block, right)
        reads = mode in (Mode.READ, Mode.READ_WRITE)
        if self._services.flow.strict and reads and right is Right.WRITE and block not in (self._written or ()):
            raise fail(
                "E0713",
                f"{self.task}: `{MODE_WORDS[mode]}` of {block}, which it may only write, and has not written",
                help="declare `may_read_write`, or write the block first",
            )
        if block.is_zero and mode not in (Mode.READ, Mode.TEMP):
            raise fail("E0709", f"{self.task}: `{MODE_WORDS[mode]}` of {block}, which is a zero block")
        return block

    def _check_children(self, block: Block, mode: Mode) -> None:
        scope = self.task.scope
        brought = {Mode.READ: Right.READ, Mode.ACCUMULATE: Right.ACCUMULATE}.get(mode, Right.WRITE)
        if scope is not None and scope.conflicts(block, EFFECT[brought]):
            raise fail(
                "E0705",
                f"{self.task}: `{MODE_WORDS[mode]}` of {block} after a child was submitted that works on it",
                help="submit what follows as a further child",
            )

    def _buffer(self, block: Block, mode: Mode, array: Any, own: bool) -> Buffer:
        found = Buffer(self, block, mode, array, own)
        if self._buffers is None:
            self._buffers = []
        self._buffers.append(found)
        return found

    def _shared(self, asked: Block | Slice, mode: Mode, fill: Any) -> Buffer:
        """The block's own buffer."""
        block = self._checked(asked, mode)
        if block.is_zero:
            own = self.kind != "cpu"  # the host has one element for all of it
            return self._zeros(block, mode) if own else self._buffer(block, mode, block.home, True)
        held = self._holding()
        if block not in held:
            self._check_children(block, mode)
            self._undeclared(block, mode)
            if mode is Mode.ACCUMULATE:  # two tasks that each hold what the other one wants would wait for ever
                return self._zeros(block, mode)
            self._fetch(block, mode)
        elif held[block]:
            raise fail("E0706", f"{self.task} asks for {block} a second time, and still has a buffer of it")
        else:
            self._check_declared(block, mode, False)
        held[block] = False
        array = self._services.take(block, self.task.node)
        held[block] = True
        found = self._buffer(block, mode, array, False)
        if fill is not None:
            self.memory.fill(array, fill)
        return found

    def _zeros(self, block: Block, mode: Mode) -> Buffer:
        """Zeros of the task's own, which it was not promised."""
        if self.kind != "cpu":
            self._services.lend(self.task, block)
        array = self.own(block)
        self.memory.fill(array, 0)
        return self._buffer(block, mode, array, True)

    def _private(self, asked: Block | Slice, mode: Mode, fill: Any) -> Buffer:
        """Memory of the task's own, with a copy of the block's values where it reads them."""
        block = self._checked(asked, mode)
        self._check_declared(block, mode, True)
        if self.task.node != HOME and not self._promised(block):
            self._services.lend(self.task, block)
        array = self.own(block)
        if mode is Mode.READ_WRITE:
            held = self._holding()
            if block not in held:
                self._check_children(block, mode)
                self._undeclared(block, mode)
                self._fetch(block, Mode.READ)
                held[block] = False
            elif held[block]:
                raise fail("E0706", f"{self.task} asks for {block} a second time, and still has a buffer of it")
            self.memory.copy(array, self._services.take(block, self.task.node))
            failed = self._waited()
            del held[block]
            self._services.give_back(block, self.task.node, True, None)
            if failed is not None:
                raise failed
        elif fill is not None:
            self.memory.fill(array, fill)
        return self._buffer(block, mode, array, True)

    def _check_declared(self, block: Block, mode: Mode, cancellable: bool) -> None:
        """A declared access is asked for as it was declared."""
        found = self._declarations().get(block)
        if found is None or mode is Mode.TEMP:
            return
        declared, _, as_copy = found
        if (declared, as_copy) != (mode, cancellable) and self._holding().get(block) is False:
            told = f"`{MODE_WORDS[declared]}`{' (cancellable)' if as_copy else ''}"
            raise fail(
                "E0703",
                f"{self.task} declares {told} of {block}, and asks for another buffer",
                help=f"ask by `get_buf_{'c' if as_copy else ''}{MODE_WORDS[declared]}`",
            )

    def declared(self, block: Block) -> Access | None:
        """The access to a block that the task has declared: a temporary one where there is no other."""
        found = self._declarations().get(block)
        return found if found is not None else Access(Mode.TEMP, block) if block in self._own else None

    def _promised(self, block: Block) -> bool:
        """Whether memory of the task's own for this block was declared."""
        self._declarations()
        return block in self._own

    def _declarations(self) -> dict[Block, Access]:
        """The task's declared accesses by their blocks, each of which has one beside its temporaries."""
        if self._declared is None:
            accesses = self.task.grants.accesses
            self._declared = {access.block: access for access in accesses if access.mode is not Mode.TEMP}
            self._own = {access.block for access in accesses if access.mode is Mode.TEMP or access.cancellable}
        return self._declared

    def _undeclared(self, block: Block, mode: Mode) -> None:
        if self._services.undeclared(self.task.fn):
            said = Diagnostic(
                code="W0701",
                severity=Severity.WARNING,
                message=f"{self.task}: `{MODE_WORDS[mode]}` of {block} was not declared",
                help=f"submit the task with `{MODE_WORDS[mode]}({block})`",
            )
            warnings.warn(TExprWarning(said), stacklevel=4)  # the line that called `get_buf_…`

    def _fetch(self, block: Block, mode: Mode) -> None:
        """Take hold of a block that was not declared, and wait until its buffer is there."""
        waiter = Waiter()
        outcome = self._services.request(self.task, block, Op(mode), waiter)
        if outcome is Outcome.WAITING:
            waiter.there.wait()
            outcome = waiter.outcome
        if outcome is Outcome.REFUSED and self._services.flow.closed is not None:
            raise fail("E0711", f"{self.task} waits for {block} of an engine that {self._services.flow.closed}")
        if outcome is Outcome.REFUSED:
            raise no_value(self.task, block)
