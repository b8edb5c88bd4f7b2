"""Calling a kernel of target `cpu`: arguments are checked as for every target, then the compiled module runs."""

from typing import Any

from texpr.codegen.cpu.build import build_cpu
from texpr.codegen.manifest import Manifest
from texpr.grammar.diagnostics import fail
from texpr.runtime.arrays import CPU
from texpr.runtime.launch import workspace_size
from texpr.runtime.recall import Binder

ALIGNMENT_BYTES = 256


class CpuLauncher:
    """A kernel's Numba module, compiled: call it with arrays, positional or by name, and sizes by name. Raises what
    `bind_arguments` raises, and E0604 for a gathered subscript out of its dimension."""

    def __init__(self, manifest: Manifest, source: str) -> None:
        self.manifest = manifest
        self.kernel = build_cpu(source)
        self._bind = Binder(manifest, (CPU,))
        self._sizes = tuple(name for name, kind, _ in self.kernel.arguments if kind == "size")

    def __call__(self, /, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        if stream is not None:
            raise fail("E0601", f"{self.manifest.name} runs on the CPU, which has no streams")
        bound = self._bind(args, kwargs)
        values: list[Any] = [
            bound.scalars[p.name] if p.scalar else bound.arrays[p.name].pointer for p in self.manifest.parameters
        ]
        total = workspace_size(self.manifest, bound.sizes, on_host=True)
        memory: Any = None  # keeps the workspace alive during the call
        base = 0
        if total > 0:
            import numpy

            memory = numpy.empty(total + ALIGNMENT_BYTES, numpy.uint8)
            base = -(-memory.ctypes.data // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.kernel(*values, *(bound.sizes[name] for name in self._sizes), base)
