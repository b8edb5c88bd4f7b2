"""Running emitted CUDA text on the CPU with checks: `HostModule` compiles and calls it, `HostBackend` is what
`runtime.launch` drives.

A launch runs every block's threads as fibers and stops at the first finding: an access out of bounds, a race, a read of
an undefined element, threads that do not meet at a barrier, a subscript from data out of range, a broken `#unique`.
Blocks of a kernel with pipes, clusters or flags run together, and more is found: threads that wait for ever, phases and
bytes of mbarriers that do not fit, memory of a block that has ended.
"""

import ctypes
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from texpr.codegen.manifest import ALIGNMENT_BYTES, LaunchStep
from texpr.codegen.tensor_map import MAX_EXTENT, TensorMap
from texpr.codegen.toolchain import compile_host, scratch_folder
from texpr.grammar.bits import scalar_bytes
from texpr.grammar.diagnostics import TExprError, error, fail
from texpr.grammar.records import dataclass
from texpr.grammar.types import DType

KINDS = (
    "ok",
    "bounds",
    "race",
    "undefined",
    "divergence",
    "gather",
    "unique",
    "launch",
    "alignment",
    "deadlock",
    "phase",
    "exited",
)


@dataclass(frozen=True, slots=True)
class HostArray:
    """An array argument: the address of its first byte and its length in bytes."""

    address: int
    size_bytes: int


def pack_map(found: TensorMap) -> bytes:
    """The bytes of `tx::TensorMap` of include/texpr/host/tma.hpp: dimensions from the contiguous one. Raises E0502 for
    what the CPU does not copy."""
    if max(found.shape) >= MAX_EXTENT:
        raise fail("E0502", f"boxes of arrays with {MAX_EXTENT} elements along a dimension are not copied on a CPU")

    def five(values: tuple[int, ...]) -> list[int]:
        return [*reversed(values), *[1] * (5 - len(values))]

    fields = [*five(found.strides_bytes), *five(found.shape), *five(found.box)]
    scalars = [len(found.shape), found.element_bytes, found.swizzle_bytes, 0]
    return struct.pack("<Q5q14I24x", found.address, *fields, *scalars)


HostArgument = HostArray | TensorMap | bytes | int  # an array, a tensor map, a value's bytes, or a size (i64)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The finding that ended a launch. `kind` is of KINDS; lines are those of `file`, 0 where there is none."""

    kind: str
    message: str
    file: str
    line: int
    thread: int
    block: int
    index: int
    other_file: str
    other_line: int
    other_thread: int
    other_block: int

    def to_error(self) -> TExprError:
        """E0604 in words: what happened, where, and what it was in conflict with."""
        notes = [f"at {_name(self.file)}:{self.line}, block {self.block}, thread {self.thread}"] if self.line else []
        if self.other_line:
            there = f"{_name(self.other_file)}:{self.other_line}"
            notes.append(f"and at {there}, block {self.other_block}, thread {self.other_thread}")
        return TExprError(
            [
                error(
                    "E0604",
                    self.message,
                    notes=tuple(notes),
                    witness={"kind": self.kind, "line": self.line, "other_line": self.other_line},
                )
            ]
        )


def _name(virtual: str) -> str:
    return virtual.removeprefix("/texpr/")


class _CArgument(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_longlong))


class _CReport(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("line", ctypes.c_int),
        ("other_line", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("other_thread", ctypes.c_int),
        ("block", ctypes.c_longlong),
        ("other_block", ctypes.c_longlong),
        ("index", ctypes.c_longlong),
        ("file", ctypes.c_char * 128),
        ("other_file", ctypes.c_char * 128),
        ("message", ctypes.c_char * 256),
    )


class HostModule:
    """The kernels of one emitted text, compiled for the CPU. Raises E0503 without a g++ that works, E0504 when it
    refuses the text."""

    def __init__(self, source: str, *, werror: bool = False) -> None:
        with scratch_folder() as folder:
            library = compile_host(source, folder, werror=werror)
            try:
                self._library = ctypes.CDLL(str(library))
            except OSError as why:  # such as a folder of files that may not be executed
                message = f"what g++ built cannot be loaded: {str(why)[:200]}"
                raise fail("E0503", message, help="set TMPDIR to a folder whose files may be executed") from None
        self._lock = threading.Lock()  # the library simulates one machine

    def launch(
        self,
        symbol: str,
        arguments: Sequence[HostArgument],
        grid: tuple[int, int, int],
        block: int,
        shared_bytes: int = 0,
        seed: int = 0,
    ) -> HostReport | None:
        """Run one kernel; None when nothing was found. The seed chooses the order of blocks and threads."""
        keep: list[Any] = []
        packed = (_CArgument * max(len(arguments), 1))()
        for place, argument in zip(packed, arguments, strict=False):
            place.data, place.bytes = self._packed(argument, keep)
        report = _CReport()
        entry = getattr(self._library, f"tx_host_launch_{symbol}")
        shape = (ctypes.c_longlong * 3)(*grid)
        with self._lock:
            code = entry(
                packed,
                ctypes.c_int(len(arguments)),
                shape,
                ctypes.c_int(block),
                ctypes.c_int(shared_bytes),
                ctypes.c_uint(seed),
                ctypes.byref(report),
            )
        return None if code == 0 else _read(report)

    def _packed(self, argument: HostArgument, keep: list[Any]) -> tuple[int, int]:
        match argument:
            case HostArray(address=address, size_bytes=size) if size > 0:
                return address, size
            case HostArray():  # an address of its own, so that no other array is taken for it
                value: Any = ctypes.create_string_buffer(16)
                size = 0
            case TensorMap():
                return self._packed(pack_map(argument), keep)
            case bytes():
                value, size = ctypes.create_string_buffer(argument, len(argument)), len(argument)
            case _:
                value, size = ctypes.c_longlong(argument), 8
        keep.append(value)
        return ctypes.addressof(value), size


def _read(report: _CReport) -> HostReport:
    return HostReport(
        kind=KINDS[report.kind],
        message=report.message.decode(errors="replace"),
        file=report.file.decode(errors="replace"),
        line=report.line,
        thread=report.thread,
        block=report.block,
        index=report.index,
        other_file=report.other_file.decode(errors="replace"),
        other_line=report.other_line,
        other_thread=report.other_thread,
        other_block=report.other_block,
    )


def _room(size_bytes: int) -> Any:
    """Memory of zeros for so many bytes from `_begin` on."""
    return ctypes.create_string_buffer(size_bytes + ALIGNMENT_BYTES)


def _begin(memory: Any) -> int:
    return -(-ctypes.addressof(memory) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class HostKernel:
    """One launch, but for its arguments; it raises what is wrong."""

    def __init__(
        self, backend: "HostBackend", step: LaunchStep, grid: tuple[int, int, int], lengths: Mapping[int, int]
    ) -> None:
        self._backend, self._step, self._grid, self._lengths = backend, step, grid, lengths

    def once(self, stream: None, arguments: list[Any]) -> int:
        for position, length in self._lengths.items():
            arguments[position] = HostArray(arguments[position], length)
        step, backend = self._step, self._backend
        report = backend.module.launch(
            step.symbol, arguments, self._grid, step.block[0], step.shared_bytes, backend.seed
        )
        if report is not None:
            raise report.to_error()
        return 0

    def kept(self, stream: None, arguments: list[Any]) -> Callable[[], int]:
        return lambda: self.once(stream, list(arguments))

    def refuse(self, answer: int) -> None:
        """It is always 0."""


class HostBackend:
    """What `texpr.runtime.launch.Launcher` drives for targets `cuda-host`; every launch is over when it returns."""

    devices: Sequence[int] = (1,)  # DLPack's kDLCPU

    def __init__(self, text: str | HostModule, seed: int = 0) -> None:
        self.module = HostModule(text) if isinstance(text, str) else text
        self.seed = seed
        self._kept = threading.local()

    def kernel(self, step: LaunchStep, grid: tuple[int, int, int], lengths: Mapping[int, int]) -> "HostKernel":
        return HostKernel(self, step, grid, lengths)

    def tensor_map(self, described: TensorMap) -> HostArgument:
        return described

    def scalar(self, value: int | float | bool, dtype: DType) -> HostArgument:
        return scalar_bytes(value, dtype)

    def is_current(self, device: int) -> bool:
        return True

    def queue(self, device: int, stream: int | None) -> None:
        """Nothing waits: every launch is over when it returns."""
        if stream is not None:
            raise fail("E0601", "a cuda-host kernel runs on the CPU, which has no streams")

    def leave(self, queue: None, owners: Sequence[Any]) -> None:
        """Nothing was changed, and nothing is on its way."""

    @contextmanager
    def scratch(self, size_bytes: int, queue: None) -> Iterator[int]:
        """Workspace memory, 256-byte aligned and filled with a pattern that is NaN in every float type."""
        memory = _room(size_bytes)
        ctypes.memset(_begin(memory), 0xFF, size_bytes)
        yield _begin(memory)

    def zero(self, address: int, size_bytes: int, queue: None) -> None:
        ctypes.memset(address, 0, size_bytes)

    @contextmanager
    def zeros(self, size_bytes: int, queue: None, *, once: bool) -> Iterator[int]:
        """What the last call on this thread left as zeros; a call that fails leaves nothing."""
        kept, self._kept.memory = getattr(self._kept, "memory", None), None
        if kept is None or len(kept) < size_bytes + ALIGNMENT_BYTES:
            kept = _room(size_bytes)
        yield _begin(kept)
        self._kept.memory = kept
