"""From a finished build to something that runs: the backend of each target, and cubins.

cpu         the generated Numba text, compiled in this process
cuda-host   the generated CUDA text, compiled by g++ with the checking host header
cuda        the generated CUDA text, compiled by NVRTC or nvcc, loaded through cuda-core and launched by the driver
"""

import json
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.polyhedral.target import Family

if TYPE_CHECKING:
    from texpr.codegen.resources import Occupancy
    from texpr.pipeline import Build, Emission


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
            from texpr.runtime.load import launch_steps

            backend = CudaBackend(cubin_of(build), launch_steps(emission.manifest.host))
            return Launcher(emission.manifest, backend)


def ptx_of(build: "Build") -> str:
    """The build's PTX. Raises E0503 without a compiler, E0502 for a target of the CPU."""
    from texpr.codegen.toolchain import compile_ptx

    emission: Emission = build.result("emit")
    if build.target.family is Family.CPU:
        raise fail("E0502", f"target {build.target.name} has no PTX", help="compile for a target cuda:sm_XX")
    return compile_ptx(emission.source, build.target.arch, by=_compiler_of(emission))


def _compiler_asked_for() -> str:
    """What `TEXPR_DEVICE_COMPILER` names: a compiler, or none. Raises E0607."""
    from texpr.options import one_of
    from texpr.settings import settings

    return one_of("TEXPR_DEVICE_COMPILER", settings().device_compiler, ("", "nvrtc", "nvcc"))


def _compiler_of(emission: "Emission") -> str:
    """The one that is asked for, or the best for a text where it is there; empty for whichever there is."""
    from texpr.codegen.toolchain import find_nvcc

    return _compiler_asked_for() or (emission.best_by if find_nvcc() is not None else "")


def begin_compiler() -> None:
    """Begin the compiler of a text that is being made, where it takes long to load. What is wrong with it is told when
    it is asked for a cubin."""
    from texpr.codegen.toolchain import begin_device_compiler

    with suppress(TExprError):
        begin_device_compiler(_compiler_asked_for())


def cubin_of(build: "Build") -> bytes:
    """The build's cubin, from the cache or from a compiler. Raises E0503 without one."""
    emission: Emission = build.result("emit")
    return _cubin(build, emission.source)


def placed_cubin_of(build: "Build") -> bytes:
    """The build's cubin, made of a text that differs in `#line` alone: it tells of every instruction whether it is of a
    statement, and of which. Raises E0503 without a compiler."""
    from texpr.codegen.cuda.emit import emit_cuda

    return _cubin(build, emit_cuda(build.result("plan"), build.target, exact=True).source)


def _cubin(build: "Build", source: str) -> bytes:
    """The cubin of a text with the headers of the build's own."""
    from texpr.cache import cached
    from texpr.codegen.toolchain import compile_cubin, device_compiler

    emission: Emission = build.result("emit")
    by = _compiler_of(emission)
    parts: dict[str, Any] = {name: content.decode() for name, content in emission.files.items()}
    parts |= {emission.main: source, "arch": build.target.arch, "compiler": str(device_compiler(by))}
    return cached("cubin", parts, lambda: compile_cubin(source, build.target.arch, by=by))


def occupancy_of(build: "Build") -> "dict[str, Occupancy]":
    """What every kernel of a build takes of a multiprocessor, by its symbol, as its cubin and its launch say. Raises
    E0503 without a compiler, E0502 for a target that has no cubin."""
    from texpr.codegen.resources import occupancy, resources
    from texpr.runtime.load import launch_steps

    if build.target.family is not Family.CUDA:
        raise fail("E0502", f"target {build.target.name} has no cubin", help="compile for a target cuda:sm_XX")
    taken, emission = resources(cubin_of(build)), build.result("emit")
    return {
        step.symbol: occupancy(taken[step.symbol], prod(step.block), step.shared_bytes, build.target)
        for step in launch_steps(emission.manifest.host)
        if step.symbol in taken
    }


def binaries_of(build: "Build") -> dict[str, bytes]:
    """The files of an artifact that a compiler makes: the cubin, and what its kernels take. Raises E0503."""
    emission: Emission = build.result("emit")
    kernels = {
        name: {
            "registers": each.taken.registers,
            "stack_bytes": each.taken.stack_bytes,
            "shared_bytes": each.shared_bytes,
            "threads": each.threads,
            "blocks_per_multiprocessor": each.blocks,
        }
        for name, each in occupancy_of(build).items()
    }
    told = json.dumps({"schema": 1, "kernels": kernels}, indent=1).encode()
    return {f"{Path(emission.main).stem}.cubin": cubin_of(build), "resources.json": told + b"\n"}
