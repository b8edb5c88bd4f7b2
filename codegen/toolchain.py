"""The compilers: finding nvcc and g++, and running them on emitted text with fixed flags.

A compiler gets a list of arguments (never a shell's text), one folder of includes (ours), a time limit and a limit on
its memory. What it says of our text is shown in the lines that `#line` names: those of the `.tex` file.
"""

import os
import platform
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from texpr.codegen.cuda.names import comment
from texpr.grammar.diagnostics import TExprError, error, fail

INCLUDE = Path(__file__).resolve().parent / "include"
TIMEOUT_S = 300
MEMORY_KIB = 12 << 20  # of address space, per process of the compiler
MAX_MESSAGE_LINES = 20

NVCC_FLAGS = (
    "-std=c++17",
    "-O3",
    "-lineinfo",
    "--fmad=false",  # contraction is written out (tx::fma), so it stays inside one statement
    "-Xcompiler",
    "-Wall,-Wextra",
)
NVCC_WERROR = ("-Werror", "all-warnings")  # our tests ask for it: a newer compiler's new warning stops nobody
GXX_FLAGS = (
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-shared",
    "-Wall",
    "-Wextra",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-stack-protector",
    "-fvisibility=hidden",
    "-U_FORTIFY_SOURCE",
    *(("-fcf-protection=none",) if platform.machine() == "x86_64" else ()),  # fibers switch stacks
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler on this machine: its path and the first line in which it names its version."""

    path: str
    version: str


def header_files(paths: Sequence[str]) -> dict[str, str]:
    """The texts of our include files by path, for an artifact that is to be complete."""
    return {path: (INCLUDE / path).read_text(encoding="utf-8") for path in paths}


def _pypi_nvcc() -> str | None:
    """nvcc of the packages nvidia-cuda-nvcc (CUDA 13: nvidia/cu13/bin)."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for candidate in sorted(Path(folder).glob("cu*/bin/nvcc"), reverse=True):
            if os.access(candidate, os.X_OK):
                return str(candidate)
    return None


def _nvcc_path() -> str | None:
    home = os.environ.get("CUDA_HOME")
    if home and os.access(Path(home) / "bin" / "nvcc", os.X_OK):
        return str(Path(home) / "bin" / "nvcc")
    return shutil.which("nvcc") or _pypi_nvcc()


def _asked(path: str, pattern: str) -> Compiler:
    done = _run([path, "--version"], Path(tempfile.gettempdir()))
    line = next((text for text in done.stdout.splitlines() if pattern in text), "unknown version")
    return Compiler(path, line.strip())


@cache
def find_nvcc() -> Compiler | None:
    """nvcc by CUDA_HOME, PATH or the PyPI package, in this order; None where there is none."""
    path = _nvcc_path()
    return _asked(path, "release") if path else None


@cache
def find_gxx() -> Compiler | None:
    """g++ on PATH (or clang++); None where there is none."""
    path = shutil.which("g++") or shutil.which("clang++")
    return _asked(path, "") if path else None


def nvcc_version() -> str:
    """What nvcc says of itself; empty where it is missing."""
    found = find_nvcc()
    return found.version if found else ""


def describe_nvcc() -> str:
    """A sentence on nvcc for `texpr doctor`."""
    found = find_nvcc()
    return f"{found.version} ({found.path})" if found else 'not found: pip install "texpr[cuda]", or a CUDA toolkit'


def describe_gxx() -> str:
    """A sentence on the host compiler for `texpr doctor`."""
    found = find_gxx()
    return f"{found.version} ({found.path})" if found else "not found: install g++ for targets cuda-host"


@dataclass(frozen=True, slots=True)
class _Done:
    code: int
    stdout: str
    stderr: str


def _run(arguments: Sequence[str], folder: Path) -> _Done:
    """Run a compiler in `folder`, in its own process group, which ends with it or at the time limit."""
    limited = ["/bin/sh", "-c", 'ulimit -v "$0"; exec "$@"', str(MEMORY_KIB), *arguments]
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)}
    with subprocess.Popen(
        limited,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise fail(
                "E0504", f"{Path(arguments[0]).name} took longer than {TIMEOUT_S} s", help="split the kernel"
            ) from None
        return _Done(process.returncode, stdout, stderr)


def _refused(compiler: str, said: str, folder: Path) -> TExprError:
    """E0504 with the compiler's words; paths of the temporary folder are cut."""
    lines = [comment(line) for line in said.replace(f"{folder}/", "").splitlines() if line.strip()]
    notes = tuple(lines[:MAX_MESSAGE_LINES])
    return TExprError(
        [error("E0504", f"{compiler} refused the emitted text", notes=notes, help="please report this as a defect")]
    )


def compile_cubin(source: str, arch: str, include: Sequence[Path] = (INCLUDE,), *, werror: bool = False) -> bytes:
    """The cubin of a `.cu` text for `arch` (such as sm_90a). Raises E0503 without nvcc, E0504 when it refuses.

    Equal text and compiler give equal bytes from any folder: the file has one name, and `#line` names the rest.
    """
    return _device(source, arch, NVCC_WERROR if werror else (), include, "-cubin", "kernel.cubin")


def compile_ptx(source: str, arch: str, include: Sequence[Path] = (INCLUDE,)) -> str:
    """The PTX of a `.cu` text for `arch`, to read. Raises as `compile_cubin`."""
    return _device(source, arch, (), include, "-ptx", "kernel.ptx").decode()


def _device(source: str, arch: str, more: Sequence[str], include: Sequence[Path], kind: str, result: str) -> bytes:
    found = find_nvcc()
    if found is None:
        raise fail(
            "E0503",
            "nvcc was not found by CUDA_HOME, on PATH or among Python's packages",
            help='pip install "texpr[cuda]", or use the target cuda-host or cpu',
        )
    with tempfile.TemporaryDirectory(prefix="texpr-") as name:
        folder = Path(name)
        (folder / "kernel.cu").write_text(source, encoding="utf-8")
        includes = [part for path in include for part in ("-I", str(path))]
        arguments = [found.path, *NVCC_FLAGS, *more, f"-arch={arch}", kind, *includes, "-o", result, "kernel.cu"]
        done = _run(arguments, folder)
        if done.code != 0 or not (folder / result).exists():
            raise _refused("nvcc", done.stderr + done.stdout, folder)
        return (folder / result).read_bytes()


def compile_host(source: str, folder: Path, include: Sequence[Path] = (INCLUDE,), *, werror: bool = False) -> Path:
    """Compile a `.cu` text for the CPU with the checking host header; the shared library appears in `folder`. Raises
    E0503 without g++, E0504 when it refuses."""
    found = find_gxx()
    if found is None:
        raise fail(
            "E0503", "g++ was not found on PATH", help="install g++ (on Debian: apt install g++), or use the target cpu"
        )
    (folder / "kernel.cu").write_text(source, encoding="utf-8")
    includes = [part for path in include for part in ("-I", str(path))]
    forced = [*(("-Werror",) if werror else ()), "-include", "texpr/host/host.hpp"]
    arguments = [found.path, *GXX_FLAGS, *includes, *forced, "-o", "kernel.so", "-x", "c++", "kernel.cu", "-lm"]
    done = _run(arguments, folder)
    if done.code != 0:
        raise _refused("g++", done.stderr + done.stdout, folder)
    return folder / "kernel.so"
