"""The compilers: finding NVRTC, nvcc and g++, and running them on emitted text with fixed flags.

For a GPU it is NVRTC where there is one: the same compiler as nvcc, without a host compiler around it, and with no
standard header to read.

A compiler gets a list of arguments (never a shell's text), one folder of includes (ours), a time limit and a limit on
its memory. What it says of our text is shown in the lines that `#line` names: those of the `.tex` file. A compiler that
fails is asked for a text of a few lines first: one that cannot do that either is missing something (E0503); only else
is our text at fault (E0504).
"""

import os
import platform
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from texpr.codegen.cuda.names import comment
from texpr.codegen.headers import INCLUDE as INCLUDE
from texpr.codegen.nvrtc import DRIVER, identity, nvrtc_path
from texpr.codegen.processes import NOT_TOLD, Done, begin_ahead, run, run_told
from texpr.grammar.diagnostics import TExprError, error, fail
from texpr.grammar.endings import temporary
from texpr.grammar.records import dataclass

TIMEOUT_S = 300
PROBE_TIMEOUT_S = 60  # for a version, or a text of a few lines
MAX_MESSAGE_LINES = 20

NVCC_FLAGS = (
    "-std=c++17",
    "-O3",
    "-lineinfo",
    "--fmad=false",  # contraction is written out (tx::fma), so it stays inside one statement
    "-Xcompiler",
    "-Wall,-Wextra",
)
NVRTC_FLAGS = ("-std=c++17", "-lineinfo", "--fmad=false", "-minimal")  # it has no host compiler, and optimises always
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


# What a working compiler takes whatever our emission does: the standard headers that ours include, and a kernel.
NVCC_PROBE = "#include <cstdint>\n#include <utility>\n__global__ void probe(int *out) { *out = 1; }\n"
NVRTC_PROBE = "__global__ void probe(int *out) { *out = 1; }\n"  # it has no standard headers, and ours need none
GXX_PROBE = '#include <cstdint>\n#include <utility>\n#include <ucontext.h>\nextern "C" int probe() { return 1; }\n'


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler on this machine: its path, the first line in which it names its version (of a library, what tells it
    from other versions), what is wrong with it where it cannot even say that, and what runs it, where it is a library.
    """

    path: str
    version: str
    fault: str = ""
    driver: tuple[str, ...] = ()

    @property
    def waiting(self) -> tuple[str, ...]:
        """What runs a library, and waits to be told what to compile."""
        return (*self.driver, self.path, "--wait", str(NOT_TOLD))

    @property
    def name(self) -> str:
        return "NVRTC" if self.driver else Path(self.path).name

    def __str__(self) -> str:
        return f"{self.path} does not work: {self.fault}" if self.fault else f"{self.version} ({self.path})"


def _pypi_tool(name: str) -> str | None:
    """A program of NVIDIA's Python packages (CUDA 13: nvidia/cu13/bin)."""
    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for candidate in sorted(Path(folder).glob(f"cu*/bin/{name}"), reverse=True):
            if os.access(candidate, os.X_OK):
                return str(candidate)
    return None


def _tool_path(name: str) -> str | None:
    """A program of the CUDA toolkit by CUDA_HOME, PATH or the PyPI package, in this order."""
    home = os.environ.get("CUDA_HOME")
    if home and os.access(Path(home) / "bin" / name, os.X_OK):
        return str(Path(home) / "bin" / name)
    return shutil.which(name) or _pypi_tool(name)


def _asked(path: str, pattern: str, driver: tuple[str, ...] = ()) -> Compiler:
    try:
        done = run([*driver, path, "--version"], Path("/"), PROBE_TIMEOUT_S)
    except OSError as why:
        return Compiler(path, "unknown version", why.strerror or str(why), driver)
    line = next((text for text in done.stdout.splitlines() if pattern in text and text.strip()), "")
    if done.code is None:
        fault = f"`--version` took longer than {PROBE_TIMEOUT_S} s"
    elif done.code != 0:
        fault = f"`--version` ends with exit code {done.code}"
    else:
        fault = "" if line else "`--version` names no version"
    return Compiler(path, comment(line.strip()) if not fault else "unknown version", fault, driver)


@cache
def find_nvcc() -> Compiler | None:
    """nvcc by CUDA_HOME, PATH or the PyPI package, in this order; None where there is none. It may have a `fault`."""
    path = _tool_path("nvcc")
    return _asked(path, "release") if path else None


@cache
def find_nvrtc() -> Compiler | None:
    """NVRTC by CUDA_HOME, beside the nvcc on PATH, or of the PyPI package; None where there is none. It is not asked
    for its version, which takes as long as a small kernel: what is wrong with it is found when it fails."""
    path = nvrtc_path()
    if path is None or not sys.executable:
        return None
    return Compiler(path, identity(path), driver=(sys.executable, "-I", "-S", str(DRIVER)))


@cache
def find_gxx() -> Compiler | None:
    """g++ on PATH (or clang++); None where there is none. It may have a `fault`."""
    path = shutil.which("g++") or shutil.which("clang++")
    return _asked(path, "") if path else None


def device_compiler(by: str = "") -> Compiler:
    """The compiler for GPUs: `by` is `nvrtc` or `nvcc`, or empty for NVRTC where there is one and else nvcc. Raises
    E0503 where there is none. It may have a `fault`."""
    finders = {"nvrtc": (find_nvrtc,), "nvcc": (find_nvcc,), "": (find_nvrtc, find_nvcc)}[by]
    found = next((compiler for find in finders if (compiler := find()) is not None), None)
    if found is None:
        names = {"nvrtc": "NVRTC was not", "nvcc": "nvcc was not", "": "neither NVRTC nor nvcc was"}[by]
        raise fail(
            "E0503",
            f"{names} found by CUDA_HOME, on PATH or among Python's packages",
            help='pip install "texpr[cuda]", or use the target cuda-host or cpu',
        )
    return found


def begin_device_compiler(by: str = "") -> None:
    """Load what `device_compiler` finds, where that takes long, while the text is being made. Raises E0503."""
    found = device_compiler(by)
    if found.driver and not found.fault:
        begin_ahead(found.waiting)


def describe_nvcc() -> str:
    """A sentence on nvcc for `texpr doctor`."""
    found = find_nvcc()
    return str(found) if found else 'not found: pip install "texpr[cuda]", or a CUDA toolkit'


def describe_nvrtc() -> str:
    """A sentence on NVRTC for `texpr doctor`."""
    found = find_nvrtc()
    if found is None:
        return 'not found: nvcc makes cubins, which takes longer; pip install "texpr[cuda]" brings both'
    return str(_asked(found.path, "release", found.driver))


def describe_gxx() -> str:
    """A sentence on the host compiler for `texpr doctor`."""
    found = find_gxx()
    return str(found) if found else "not found: install g++ for targets cuda-host"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for the time of one compilation. Raises E0503 where this machine has no place for temporary files."""

    def refuse(why: OSError) -> TExprError:
        message = f"there is no place for temporary files: {why.strerror or why}"
        return fail("E0503", message, help="set TMPDIR to a folder that can be written")

    try:
        place = Path(tempfile.gettempdir()) / f"texpr-{secrets.token_hex(8)}"
    except OSError as why:
        raise refuse(why) from None
    with temporary(place):
        try:
            place.mkdir(mode=0o700)
        except OSError as why:
            raise refuse(why) from None
        yield place


def _words(done: Done, folder: Path) -> tuple[str, ...]:
    """What a compiler said, without the path of the temporary folder."""
    said = f"{done.stderr}\n{done.stdout}".replace(f"{folder}/", "")
    return tuple(comment(line) for line in said.splitlines() if line.strip())[:MAX_MESSAGE_LINES]


def _ended(done: Done) -> str:
    """What happened to a probe that failed."""
    if done.code is None:
        return f"took longer than {PROBE_TIMEOUT_S} s"
    return f"ended with exit code {done.code}" if done.code else "wrote nothing"


def _not_working(compiler: Compiler, why: str, help: str, notes: tuple[str, ...] = ()) -> TExprError:
    return TExprError([error("E0503", f"{compiler.path} does not work: {why}", notes=notes, help=help)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A compilation of `kernel.cu` to the file `result`: `ours` are the flags that only our text needs; `probe` is the
    text of a few lines that decides who is to blame for a failure, and `help` what to do if it is the compiler."""

    flags: Sequence[str]
    ours: Sequence[str]
    result: str
    probe: str
    help: str


def _compile(compiler: Compiler, text: str, job: _Job, folder: Path) -> None:
    """Compile `text` in `folder`. Raises E0503, E0504."""
    if compiler.fault:
        raise _not_working(compiler, compiler.fault, job.help)

    def attempt(source: str, flags: Sequence[str], limit_s: float) -> Done | None:
        """How the compiler failed; None where the result is there."""
        result = folder / job.result
        try:
            (folder / "kernel.cu").write_text(source, encoding="utf-8")
            result.unlink(missing_ok=True)
            options = [*flags, *job.flags]
            if compiler.driver:
                done = run_told(compiler.waiting, options, folder, limit_s)
            else:
                done = run([compiler.path, *options], folder, limit_s)
        except OSError as why:
            raise _not_working(compiler, why.strerror or str(why), job.help) from None
        return None if done.code == 0 and result.is_file() else done

    failed = attempt(text, job.ours, TIMEOUT_S)
    if failed is None:
        return
    words = _words(failed, folder)
    probed = attempt(job.probe, (), PROBE_TIMEOUT_S)
    if probed is not None:
        why = f"it {_ended(probed)} for a text of a few lines"
        raise _not_working(compiler, why, job.help, _words(probed, folder) or words)
    if failed.code is None:
        raise fail("E0504", f"{compiler.name} took longer than {TIMEOUT_S} s", help="split the kernel")
    message = f"{compiler.name} refused the emitted text"
    raise TExprError([error("E0504", message, notes=words, help="please report this as a defect")])


def compile_cubin(
    source: str, arch: str, include: Sequence[Path] = (INCLUDE,), *, by: str = "", werror: bool = False
) -> bytes:
    """The cubin of a `.cu` text for `arch` (such as sm_90a), by NVRTC, or nvcc where there is none, or what `by` says.
    Raises E0503 without a compiler that works, E0504 when it refuses the text; with `werror`, for what nvcc warns of.

    Equal text and compiler give equal bytes from any folder: the file has one name, and `#line` names the rest.
    """
    flags = NVCC_WERROR if werror else ()
    return _device(device_compiler("nvcc" if werror else by), source, arch, flags, include, "-cubin", "kernel.cubin")


def compile_ptx(source: str, arch: str, include: Sequence[Path] = (INCLUDE,), *, by: str = "") -> str:
    """The PTX of a `.cu` text for `arch`, to read. Raises as `compile_cubin`."""
    return _device(device_compiler(by), source, arch, (), include, "-ptx", "kernel.ptx").decode()


def _device(
    found: Compiler, source: str, arch: str, more: Sequence[str], include: Sequence[Path], kind: str, result: str
) -> bytes:
    needs = "NVRTC needs its builtins beside it" if found.driver else "nvcc needs g++ on PATH"
    help = f"{needs} and must know {arch}; see `texpr doctor`, or use the target cuda-host or cpu"
    own, probe = (NVRTC_FLAGS, NVRTC_PROBE) if found.driver else (NVCC_FLAGS, NVCC_PROBE)
    with scratch_folder() as folder:
        flags = [*own, f"-arch={arch}", kind, "-o", result, "kernel.cu"]
        includes = [f"-I{path}" for path in include]
        _compile(
            found, source, _Job(flags=flags, ours=[*more, *includes], result=result, probe=probe, help=help), folder
        )
        return (folder / result).read_bytes()


def compile_host(
    source: str, folder: Path, include: Sequence[Path] = (INCLUDE,), linked: Sequence[Path] = (), werror: bool = False
) -> Path:
    """Compile a `.cu` text for the CPU with the checking host header; the shared library, with the objects `linked`,
    appears in `folder`. Raises E0503 without a g++ that works, E0504 when it refuses the text."""
    found = find_gxx()
    if found is None:
        raise fail(
            "E0503", "g++ was not found on PATH", help="install g++ (on Debian: apt install g++), or use the target cpu"
        )
    includes = [part for path in include for part in ("-I", str(path))]
    forced = [*(("-Werror",) if werror else ()), "-include", "texpr/host/host.hpp"]
    objects = ["-x", "none", *map(str, linked)] if linked else []
    flags = [*GXX_FLAGS, "-o", "kernel.so", "-x", "c++", "kernel.cu", *objects, "-lm"]
    help = "g++ needs its own libraries and headers (on Debian: apt install g++); or use the target cpu"
    job = _Job(flags=flags, ours=[*includes, *forced], result="kernel.so", probe=GXX_PROBE, help=help)
    _compile(found, source, job, folder)
    return folder / "kernel.so"


def find_nvdisasm() -> str | None:
    """nvdisasm by CUDA_HOME, PATH or the PyPI package, in this order; None where there is none."""
    return _tool_path("nvdisasm")


def disassembled(cubin: bytes) -> str:
    """What `nvdisasm -json` prints of a cubin. Raises E0503 without an nvdisasm that works."""
    path = find_nvdisasm()
    if path is None:
        message = "nvdisasm was not found by CUDA_HOME, on PATH or among Python's packages"
        raise fail("E0503", message, help='pip install "texpr[cuda]", or a CUDA toolkit')
    with scratch_folder() as folder:
        try:
            (folder / "kernel.cubin").write_bytes(cubin)
            done = run([path, "-json", "kernel.cubin"], folder, TIMEOUT_S)
        except OSError as why:
            raise fail("E0503", f"{path} does not work: {why.strerror or why}") from None
        if done.code != 0:
            help = "one of CUDA 13 or newer knows the option -json and all targets"
            ended = "took too long" if done.code is None else f"ended with exit code {done.code}"
            said = f"{path} does not work: it {ended}"
            raise TExprError([error("E0503", said, notes=_words(done, folder), help=help)])
        return done.stdout
