"""NVRTC as a program with the arguments of nvcc: `toolchain.py` runs it in a process of its own, as it runs nvcc, so
that a time limit, a limit on memory, a signal or a crash of the compiler ends that process and no other.

    python -I -S nvrtc_driver.py LIBRARY --version
    python -I -S nvrtc_driver.py LIBRARY --wait STATUS

With `--wait` it reads how many bytes come, on a line, and so many: the folder to work in and the arguments, each after
a NUL but the first: `/tmp/x`, [options], `-cubin`, `-o`, `kernel.cubin`, `kernel.cu`. It answers by a line with the
exit status, once the log is on the error output, and reads again. Before the first one it compiles a text of nothing,
after which NVRTC takes 8 ms less for any other. It ends when nothing has come for a while, with the exit status STATUS.

It imports as little as it can, none of our modules among it: its start is much of what a small kernel takes.
"""

import ctypes
import os
import select
import sys

KINDS = {"-cubin": "CUBIN", "-ptx": "PTX"}
PATIENCE_S = 5
SPLIT = "--split-compile=8"  # so many threads at most, a number for all machines: it stands in the cubin
KERNEL = b"__global__"
KEPT_MEMORY = {-3: 1 << 30, -1: (1 << 31) - 1, -2: 1 << 26}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD of glibc
WARM = b"__global__ void warm() {}\n"


class Library:
    """NVRTC, loaded. A call that fails ends the program with what NVRTC calls the error."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.need("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"
        self.splits = major.value >= 13  # of earlier ones it is not known
        # NVRTC opens its builtins by their bare name, which is found once the file beside it has been loaded.
        try:  # noqa: SIM105 -- contextlib takes as long to import as ctypes
            ctypes.CDLL(f"{path.rpartition('/')[0]}/libnvrtc-builtins.so.{self.version}")
        except OSError:
            pass  # NVRTC says what is missing, if it finds them nowhere else

    def call(self, name: str, *arguments: object) -> int:
        code: int = getattr(self._library, name)(*arguments)
        return code

    def need(self, name: str, *arguments: object) -> None:
        code = self.call(name, *arguments)
        if code:
            raise SystemExit(f"{name}: {self._library.nvrtcGetErrorString(code).decode()}")

    def content(self, program: ctypes.c_void_p, what: str) -> bytes:
        """The log or the result of a program."""
        size = ctypes.c_size_t()
        self.need(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        self.need(f"nvrtcGet{what}", program, room)
        return room.raw if what == "CUBIN" else room.value


def compile_text(library: Library, kind: str, result: str, options: list[str], source: str) -> int:
    """Compile the file `source` to the file `result`; the exit status. What NVRTC says goes to the error output.

    Several kernels, such as those of cases that a call decides, are compiled side by side, to the code of each alone.
    """
    with open(source, "rb") as file:  # noqa: PTH123 -- pathlib takes longer
        text = file.read()
    if library.splits and text.count(KERNEL) > 1:
        options = [*options, SPLIT]
    program = ctypes.c_void_p()
    library.need("nvrtcCreateProgram", ctypes.byref(program), text, source.encode(), 0, None, None)
    words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    code = library.call("nvrtcCompileProgram", program, len(options), words)
    sys.stderr.buffer.write(library.content(program, "ProgramLog"))
    if not code:
        with open(result, "wb") as file:  # noqa: PTH123 -- pathlib takes longer
            file.write(library.content(program, KINDS[kind]))
    library.need("nvrtcDestroyProgram", ctypes.byref(program))
    return 1 if code else 0


def warm_up(library: Library) -> None:
    """Have NVRTC make what it makes once in each process."""
    program, option = ctypes.c_void_p(), b"-arch=sm_90a"
    if not library.call("nvrtcCreateProgram", ctypes.byref(program), WARM, b"none.cu", 0, None, None):
        library.call("nvrtcCompileProgram", program, 1, (ctypes.c_char_p * 1)(option))


def keep_memory() -> None:
    """Have the C library keep what a compilation frees, where it can: the next one needs as much again, and pages from
    the system take 4 % of its time."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        for option, value in KEPT_MEMORY.items():
            set_option(option, value)


def is_told(patience_s: float) -> bool:
    """Whether something comes to the input, or its end."""
    return bool(select.select([sys.stdin], [], [], patience_s)[0])


def main() -> int:
    path, what, *status = sys.argv[1:]
    library = Library(path)
    if what == "--version":
        print(f"NVRTC, release {library.version}")
        return 0
    keep_memory()
    if not is_told(0):
        warm_up(library)
    while is_told(PATIENCE_S) and (size := sys.stdin.buffer.readline()):  # no line: whoever began this has ended
        folder, *options = os.fsdecode(sys.stdin.buffer.read(int(size))).split("\0")
        os.chdir(folder)
        os.environ["TMPDIR"] = folder
        *options, kind, _, result, source = options
        code = compile_text(library, kind, result, options, source)
        sys.stderr.buffer.flush()
        os.chdir("/")  # the folder goes away
        print(code, flush=True)
    return int(status[0])


if __name__ == "__main__":
    sys.exit(main())
