"""What a tool says of an asynchronous copy that is no fault, on a kernel of four lines.

    compute-sanitizer --tool memcheck --report-api-errors no python tests/gpu/false_reports.py

`cp.async` of 16 bytes whose source has 12 writes those 12 and zeros behind them (PTX, cp.async: `src-size`). memcheck
counts all 16 as read, so it reports the copy where an allocation ends with the 12. The script copies so out of a longer
allocation, whose bytes behind the 12 must not arrive, and then out of one that ends there: it prints that both give the
same 16 bytes, and the tool reports the second copy alone. Exits with 1 where the bytes differ. Needs CuPy.
"""

import sys

import cupy

TEXT = r"""
extern "C" __global__ void copy_part(const float* from, float* to) {
  __shared__ __align__(16) float slot[4];
  const unsigned at = __cvta_generic_to_shared(slot);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, 12;" ::"r"(at), "l"(from) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  for (int e = 0; e < 4; ++e) to[e] = slot[e];
}
"""
FLOAT_BYTES, PART, CHUNK = 4, 3, 4
WANT = [1.0, 2.0, 3.0, 0.0]


def copied(count: int) -> list[float]:
    """The chunk that arrives of an allocation of so many floats, 1, 2, 3 and so on."""
    memory = cupy.cuda.Memory(count * FLOAT_BYTES)  # an allocation of its own, which a pool would round up
    source = cupy.ndarray((count,), cupy.float32, cupy.cuda.MemoryPointer(memory, 0))
    source[...] = cupy.arange(1, count + 1, dtype=cupy.float32)
    target = cupy.full(CHUNK, 7.0, cupy.float32)
    cupy.RawKernel(TEXT, "copy_part")((1,), (1,), (source, target))
    return target.get().tolist()


def main() -> int:
    found = {f"an allocation of {count} floats": copied(count) for count in (CHUNK, PART)}
    for name, values in found.items():
        print(f"12 of 16 bytes, {name}: {values}")
    return 0 if all(values == WANT for values in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
