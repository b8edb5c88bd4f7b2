"""Calling a kernel of target `cpu`: arguments are checked as for every target, then the compiled module runs."""

from typing import Any

from texpr.codegen.cpu.build import build_cpu
from texpr.codegen.manifest import ALIGNMENT_BYTES, Manifest
from texpr.grammar.diagnostics import fail
from texpr.runtime.arrays import CPU
from texpr.runtime.call_memory import call_memory
from texpr.runtime.recall import Binder


class CpuLauncher:
    """A kernel's Numba module, compiled: call it with arrays, positional or by name, and sizes by name. Raises what
    `bind_arguments` raises, and E0604 for a gathered subscript out of its dimension."""

    def __init__(self, manifest: Manifest, source: str) -> None:
        self.manifest = manifest
        self.kernel = build_cpu(source, manifest)
        self.entry = self.kernel.entry
        self._bind = Binder(manifest, (CPU,))
        self._sizes = tuple(name for name, kind, _ in self.kernel.arguments if kind == "size")
        self._is_scalar = [p.scalar for p in manifest.parameters]

    def __call__(self, /, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        if stream is not None:
            raise fail("E0601", f"{self.manifest.name} runs on the CPU, which has no streams")
        if not kwargs and self.kernel.enter(args):
            return
        call = self._bind(args, kwargs)
        seen, addresses, scalars = call.seen, call.addresses, call.scalars
        if () not in seen.plans:
            free = tuple(seen.sizes[name] for name in self._sizes)
            seen.plans[()] = call_memory(self.manifest, seen.sizes, on_host=True).scratch_bytes, free
        values: list[Any] = addresses
        if scalars:
            arrays, numbers = iter(addresses), iter(scalars)
            values = [next(numbers) if scalar else next(arrays) for scalar in self._is_scalar]
        self._run(values, *seen.plans[()])

    def _run(self, values: list[Any], workspace_bytes: int, free: tuple[int, ...]) -> None:
        memory: Any = None  # keeps the workspace alive during the call
        base = 0
        if workspace_bytes > 0:
            import numpy

            memory = numpy.empty(workspace_bytes + ALIGNMENT_BYTES, numpy.uint8)
            base = -(-memory.ctypes.data // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if not any(self._is_scalar):
            self.kernel.run_converted([*values, *free, base])
        else:
            self.kernel(*values, *free, base)
