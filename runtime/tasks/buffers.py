"""Buffers: the memory of a block in a task's hands, until it says what becomes of it.

    release_put()    what was written is the block's value        of write, read_write and temp buffers
    release_add()    what was summed is added to the block        of accumulate and temp buffers
    release()        nothing happens to the block                 of read, temp and cancellable buffers
    cancel()         the task gives up                            of every buffer

A buffer of a cancellable access, or of `temp`, is the task's own memory: nothing reaches the block before a commit,
which may also come from a copy (`buffer.copy()`, or `release_put(array)`). Any other is the block's own buffer, which
may be the home memory itself: giving it up after it was handed out leaves the block without a value (E0710). Nothing
is committed by a destructor; leaving a `with` without a decision is an error (E0707).
"""

from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy

from texpr.grammar.diagnostics import TExprError, fail
from texpr.runtime.tasks.devices import DeviceArray
from texpr.runtime.tasks.frameworks import foreign_array
from texpr.runtime.tasks.permissions import MODE_WORDS, Mode, Right, has
from texpr.runtime.tasks.states import Op
from texpr.runtime.tasks.tensors import Block

if TYPE_CHECKING:
    from texpr.runtime.tasks.context import TaskContext

ADDS = (Mode.ACCUMULATE, Mode.TEMP)
PUTS = (Mode.WRITE, Mode.READ_WRITE, Mode.TEMP)
MAY_PUT = (Right.WRITE, Right.READ_WRITE)
MAY_ADD = (Right.WRITE, Right.READ_WRITE, Right.ACCUMULATE)


class Buffer:
    """A block's values for one task, as `array`; NumPy and DLPack take the buffer itself, too."""

    __slots__ = ("_array", "_context", "_decided", "_original", "_values", "block", "mode", "own")

    def __init__(
        self, context: "TaskContext", block: Block, mode: Mode, array: Any, own: bool, original: "Buffer | None" = None
    ) -> None:
        self._context, self.block, self.mode, self._array = context, block, mode, array
        self._values: Any = None  # the same memory as its users see it
        self.own = own  # the task's own memory, not the block's
        self._original = original  # whose copy this is
        self._decided: str | None = None

    @property
    def array(self) -> Any:
        """The memory, a NumPy array, which cannot be written where the buffer is for reading; on a GPU, what torch,
        cupy and kernels take. Raises E0706 after the release."""
        self._check_open()
        if self._values is None:
            self._values = self._array
            if self.mode is Mode.READ and not self.own:
                self._values = self._context.memory.readable(self._array)
        return self._values

    def view(self, library: str) -> Any:
        """The same memory as an array of `numpy`, `torch` or `cupy`. Libraries without read-only arrays give one that
        must not be written where the buffer is for reading. Raises E0503, E0708."""
        self._check_open()
        if library == "numpy" and not isinstance(self._array, DeviceArray):
            return self.array
        return foreign_array(self._context.task, self.block, self._array, library)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        values = self.view("numpy")
        return numpy.array(values, dtype=dtype) if copy else numpy.asarray(values, dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.view("numpy").__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.view("numpy").__dlpack_device__()
        return device

    def copy(self) -> "Buffer":
        """A deep copy. That of a cancellable or temp buffer can be committed in its place, any other cannot."""
        self._check_open()
        copied = self._context.own(self.block)
        self._context.memory.copy(copied, self._array)
        if self.mode is Mode.READ:
            return Buffer(self._context, self.block, self.mode, copied, True)
        return Buffer(self._context, self.block, self.mode, copied, self.own, self._first())

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> "Buffer":
        return self.copy()

    def release_put(self, array: Any = None) -> None:
        """The buffer, or for the task's own memory another array of its shape, becomes the block's value."""
        self._commit("release_put", Op.WRITE, PUTS, MAY_PUT, array)

    def release_add(self, array: Any = None) -> None:
        """What the buffer holds is added to the block."""
        self._commit("release_add", Op.ACCUMULATE, ADDS, MAY_ADD, array)

    def release(self) -> None:
        """Give the buffer back without an effect; one that may be the block's memory cannot be (E0708)."""
        self._check_open()
        if not self.own and self.mode is not Mode.READ:
            raise self._refused("`release` would leave it half changed", "say `release_put`, `release_add` or `cancel`")
        self._decide("release")
        if not self.own:
            self._context.give_back(self.block, None)

    def commit(self) -> None:
        """What the mode of the access asks for: put, add, or release."""
        if self.mode in (Mode.READ, Mode.TEMP):
            self.release()
        elif self.mode is Mode.ACCUMULATE:
            self.release_add()
        else:
            self.release_put()

    def conclude(self) -> None:
        """As `commit`; a block's own buffer goes back with the end of the task, which comes at once."""
        if self.own:
            self.commit()
        else:
            self._decide("commit")
            self._context.leave(self.block)

    def cancel(self) -> None:
        """Give up. A block whose own buffer was to be modified has no value afterwards."""
        self._check_open()
        self._decide("cancel")
        if not self.own:
            modified = self.mode is not Mode.READ
            self._context.give_back(self.block, self._given_up() if modified else None)

    @property
    def decided(self) -> bool:
        return self._first()._decided is not None

    @property
    def modifies(self) -> bool:
        return self.mode not in (Mode.READ, Mode.TEMP)

    def __enter__(self) -> "Buffer":
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.decided:
            return
        if not self.modifies:
            self.release()
            return
        self.cancel()
        if kind is None:
            raise undecided(self)

    def _first(self) -> "Buffer":
        return self._original if self._original is not None else self

    def _decide(self, what: str) -> None:
        self._first()._decided = what

    def _check_open(self) -> None:
        said = self._first()._decided
        if said is None and self._context.is_over:
            said = "end of the task"
        if said is not None:
            raise fail("E0706", f"{self._context.task}: the buffer of {self.block} is used after its `{said}`")

    def _refused(self, why: str, help: str) -> TExprError:
        kind = f"{MODE_WORDS[self.mode]} buffer of {self.block}"
        return fail("E0708", f"{self._context.task}: the {kind}: {why}", help=help)

    def _given_up(self) -> TExprError:
        return fail("E0710", f"{self.block} has no value: {self._context.task} gave it up after it had begun")

    def _commit(self, name: str, op: Op, modes: tuple[Mode, ...], rights: tuple[Right, ...], array: Any) -> None:
        self._check_open()
        if self.mode not in modes:
            way = {Mode.READ: "release", Mode.ACCUMULATE: "release_add"}.get(self.mode, "release_put")
            raise self._refused(f"`{name}` is not for it", f"say `{way}`")
        if not self.own:
            if self._original is not None or (array is not None and array is not self._array):
                raise self._refused(
                    "a copy of it cannot be committed, as it may be the block's own memory",
                    "write into `buffer.array`, or ask for a cancellable buffer",
                )
            self._decide(name)
            self._context.give_back(self.block, None)
            return
        right = self._context.task.grants.right(self.block)
        if right not in rights:
            raise fail("E0704", f"{self._context.task}: `{name}` of {self.block}, but the task {has(right)}")
        values = self._array if array is None else array
        if not isinstance(values, DeviceArray):
            values = numpy.asarray(values)
        if (values.shape, values.dtype) != (self._array.shape, self._array.dtype):
            raise self._refused(
                f"an array {values.dtype}{list(values.shape)} is no copy of it",
                f"commit {self._array.dtype}{list(self._array.shape)}",
            )
        if self.block.is_zero:
            raise fail("E0709", f"{self._context.task}: `{name}` of {self.block}, which is a zero block")
        self._context.commit(self.block, op, self._context.memory.on_host(values))
        self._decide(name)


def undecided(buffer: Buffer) -> TExprError:
    way = "release_add" if buffer.mode is Mode.ACCUMULATE else "release_put"
    return fail(
        "E0707",
        f"{buffer._context.task} leaves its {MODE_WORDS[buffer.mode]} buffer of {buffer.block} without a decision",
        help=f"say `{way}`" + (", `release`" if buffer.own else "") + " or `cancel`",
    )
