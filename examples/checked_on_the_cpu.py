"""The emitted CUDA text on the CPU, threads as fibers: races, barriers and bounds are checked (needs g++)."""

from pathlib import Path

import numpy as np

import texpr


def main() -> None:
    kernel = texpr.load(Path(__file__).with_name("transpose_shared.tex")).only
    compiled = kernel.compile("cuda-host:sm_90a", M=32, N=48)
    a = np.arange(32 * 48, dtype=np.float32).reshape(32, 48)
    b = np.empty((48, 32), np.float32)
    compiled(a, b)
    print("transposed:", bool(np.array_equal(b, a.T)))
    print(compiled.source)


if __name__ == "__main__":
    main()
