"""Calling a kernel of target `cpu`: arguments are checked as for every target, then the compiled module runs.

A call whose arrays look like those of an earlier one (types, shapes, strides) is only checked for what may differ:
alignment and overlap. Everything unusual goes the long way, which raises the errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from texpr.codegen.cpu.build import build_cpu
from texpr.codegen.manifest import Manifest
from texpr.grammar.diagnostics import fail
from texpr.runtime.arguments import WRITING, Bound, bind_arguments
from texpr.runtime.arrays import CPU
from texpr.runtime.launch import workspace_size

ALIGNMENT_BYTES = 256
MAX_SEEN = 64  # kinds of calls that one kernel remembers


@dataclass(frozen=True, slots=True)
class _Seen:
    """What follows from the looks of a call's arrays: sizes, workspace bytes, and each array's (low, high) bytes
    around its pointer, None where it is empty."""

    sizes: Mapping[str, int]
    workspace_bytes: int
    reaches: tuple[tuple[int, int] | None, ...]


class CpuLauncher:
    """A kernel's Numba module, compiled: call it with arrays, positional or by name, and sizes by name. Raises what
    `bind_arguments` raises, and E0604 for a gathered subscript out of its dimension."""

    def __init__(self, manifest: Manifest, source: str) -> None:
        self.manifest = manifest
        self.kernel = build_cpu(source)
        self._seen: dict[Any, _Seen] = {}
        self._writes = tuple(p.mode in WRITING for p in manifest.parameters)
        self._plain = all(not p.scalar or p.dtype in ("f64", "f32") for p in manifest.parameters)

    def __call__(self, /, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        if stream is not None:
            raise fail("E0601", f"{self.manifest.name} runs on the CPU, which has no streams")
        key = self._key(args) if self._plain and not kwargs else None
        seen = self._seen.get(key) if key is not None else None
        if seen is not None:
            addresses = self._addresses(args, seen)
            if addresses is not None:
                self._run(addresses, seen)
                return
        bound = bind_arguments(self.manifest, args, kwargs, (CPU,))
        total = workspace_size(self.manifest, bound.sizes, on_host=True)
        seen = _Seen(bound.sizes, total, self._reaches(bound))
        if key is not None and len(self._seen) < MAX_SEEN:
            self._seen[key] = seen
        names = [p.name for p in self.manifest.parameters]
        self._run([bound.arrays[n].pointer if n in bound.arrays else bound.scalars[n] for n in names], seen)

    def _key(self, args: tuple[Any, ...]) -> Any:
        """The looks of NumPy arrays and float scalars; None for anything else."""
        import numpy

        parts: list[Any] = []
        if len(args) != len(self.manifest.parameters):
            return None
        for parameter, value in zip(self.manifest.parameters, args, strict=True):
            if parameter.scalar:
                if type(value) is not float:
                    return None
            elif type(value) is numpy.ndarray:
                parts.append((value.shape, value.strides, value.dtype, value.flags.writeable))
            else:
                return None
        return tuple(parts)

    def _reaches(self, bound: Bound) -> tuple[tuple[int, int] | None, ...]:
        found: list[tuple[int, int] | None] = []
        for parameter in self.manifest.parameters:
            view = bound.arrays.get(parameter.name)
            if view is None or view.is_empty:
                found.append(None)
            else:
                low, high = view.byte_range
                found.append((low - view.pointer, high - view.pointer))
        return tuple(found)

    def _addresses(self, args: tuple[Any, ...], seen: _Seen) -> list[Any] | None:
        """The arguments as addresses and numbers, or None where alignment or overlap need a closer look."""
        values: list[Any] = []
        ranges: list[tuple[int, int, bool]] = []
        parameters = zip(self.manifest.parameters, args, seen.reaches, self._writes, strict=True)
        for parameter, value, reach, writes in parameters:
            if parameter.scalar:
                values.append(value)
                continue
            address: int = value.__array_interface__["data"][0]
            values.append(address)
            if reach is not None:
                if address % max(parameter.align, 1):
                    return None
                ranges.append((address + reach[0], address + reach[1], writes))
        ranges.sort()
        end = 0
        for low, high, _ in ranges:
            if low < end:
                return None
            end = max(end, high)
        return values

    def _run(self, values: list[Any], seen: _Seen) -> None:
        memory: Any = None
        base = 0
        if seen.workspace_bytes > 0:
            import numpy

            memory = numpy.empty(seen.workspace_bytes + ALIGNMENT_BYTES, numpy.uint8)
            base = -(-memory.ctypes.data // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        free = [seen.sizes[name] for name, kind, _ in self.kernel.arguments if kind == "size"]
        if self._plain:
            self.kernel.run_converted([*values, *free, base])
        else:
            self.kernel(*values, *free, base)
