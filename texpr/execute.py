"""From a finished build to something that runs: the backend of each target, and cubins.

cpu         the generated Numba text, compiled in this process
cuda-host   the generated CUDA text, compiled by g++ with the checking host header
cuda        the generated CUDA text, compiled by nvcc and launched through cuda-core
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from texpr.codegen.manifest import evaluate
from texpr.grammar.diagnostics import fail
from texpr.polyhedral.target import Family
from texpr.runtime.arguments import bind_arguments
from texpr.runtime.arrays import CPU

if TYPE_CHECKING:
    from texpr.codegen.cpu.build import CpuKernel
    from texpr.codegen.manifest import Manifest
    from texpr.pipeline import Build, Emission


class CpuLauncher:
    """A Numba kernel with checked arguments: the whole host program is one compiled call."""

    def __init__(self, manifest: "Manifest", kernel: "CpuKernel") -> None:
        self.manifest, self.kernel = manifest, kernel

    def __call__(self, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        if stream is not None:
            raise fail("E0601", f"{self.manifest.name} runs on the CPU, which has no streams")
        bound = bind_arguments(self.manifest, args, kwargs, (CPU,))
        values: list[Any] = []
        for parameter in self.kernel.parameters:
            match parameter.kind:
                case "array":
                    values.append(bound.arrays[parameter.name].pointer)
                case "scalar":
                    values.append(bound.scalars[parameter.name])
                case "size":
                    values.append(bound.sizes[parameter.name])
                case _:
                    values.append(_workspace(evaluate(self.manifest.workspace_bytes, bound.sizes)))
        self.kernel(*values)


def _workspace(size_bytes: int) -> Any:
    """Scratch memory of a call, aligned to 256 bytes; 0 for none. Raises E0601 when there is not enough memory."""
    if size_bytes <= 0:
        return 0
    import numpy

    try:
        memory = numpy.empty(size_bytes + 256, numpy.uint8)
    except (MemoryError, ValueError):
        raise fail("E0601", f"the workspace of {size_bytes} bytes does not fit this machine's memory") from None
    start = -memory.ctypes.data % 256
    return memory[start : start + size_bytes]


def launcher_for(build: "Build") -> Callable[..., None]:
    """A callable `(arrays…, stream=None, sizes by name)` that runs the build. Raises E0503 without its compiler."""
    emission: Emission = build.result("emit")
    match build.target.family:
        case Family.CPU:
            from texpr.cpu_launch import CpuLauncher

            return CpuLauncher(emission.manifest, emission.source)
        case Family.CUDA_HOST:
            from texpr.codegen.host_run import HostBackend
            from texpr.runtime.launch import Launcher

            return Launcher(emission.manifest, HostBackend(emission.source))
        case Family.CUDA:
            from texpr.runtime.device import CudaBackend
            from texpr.runtime.launch import Launcher
            from texpr.runtime.load import shared_bytes

            backend = CudaBackend(cubin_of(build), shared_bytes(emission.manifest.host))
            return Launcher(emission.manifest, backend)


def cubin_of(build: "Build") -> bytes:
    """The build's cubin, from the cache or from nvcc. Raises E0503 without nvcc."""
    from texpr.cache import cached
    from texpr.codegen.toolchain import compile_cubin, nvcc_version

    emission: Emission = build.result("emit")
    parts: dict[str, Any] = {name: content.decode() for name, content in emission.files.items()}
    parts |= {"arch": build.target.arch, "nvcc": nvcc_version()}
    return cached("cubin", parts, lambda: compile_cubin(emission.source, build.target.arch))
