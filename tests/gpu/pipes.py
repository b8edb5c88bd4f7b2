"""Run the texts of tests/codegen/pipes (rings, clusters, flags between blocks) on a GPU and compare with NumPy.

    python tests/gpu/pipes.py build OUT [--arch sm_90a]     where nvcc is, without a GPU
    python tests/gpu/pipes.py run OUT [--repeat 20]         with NumPy and the driver; nothing of the compiler

Every launch must give equal bits, and leave its counters and flags as it found them, `--repeat` times. Under
compute-sanitizer (memcheck, racecheck, synccheck, initcheck) use `--repeat 1`.
"""

import argparse
import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "codegen" / "pipes"))

from pipe_cases import CASES, Case, Map, source

COOPERATIVE, OVERLAPPING = 2, 6  # launch attributes of the driver: cooperative; programmatic stream serialization
FLOAT32 = 7  # CU_TENSOR_MAP_DATA_TYPE_FLOAT32
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


class Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value is an int here."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_byte * 60))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


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

    def tensor_map(self, pointer: int, data: Any, box: tuple[int, ...], swizzle: int) -> Any:
        """A CUtensorMap; it lies on a multiple of 64 in a buffer that is kept with it."""
        buffer = ctypes.create_string_buffer(128 + 64)
        place = (ctypes.addressof(buffer) + 63) // 64 * 64
        rank = data.ndim
        extents = (ctypes.c_uint64 * rank)(*reversed(data.shape))
        strides = (ctypes.c_uint64 * max(rank - 1, 1))(*reversed(data.strides[:-1]))
        boxes, steps = (ctypes.c_uint32 * rank)(*reversed(box)), (ctypes.c_uint32 * rank)(*[1] * rank)
        self(
            "cuTensorMapEncodeTiled", ctypes.c_void_p(place), FLOAT32, ctypes.c_uint32(rank), ctypes.c_uint64(pointer),
            extents, strides, boxes, steps, 0, SWIZZLES[swizzle], 0, 0,
        )  # fmt: skip
        result = (ctypes.c_byte * 128).from_address(place)
        result.kept = buffer
        return result

    def launch(self, case: Case, arguments: list[Any], attribute: int | None) -> None:
        """One launch with parameters by value, `broken` (0) as the last one."""
        values = [*arguments, ctypes.c_int(0)]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        attributes = (Attribute * 1)(Attribute(id=attribute or 0, value=1))
        config = Config(
            grid=(case.grid, 1, 1),
            block=(case.block, 1, 1),
            shared_bytes=case.shared,
            stream=self.stream,
            attributes=attributes,
            count=0 if attribute is None else 1,
        )
        if attribute != OVERLAPPING:
            self("cuCtxSynchronize")  # what was copied is there
        self("cuLaunchKernelEx", ctypes.byref(config), self.kernel(case.kernel), pointers, None)


def once(driver: Driver, case: Case) -> list[str]:
    """Launch a case twice on the same counters; the arrays that are not what they should be."""
    arrays = case.arrays()
    expected = case.expected(arrays)
    pointers = {name: driver.upload(data) for name, data in arrays.items()}

    def value(argument: str | Map | int) -> Any:
        if isinstance(argument, str):
            return ctypes.c_uint64(pointers[argument])
        if isinstance(argument, Map):
            name = argument.array
            return driver.tensor_map(pointers[name], arrays[name], argument.box, argument.swizzle)
        return ctypes.c_int(argument)

    wrong = []
    for _ in range(2):
        arguments = [value(argument) for argument in case.arguments]
        driver.launch(case, arguments, COOPERATIVE if case.cooperative else None)
        driver("cuCtxSynchronize")
        for name, want in expected.items():
            # the barrier of a grid, passed an odd number of times, turns its top bit
            got = driver.download(pointers[name], want)
            same = got if name != "words" else got & 0x7FFFFFFF
            wrong += [name] * (not np.array_equal(same, want if name != "words" else want & 0x7FFFFFFF))
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
        driver.launch(case, addresses, OVERLAPPING)
        data = case.expected({"a": data, "o": arrays["o"]})["o"]
    driver("cuCtxSynchronize")
    wrong = [] if np.array_equal(driver.download(pointers[-1], data), data) else ["o of the last launch"]
    for pointer in pointers:
        driver.free(pointer)
    return wrong


def run(out: Path, repeat: int) -> int:
    """0 when all are right. The capability of the cubin is in its name."""
    (cubin,) = out.glob("pipes.sm_*.cubin")
    capability = int("".join(c for c in cubin.suffixes[0] if c.isdigit()))
    driver = Driver(cubin.read_bytes())
    failures = launched = 0
    for number, case in enumerate(CASES):
        if capability < case.least_arch or case.kernel.startswith("ring_products"):
            continue  # products are of the CPU's text only
        if capability >= 120 and case.kernel.startswith("multicast"):
            continue
        checks = [once] + [chained] * case.kernel.startswith("dependent")
        for check in checks:
            wrong = [name for _ in range(repeat) for name in check(driver, case)]
            launched += 1
            if wrong:
                failures += 1
                print(
                    f"{case.kernel} (case {number}, {check.__name__}): {len(wrong)} times wrong: {sorted(set(wrong))}"
                )
    print(f"{launched} checks, {repeat} times each, {failures} failed")
    return 1 if failures else 0


def build(out: Path, arch: str) -> None:
    from texpr.codegen.toolchain import compile_cubin

    for old in out.glob("pipes.sm_*.cubin"):
        old.unlink()
    (out / f"pipes.{arch}.cubin").write_bytes(compile_cubin(source(), arch, werror=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--repeat", type=int, default=20)
    args = parser.parse_args()
    if args.what == "run":
        return run(args.out, args.repeat)
    args.out.mkdir(parents=True, exist_ok=True)
    build(args.out, args.arch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
