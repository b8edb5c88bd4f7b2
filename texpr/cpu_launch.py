"""Calling a kernel of target `cpu`: arguments are checked as for every target, then the compiled module runs."""

from typing import Any

from texpr.codegen.cpu.build import build_cpu
from texpr.codegen.manifest import Manifest, evaluate
from texpr.grammar.diagnostics import fail
from texpr.runtime.arguments import bind_arguments
from texpr.runtime.arrays import CPU

ALIGNMENT_BYTES = 256


class CpuLauncher:
    """A kernel's Numba module, compiled: call it with arrays, positional or by name, and sizes by name. Raises what
    `bind_arguments` raises, and E0604 for a gathered subscript out of its dimension."""

    def __init__(self, manifest: Manifest, source: str) -> None:
        self.manifest = manifest
        self.kernel = build_cpu(source)

    def __call__(self, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        if stream is not None:
            raise fail("E0601", f"{self.manifest.name} runs on the CPU, which has no streams")
        bound = bind_arguments(self.manifest, args, kwargs, (CPU,))
        total = evaluate(self.manifest.workspace_bytes, bound.sizes)
        memory: Any = None
        base = 0
        if total > 0:
            import numpy

            try:
                memory = numpy.empty(total + ALIGNMENT_BYTES, numpy.uint8)
            except (MemoryError, ValueError):
                raise fail("E0601", f"the workspace of {total} bytes does not fit this machine's memory") from None
            base = -(-memory.ctypes.data // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        values: list[Any] = []
        for name, kind, _ in self.kernel.arguments:
            match kind:
                case "array":
                    values.append(bound.arrays[name].pointer)
                case "scalar":
                    values.append(bound.scalars[name])
                case "size":
                    values.append(bound.sizes[name])
                case _:
                    values.append(base)
        self.kernel(*values)
