"""Blocks as arrays of NumPy, torch and cupy, on one memory; and functions on such arrays as functions of tasks.

    gemm = on_arrays(lambda a, b, c: c.addmm_(a, b), library="torch")
    engine.submit(gemm, read(A[i, k]), read(B[k, j]), accumulate(C[i, j]))

Libraries are imported when they are first asked for, and see memory through DLPack: nothing is copied.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from texpr.grammar.diagnostics import fail
from texpr.runtime.tasks.devices import CARRIERS, DeviceArray

if TYPE_CHECKING:
    from texpr.runtime.tasks.context import TaskContext
    from texpr.runtime.tasks.tensors import Block

LIBRARIES = ("numpy", "torch", "cupy")


class ArrayFunction:
    """A function on arrays as a function of tasks: it is called with the arrays of the task's accesses, in the order
    in which they are declared, and then with the task's arguments. It works in place; when it returns, what it
    modified is committed."""

    __slots__ = ("__name__", "fn", "library")

    def __init__(self, fn: Callable[..., Any], library: str) -> None:
        self.fn, self.library = fn, library
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)

    def __call__(self, context: "TaskContext", *args: Any) -> None:
        buffers = [context.get_buf(access) for access in context.task.grants.accesses]
        with current_stream(self.library, context):
            arrays = [buffer.view(self.library) for buffer in buffers]
            given = self.fn(*arrays, *args)
        modified = (array for buffer, array in zip(buffers, arrays, strict=True) if buffer.modifies)
        if given is not None and not any(given is array for array in modified):
            raise fail(
                "E0703",
                f"{context.task} returns a {type(given).__name__[:40]}, and nothing takes it",
                help="a function on arrays works in place: `c += a @ b`, `numpy.dot(a, b, out=c)`",
            )
        context.conclude(self, buffers)


def on_arrays(fn: Callable[..., Any], library: str = "numpy") -> ArrayFunction:
    """A function on arrays of a library as a function of tasks, for which each declared access is one array. Raises
    E0703."""
    if not callable(fn):
        raise fail("E0703", f"a function on arrays is a function, not a {type(fn).__name__[:40]}")
    if library not in LIBRARIES:
        raise fail("E0703", f"arrays are of {', '.join(LIBRARIES)}, not of {str(library)[:40]!r}")
    return ArrayFunction(fn, library)


def foreign_array(task: object, block: "Block", memory: Any, library: str) -> Any:
    """An array of a library on a block's memory. Raises E0503 where the library is not installed, E0708 where it cannot
    have such memory."""
    if library not in LIBRARIES:
        raise fail("E0703", f"{task}: {block} as an array of {str(library)[:40]!r}: there are {', '.join(LIBRARIES)}")
    on_gpu = isinstance(memory, DeviceArray)
    if library == ("numpy" if on_gpu else "cupy"):
        where, way = ("a GPU", "`torch` or `cupy`") if on_gpu else ("the host", "`numpy` or `torch`")
        said = f"{task}: {block} is in memory of {where}, where no array of {library} can be"
        raise fail("E0708", said, help=f"ask for {way}")
    try:
        found = importlib.import_module(library)
    except ImportError as why:
        raise fail("E0503", f"{task}: {block} is asked for as an array of {library}: {why}") from None
    if on_gpu:
        return _on_gpu(task, block, memory, found)
    if not memory.flags.writeable:  # a zero block, which is one element; torch cannot be told not to write it
        memory = memory.copy()
    name = memory.dtype.name
    if name in CARRIERS:
        return found.from_dlpack(memory.view(CARRIERS[name])).view(getattr(found, name))
    return found.from_dlpack(memory)


class _Lent:
    """Memory of a GPU as torch is told of it; what torch makes of it keeps this alone."""

    def __init__(self, memory: DeviceArray) -> None:
        self.__cuda_array_interface__ = memory.__cuda_array_interface__


def _on_gpu(task: object, block: "Block", memory: DeviceArray, library: Any) -> Any:
    name = memory.dtype.name
    if library.__name__ == "torch":
        made = memory.views.get("torch")
        if made is None:
            made = library.as_tensor(_Lent(memory), device=f"cuda:{memory.device.number}")
            made = memory.views["torch"] = made.view(getattr(library, name)) if name in CARRIERS else made
        return made.detach()  # another tensor each time, as its shape can be changed, which takes a tenth of the time
    if name in CARRIERS:
        raise fail("E0708", f"{task}: cupy has no arrays of {name}, the type of {block}", help="ask for `torch`")
    return library.asarray(memory)


@contextmanager
def current_stream(library: str, context: "TaskContext") -> Iterator[None]:
    """While a task runs on a GPU, its worker's stream is the library's current one."""
    stream, number = context.stream, context.device
    if stream is None or library == "numpy":
        yield
        return
    found: Any = importlib.import_module(library)
    if library == "torch":
        with found.cuda.stream(_torch_stream(stream, number)):
            yield
    else:
        with found.cuda.Device(number), found.cuda.ExternalStream(stream, number):
            yield


@lru_cache(maxsize=64)
def _torch_stream(handle: int, device: int | None) -> Any:
    torch: Any = importlib.import_module("torch")
    return torch.cuda.ExternalStream(handle, device=device)
