"""The benchmarks by suite, and what they are.

    python benchmarks/run.py                                  lists the suites
    python benchmarks/run.py --suite memory [DIR] [ARGUMENT…]

On a GPU's machine a suite runs from DIR (`benchmarks/built/SUITE` where none is given), and is built there before where
the compiler is installed and DIR is not there; where there is no GPU it is built alone, to be carried to one. What is
there is measured as it was built: remove it for another compiler. A suite without artifacts runs where it is. Arguments
go to its script (`--suite memory --help` says what there are), which prints a table and writes JSON.
"""

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


class Suite(NamedTuple):
    """A script of this folder, whether it has artifacts to build, and what it measures."""

    script: str
    is_built: bool
    what: str


SUITES = {
    "memory": Suite("memory_bound.py", True, "memory-bound kernels beside a device copy, torch, Triton and QuACK"),
    "products": Suite("contractions.py", True, "products of matrices beside cuBLAS and its peers"),
    "convolutions": Suite("convolutions.py", True, "convolutions beside cuDNN"),
    "candidates": Suite("candidates.py", True, "predicted and measured times of candidates"),
    "sizes": Suite("dynamic_sizes.py", True, "one artifact of free sizes beside one for each size"),
    "launches": Suite("launch_cost.py", True, "host time of a launch beside CuPy and torch"),
    "compile": Suite("compile_time.py", False, "from text to plan and to cubin, beside Triton"),
    "cpu": Suite("cpu.py", False, "target cpu beside Numba and NumPy"),
    "cpu-memory": Suite("cpu_memory.py", False, "memory-bound kernels on target cpu beside Numba"),
}


def has_gpu() -> bool:
    """Whether PyTorch is there and finds a GPU, which all that runs on one needs."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def has_compiler() -> bool:
    return importlib.util.find_spec("islpy") is not None


def steps(suite: Suite, out: Path, *, gpu: bool, compiler: bool) -> list[list[str]]:
    """The arguments of the script's calls. Raises ValueError where nothing can be done here."""
    if not suite.is_built:
        return [[]]
    builds = compiler and not (gpu and out.exists())
    if gpu and not builds and not out.exists():
        raise ValueError(f"{out} is not there, and neither is the compiler (islpy): build it where that is")
    if not gpu and not compiler:
        raise ValueError("neither a GPU (by PyTorch) nor the compiler (islpy) is here")
    return [*([["build", str(out)]] if builds else []), *([["run", str(out)]] if gpu else [])]


def main(arguments: Sequence[str] | None = None, call: Callable[[list[str]], int] = subprocess.call) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
    )
    parser.add_argument("--suite", choices=SUITES)
    options, rest = parser.parse_known_args(arguments)
    asks = not {"-h", "--help"}.isdisjoint(rest)
    if options.suite is not None and asks:
        return call([sys.executable, str(HERE / SUITES[options.suite].script), "--help"])
    if options.suite is None:
        if asks:
            parser.print_help()
            return 0
        if rest:
            parser.error(f"--suite says of which suite {' '.join(rest)} is")
        print("\n".join(f"{name:14}{suite.what}" for name, suite in SUITES.items()))
        return 0
    suite = SUITES[options.suite]
    own = bool(rest) and suite.is_built and not rest[0].startswith("-")
    out = Path(rest[0]) if own else HERE / "built" / options.suite
    try:
        wanted = steps(suite, out, gpu=suite.is_built and has_gpu(), compiler=has_compiler())
    except ValueError as wrong:
        print(f"run.py: {wrong}", file=sys.stderr)
        return 2
    if [step[0] for step in wanted if step] == ["run"]:
        print(f"{out} is there, and measured as it was built")
    for step in wanted:
        print(f"{suite.script} {' '.join(step)}".rstrip(), flush=True)
        status = call([sys.executable, str(HERE / suite.script), *step, *rest[own:]])
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
