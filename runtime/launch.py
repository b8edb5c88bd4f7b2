"""Running the host program of a manifest: launches, loops and conditions, over any backend.

A backend knows a kind of memory and how to start one kernel; this file knows grids, arguments and workspaces.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from texpr.codegen.manifest import (
    MAX_WORKSPACE_BYTES,
    IfStep,
    LaunchStep,
    LoopStep,
    Manifest,
    Step,
    damaged,
    evaluate,
    holds,
)
from texpr.grammar.diagnostics import fail
from texpr.grammar.types import ELEMENT_TYPES, I64, DType
from texpr.runtime.arguments import Bound
from texpr.runtime.arrays import CPU
from texpr.runtime.recall import Binder

MAX_LAUNCHES = 1 << 24  # and rounds of host loops, of one call: a host loop beyond it is a mistake in its sizes


@dataclass(frozen=True, slots=True)
class Pointer:
    """A kernel argument that is memory: its address and length, for checked execution."""

    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel argument that is passed by value."""

    value: int | float | bool
    dtype: DType


Argument = Pointer | Scalar


class Backend(Protocol):
    """What runs kernels: a GPU driver, or the host build of the same text."""

    @property
    def devices(self) -> Sequence[int]:
        """DLPack device types of the arrays that it takes."""

    def scratch(self, size_bytes: int, bound: Bound, stream: Any) -> AbstractContextManager[int]:
        """Memory for the workspaces of one call, 256-byte aligned; yields its address (0 for no bytes)."""

    def launch(
        self, step: LaunchStep, grid: tuple[int, int, int], arguments: Sequence[Argument], bound: Bound, stream: Any
    ) -> None:
        """Start one kernel on the stream."""


class Launcher:
    """A loaded kernel: call it with arrays, positional or by name, sizes by name, and `stream=`."""

    def __init__(self, manifest: Manifest, backend: Backend) -> None:
        self.manifest, self.backend = manifest, backend
        self._bind = Binder(manifest, backend.devices)

    def __call__(self, /, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        bound = self._bind(args, kwargs)
        total = workspace_size(self.manifest, bound.sizes, on_host=CPU in self.backend.devices)
        with self.backend.scratch(total, bound, stream) as base:
            _Run(self.manifest, self.backend, bound, base, stream).steps(self.manifest.host, dict(bound.sizes))


def workspace_size(manifest: Manifest, sizes: Mapping[str, int], *, on_host: bool) -> int:
    """The bytes of a call's workspaces. Raises E0403 for more than there is: the machine's memory where it is the
    host's, an address space otherwise."""
    total = evaluate(manifest.workspace_bytes, sizes)
    limit = host_memory_bytes() if on_host else MAX_WORKSPACE_BYTES
    if not 0 <= total <= limit:
        needs = f"{total} bytes" if 0 <= total < 1 << 80 else "an impossible number of bytes"
        raise fail(
            "E0403",
            f"{manifest.name}: its workspaces need {needs}, and there are at most {limit}",
            help="bind smaller sizes, or declare smaller buffers",
        )
    return total


def host_memory_bytes() -> int:
    """The memory of this machine, used or not."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _Run:
    """One call: the state of the host program's walk."""

    def __init__(self, manifest: Manifest, backend: Backend, bound: Bound, base: int, stream: Any) -> None:
        self.manifest, self.backend, self.bound, self.stream = manifest, backend, bound, stream
        self.types = {p.name: ELEMENT_TYPES[p.dtype] for p in manifest.parameters}
        self.workspace = {
            t.name: Pointer(base + evaluate(t.offset_bytes, bound.sizes), evaluate(t.size_bytes, bound.sizes))
            for t in manifest.workspace
        }
        self.launches = self.rounds = 0

    def steps(self, steps: Sequence[Step], values: dict[str, int]) -> None:
        for step in steps:
            match step:
                case LaunchStep():
                    self.launch(step, values)
                case LoopStep():
                    extent = evaluate(step.extent, values)
                    self.rounds += max(extent, 0)
                    if self.rounds > MAX_LAUNCHES:
                        raise fail("E0601", f"{self.manifest.name}: more than {MAX_LAUNCHES} rounds of host loops")
                    for index in range(extent):
                        self.steps(step.body, {**values, step.index: index})
                case IfStep():
                    self.steps(step.then if holds(step.condition, values) else step.orelse, values)

    def launch(self, step: LaunchStep, values: Mapping[str, int]) -> None:
        grid = tuple(evaluate(extent, values) for extent in step.grid)
        if any(extent <= 0 for extent in grid):
            return
        self.launches += 1
        if self.launches > MAX_LAUNCHES:
            raise fail("E0601", f"{self.manifest.name}: more than {MAX_LAUNCHES} launches in one call")
        arguments = [self.argument(kind, name, values) for kind, name in step.arguments]
        self.backend.launch(step, (grid[0], grid[1], grid[2]), arguments, self.bound, self.stream)

    def argument(self, kind: str, name: str, values: Mapping[str, int]) -> Argument:
        try:
            if kind == "param":
                view = self.bound.arrays[name]
                low, high = view.byte_range
                return Pointer(view.pointer, 0 if view.is_empty else high - low)
            if kind == "scalar":
                return Scalar(self.bound.scalars[name], self.types[name])
            if kind == "workspace":
                return self.workspace[name]
            return Scalar(values[name], I64)
        except KeyError:
            raise damaged(f"a launch uses the unknown {kind} {name}") from None
