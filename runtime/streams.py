"""Which stream a call runs on: the caller's `stream=`, else the one that is current in the library of its arrays.

torch and cupy have a current stream for each thread and device. It is asked for anew at each call, so that `with
torch.cuda.stream(s):`, a graph that is being captured, and threads mean for a kernel what they mean for the library's
own operations. Libraries that order their work themselves (jax) hand arrays over by DLPack, which is told our stream.
"""

from collections.abc import Callable, Iterable
from dataclasses import field
from functools import partial
from importlib import import_module
from typing import Any

from texpr.grammar.diagnostics import fail
from texpr.grammar.records import dataclass

LEGACY = 1  # the handle of the default stream, in the driver as in DLPack; 0 is another name for it
Lookup = Callable[[int], int]  # from a device to the handle of this thread's current stream
WAYS = "pass `stream=`: a stream of torch or cupy, an object with `__cuda_stream__`, or a handle"


@dataclass(frozen=True, slots=True)
class Library:
    """A library of arrays that has current streams. `device` is the number of the GPU that it takes to be current in
    this thread, which may not be what the driver says."""

    name: str
    current: Lookup = field(compare=False)
    device: Callable[[], int] | None = field(compare=False, default=None)


def _torch() -> Library:
    torch = import_module("torch")
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # 0.1 us; the public way makes a stream object
    current = raw or (lambda device: torch.cuda.current_stream(device).cuda_stream)
    return Library("torch", current, getattr(torch._C, "_cuda_getDevice", None))


def _cupy() -> Library:
    cuda = import_module("cupy").cuda
    current = cuda.get_current_stream
    return Library(
        "cupy", lambda device: current(device).ptr, getattr(getattr(cuda, "runtime", None), "getDevice", None)
    )


_LIBRARIES: dict[tuple[str, str], Callable[[], Library]] = {("torch", "Tensor"): _torch, ("cupy", "ndarray"): _cupy}


def library_of(array: object) -> Library | None:
    """The library of a GPU array, subclasses included; None for a library that has no current stream, or that is not
    known, and for a torch tensor in host memory."""
    for kind in type(array).__mro__:
        make = _LIBRARIES.get((kind.__module__.partition(".")[0], kind.__name__))
        if make is not None and getattr(array, "is_cuda", True):
            return make()
    return None


def libraries_of(arrays: Iterable[object]) -> tuple[Library, ...]:
    """The libraries of GPU arrays, each once."""
    found = (library_of(array) for array in arrays)
    return tuple(dict.fromkeys(library for library in found if library is not None))


def current_stream(libraries: tuple[Library, ...], foreign: str = "") -> Lookup:
    """Where calls of one kind run: what gives, for a device, the handle of the stream on which all arrays are ordered.

    `foreign` is a parameter whose array only an explicit `stream=` can order: nobody would make its library wait for
    what the kernel writes. Then, or where current streams are different, the lookup raises E0601.
    """
    if foreign:
        return partial(_refuse, f"TExpr cannot ask the library of {foreign} for its current stream")
    if len(libraries) == 1:
        return libraries[0].current  # nothing of ours stands between a call and the library
    return partial(_agreed, libraries)


def _refuse(why: str, device: int) -> int:
    raise fail("E0601", why, help=WAYS)


def _agreed(libraries: tuple[Library, ...], device: int) -> int:
    """The current stream of all libraries; the default stream where there are none, and nothing is written."""
    handle = 0
    for number, library in enumerate(libraries):
        other = library.current(device) or LEGACY
        if number and other != handle:
            names = " and ".join(each.name for each in libraries)
            _refuse(f"the arrays are of {names}, whose current streams are different", device)
        handle = other
    return handle


def device_of(libraries: tuple[Library, ...]) -> Callable[[], int] | None:
    """How the number of the current GPU is asked of arrays' library, which answers in a fifth of the driver's time."""
    return libraries[0].device if len(libraries) == 1 else None


def handle_of(stream: Any) -> int:
    """The handle of a stream that the caller gives: an int, or an object of cuda-core, torch or cupy. Raises E0601."""
    try:
        if type(stream) is int:
            handle = stream
        elif hasattr(stream, "__cuda_stream__"):
            handle = stream.__cuda_stream__()[1]
        else:
            handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))  # torch, cupy
    except Exception as why:  # a foreign object's own errors, of any class
        raise fail("E0601", f"the stream cannot be used: {str(why)[:200]}") from None
    if isinstance(handle, int) and not isinstance(handle, bool) and 0 <= handle < 1 << 64:
        return handle or LEGACY
    raise fail("E0601", f"a {type(stream).__name__[:40]} is not a CUDA stream", help=WAYS)
