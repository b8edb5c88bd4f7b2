"""The test kernels at sizes that fill lanes, warps and blocks, miss them by one or pass them by one, simulated.

    python tests/kernels/fills.py [KERNEL…]

sets every size of every kernel to each of `FILLS` in turn, the others as in `cases.toml`, maps it to CUDA and compares
what its threads do with the interpreter. A power of two needs no guard for padding, so other code is generated for it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "properties"))

from differential import copied, random_arguments, reference
from test_kernels import CASES, kernel_of, right

import texpr
from texpr.grammar.index.value import index_value
from texpr.polyhedral.simulate.stage import simulate
from texpr.sampling import cost

FILLS = (31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
MOST_ELEMENTS = 200_000  # of all parameters together: larger ones add time and no new mapping
MOST_INSTANCES = 1 << 19  # of statements, likewise
EXCLUDED = {"E0211", "E0401"}  # by its `where`, or by an attribute that has no room; proofs refuse none of them


def fillings() -> Iterator[tuple[str, str, int]]:
    """(kernel, the size that is filled, its value), every one of them."""
    for name, case in CASES.items():
        for size in case["sizes"][0]:
            for value in FILLS:
                yield name, size, value


def filled(name: str, size: str, value: int) -> str:
    """Run it; why it did not run, where the kernel excludes the value or is too large there."""
    sizes = {**CASES[name]["sizes"][0], size: value}
    kernel = kernel_of(name)
    try:
        core = kernel.core(sizes=sizes)
        made = kernel.compile("cuda:sm_90a", sizes=sizes, stop_after="map")
        bound = made.mapping.program.kernel
        elements, instances = sum(parameter_elements(made)), cost(bound.body, {})
        if elements > MOST_ELEMENTS or instances > MOST_INSTANCES:
            return f"too large for the simulator here: {elements} elements, {instances} instances"
        values = random_arguments(core, sizes, value)
    except texpr.TExprError as refused:
        codes = {d.code for d in refused.diagnostics}
        if codes - EXCLUDED:
            raise
        return f"the kernel excludes this size ({', '.join(sorted(codes))})"
    ref = reference(kernel, sizes, values)
    right(ref, simulate(made.mapping.program, copied(values), seed=value))
    return ""


def parameter_elements(made: texpr.Compiled) -> Iterator[int]:
    for buffer in made.mapping.program.kernel.params:
        count = 1
        for extent in buffer.shape:
            count *= int(index_value(extent, {}))
        yield count


def main() -> None:
    wanted = set(sys.argv[1:])
    ran = 0
    for name, size, value in fillings():
        if wanted and name not in wanted:
            continue
        try:
            ran += not filled(name, size, value)
        except Exception as wrong:
            print(f"{name} {size}={value}: {type(wrong).__name__}: {str(wrong)[:400]}", flush=True)
    print(f"{ran} programs ran")


if __name__ == "__main__":
    main()
