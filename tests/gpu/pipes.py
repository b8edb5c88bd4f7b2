"""Run the texts of tests/codegen/pipes (rings, clusters, flags between blocks) on a GPU and compare with NumPy.

    python tests/gpu/pipes.py build OUT [--arch sm_90a]     where nvcc is, without a GPU
    python tests/gpu/pipes.py run OUT [--repeat 20]         with NumPy, the driver and its bindings (cuda.bindings)
    python tests/gpu/pipes.py run OUT --refused             what the CPU refuses must be refused by the GPU too

Every launch must give equal bits, and leave its counters and flags as it found them, `--repeat` times; one line says of
each check whether it is right, wrong, an error or skipped. A launch that fails spoils its process: the next check
begins another one. Under compute-sanitizer use `--target-processes all` and `--repeat 1`; under its racecheck also
`--racecheck`, which skips what that tool cannot judge and says why.
"""

import argparse
import ctypes
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "codegen" / "pipes"))

from launch_once import launch
from pipe_cases import CASES, REFUSED, REFUSED_STORES, Case, Map, source

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.driver import COOPERATIVE, OVERLAPPING, encode

WORDS = ("right", "wrong", "error", "skipped")

# What racecheck says of right texts, by the beginnings of their names. Both are known to the CPU's clocks, which find
# every way to break these texts.
BARRIER_OF_THE_CLUSTER = (
    "racecheck knows no other way than the cluster's barrier to tell that a block still runs; here every access to "
    "its memory is counted by an mbarrier that it waits for before it ends"
)
JUDGED_WRONGLY = {
    "parts_0": "racecheck takes no barrier.arrive for the end of earlier reads; it synchronizes with the barrier.sync "
    "of those who write next (parts_1 waits there too, and is checked)",
    "across": BARRIER_OF_THE_CLUSTER,
    "letters": BARRIER_OF_THE_CLUSTER,
}


class Driver:
    """The CUDA driver, as far as this needs it: every call is checked."""

    def __init__(self, cubin: bytes) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device, context, self.module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self("cuDeviceGet", ctypes.byref(device), 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        self("cuModuleLoadData", ctypes.byref(self.module), cubin)
        self.stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(self.stream), 1)  # it waits for no other

    def __call__(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            word = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(word))
            raise RuntimeError(f"{name}: {(word.value or b'?').decode()} ({code})")

    def kernel(self, name: str) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self("cuModuleGetFunction", ctypes.byref(found), self.module, name.encode())
        return found

    def upload(self, data: Any) -> int:
        pointer = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(data.nbytes))
        self("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))
        return pointer.value

    def download(self, pointer: int, like: Any) -> Any:
        data = np.empty_like(like)
        size = ctypes.c_size_t(data.nbytes)
        self("cuCtxSynchronize")
        self("cuMemcpyDtoH_v2", ctypes.c_void_p(data.ctypes.data), ctypes.c_uint64(pointer), size)
        return data

    def free(self, pointer: int) -> None:
        self("cuMemFree_v2", ctypes.c_uint64(pointer))

    def launch(self, case: Case, arguments: list[Any], attributes: tuple[int, ...] = ()) -> None:
        """One launch with parameters by value, `broken` (0) as the last one."""
        if OVERLAPPING not in attributes:
            self("cuCtxSynchronize")  # what was copied is there
        function, stream = self.kernel(case.kernel).value, self.stream.value
        assert function and stream
        values = [*arguments, ctypes.c_int(0)]
        grid, block = (case.grid, 1, 1), (case.block, 1, 1)
        launch(function, grid, block, case.shared, stream, values, attributes=attributes, symbol=case.kernel)


def difference(name: str, got: Any, want: Any) -> list[str]:
    """Where an array is not what it should be, in words."""
    if name == "words":  # the barrier of a grid, passed an odd number of times, turns its top bit
        got, want = got & 0x7FFFFFFF, want & 0x7FFFFFFF
    places = np.argwhere(got != want)
    if not len(places):
        return []
    at = tuple(int(k) for k in places[0])
    return [f"{name}{list(at)} is {got[at]}, not {want[at]}, and {len(places)} of {got.size} differ"]


def once(driver: Driver, case: Case) -> list[str]:
    """Launch a case twice on the same counters; what is not as it should be."""
    arrays = case.arrays()
    expected = case.expected(arrays)
    pointers = {name: driver.upload(data) for name, data in arrays.items()}

    def value(argument: str | Map | int) -> Any:
        if isinstance(argument, str):
            return ctypes.c_uint64(pointers[argument])
        if isinstance(argument, Map):
            return encode(argument.of(arrays[argument.array], pointers[argument.array]))
        return ctypes.c_int(argument)

    wrong = []
    for _ in range(2):
        arguments = [value(argument) for argument in case.arguments]
        driver.launch(case, arguments, (COOPERATIVE,) if case.cooperative else ())
        driver("cuCtxSynchronize")
        for name, want in expected.items():
            wrong += difference(name, driver.download(pointers[name], want), want)
    for pointer in pointers.values():
        driver.free(pointer)
    return wrong


def chained(driver: Driver, case: Case, length: int = 8) -> list[str]:
    """Launches each of which may begin before the one whose result it reads has ended."""
    arrays = case.arrays()
    data, pointers = arrays["a"], [driver.upload(arrays[name]) for name in ("a", *["o"] * length)]
    driver("cuCtxSynchronize")
    for number in range(length):
        addresses = [ctypes.c_uint64(pointer) for pointer in pointers[number : number + 2]]
        driver.launch(case, addresses, (OVERLAPPING,))
        data = case.expected({"a": data, "o": arrays["o"]})["o"]
    driver("cuCtxSynchronize")
    wrong = difference("o", driver.download(pointers[-1], data), data)
    for pointer in pointers:
        driver.free(pointer)
    return wrong


Check = tuple[str, Case, Callable[[Driver, Case], list[str]]]


def label(case: Case) -> str:
    """The kernel, with what sets its cases apart."""
    maps = [f"{m.array}{list(m.box)} swizzle {m.swizzle}" for m in case.arguments if isinstance(m, Map)]
    numbers = [str(n) for n in case.arguments if isinstance(n, int)]
    return " ".join([case.kernel, *maps, *numbers])


def checks(out: Path, refused: bool) -> list[Check]:
    """All that the cubin of `out` is for; the capability is in its name."""
    (cubin,) = out.glob("pipes.sm_*.cubin")
    capability = int("".join(c for c in cubin.suffixes[0] if c.isdigit()))
    found: list[Check] = []
    for case in (*REFUSED, *REFUSED_STORES) if refused else CASES:
        if capability < case.least_arch or case.kernel.startswith("ring_products"):
            continue  # products are of the CPU's text only
        if capability >= 120 and case.kernel.startswith("multicast"):
            continue
        found.append((label(case), case, once))
        if case.kernel.startswith("dependent"):
            found.append((f"{label(case)} in a chain", case, chained))
    return found


def some(args: argparse.Namespace) -> int:
    """The checks from number `--first` on, in this process: it says `ready`, and then a line of each, until one fails
    in a way that leaves the process without a GPU."""
    (cubin,) = args.out.glob("pipes.sm_*.cubin")
    driver = Driver(cubin.read_bytes())
    print("ready", flush=True)
    for _, case, check in checks(args.out, args.refused)[args.first :]:
        reasons = [why for name, why in JUDGED_WRONGLY.items() if case.kernel.startswith(name)]
        if args.racecheck and reasons:
            print(f"skipped: {reasons[0]}", flush=True)
            continue
        try:
            wrong = [text for _ in range(args.repeat) for text in check(driver, case)]
        except (RuntimeError, TExprError) as error:
            print(f"error: {str(error).splitlines()[0]}", flush=True)
            return 1
        print(f"wrong: {len(wrong)} times in {args.repeat} checks: {wrong[0]}" if wrong else "right", flush=True)
    return 0


def answers(args: argparse.Namespace, first: int) -> list[str]:
    """Begin a process at check `first`: its lines, each shown as it comes. One that is silent is ended."""
    names = [name for name, _, _ in checks(args.out, args.refused)]
    flags = ["--refused"] * args.refused + ["--racecheck"] * args.racecheck
    numbers = ["--first", str(first), "--repeat", str(args.repeat)]
    child = subprocess.Popen(
        [sys.executable, __file__, "some", str(args.out), *numbers, *flags], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout
    said: list[str] = []
    ready = False
    while True:
        watch = threading.Timer(args.limit, child.kill)
        watch.start()
        line = child.stdout.readline()
        watch.cancel()
        number = first + len(said)
        if not line:
            code = child.wait()
            if ready and number < len(names) and said[-1:] != ["error"]:
                why = "no answer in time" if code == -9 else f"its process ended with {code}"
                print(f"{number:3} {names[number]}: error: {why}", flush=True)
                said.append("error")
            return said
        word = line.partition(":")[0].strip()
        if word == "ready":
            ready = True
        elif ready and word in WORDS:
            print(f"{number:3} {names[number]}: {line.strip()}", flush=True)
            said.append(word)
        else:
            print(line, end="", flush=True)  # a tool's


def run(args: argparse.Namespace) -> int:
    """0 when all are right; of `--refused`, when all are errors."""
    total = len(checks(args.out, args.refused))
    said: list[str] = []
    while len(said) < total:
        more = answers(args, len(said))
        if not more:
            print("the GPU could not be used")
            return 2
        said += more
    counts = Counter(said)
    print(f"{total} checks, {args.repeat} times each: " + ", ".join(f"{n} {word}" for word, n in counts.items()))
    good = {"error"} if args.refused else {"right", "skipped"}
    return 0 if set(counts) <= good else 1


def build(out: Path, arch: str) -> None:
    from texpr.codegen.toolchain import compile_cubin

    for old in out.glob("pipes.sm_*.cubin"):
        old.unlink()
    (out / f"pipes.{arch}.cubin").write_bytes(compile_cubin(source(), arch, werror=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run", "some"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--refused", action="store_true", help="run what must fail instead")
    parser.add_argument("--racecheck", action="store_true", help="skip what racecheck cannot judge")
    parser.add_argument("--limit", type=float, default=120, help="seconds that a check may take")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what != "build":
        return run(args) if args.what == "run" else some(args)
    args.out.mkdir(parents=True, exist_ok=True)
    build(args.out, args.arch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
