"""Blocks as arrays of NumPy, torch and cupy, on one memory; and functions on such arrays as functions of tasks.

    gemm = on_arrays(lambda a, b, c: c.addmm_(a, b), library="torch")
    engine.submit(gemm, read(A[i, k]), read(B[k, j]), accumulate(C[i, j]))

Libraries are imported when they are first asked for, and see memory through DLPack: nothing is copied.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from texpr.grammar.diagnostics import fail

if TYPE_CHECKING:
    from texpr.runtime.tasks.context import TaskContext
    from texpr.runtime.tasks.tensors import Block

LIBRARIES = ("numpy", "torch", "cupy")
CARRIERS = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e5m2": "uint8",
}  # of types that NumPy does not export


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
        given = self.fn(*[buffer.view(self.library) for buffer in buffers], *args)
        modified = [buffer for buffer in buffers if buffer.modifies]
        if given is not None and not any(given is buffer.view(self.library) for buffer in modified):
            raise fail(
                "E0703",
                f"{context.task} returns a {type(given).__name__[:40]}, and nothing takes it",
                help="a function on arrays works in place: `c += a @ b`, `numpy.dot(a, b, out=c)`",
            )
        for buffer in buffers:
            buffer.commit()


def on_arrays(fn: Callable[..., Any], library: str = "numpy") -> ArrayFunction:
    """A function on arrays of a library as a function of tasks, for which each declared access is one array. Raises
    E0703."""
    if not callable(fn):
        raise fail("E0703", f"a function on arrays is a function, not a {type(fn).__name__[:40]}")
    if library not in LIBRARIES:
        raise fail("E0703", f"arrays are of {', '.join(LIBRARIES)}, not of {str(library)[:40]!r}")
    return ArrayFunction(fn, library)


def foreign_array(task: object, block: "Block", memory: Any, library: str) -> Any:
    """An array of `torch` or `cupy` on a NumPy array's memory. Raises E0503 where the library is not installed, E0708
    where it cannot have such memory."""
    if library not in LIBRARIES:
        raise fail("E0703", f"{task}: {block} as an array of {str(library)[:40]!r}: there are {', '.join(LIBRARIES)}")
    if library == "cupy":
        raise fail(
            "E0708",
            f"{task}: {block} is in memory of the host, where no array of cupy can be",
            help="ask for `numpy` or `torch`",
        )
    try:
        found = importlib.import_module(library)
    except ImportError as why:
        raise fail("E0503", f"{task}: {block} is asked for as an array of {library}: {why}") from None
    if not memory.flags.writeable:  # a zero block, which is one element; torch cannot be told not to write it
        memory = memory.copy()
    name = memory.dtype.name
    if name in CARRIERS:
        return found.from_dlpack(memory.view(CARRIERS[name])).view(getattr(found, name))
    return found.from_dlpack(memory)
