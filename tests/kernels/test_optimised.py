"""A sample of the kernels in a process whose CPU code is optimised as it is for users: tests beside this one build most
of theirs without (`_plain_builds`). Run as a script, it takes names of kernels, or all of them."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
FOLDERS = [HERE, HERE.parent / "properties", HERE.parent / "polyhedral"]
WITH_TYPES = ["accurate_functions", "fp8_matmul", "narrow_reductions", "integer_ops", "atomics_of_every_type"]


def main(names: list[str]) -> None:
    from test_kernels import CASES, compiled_variant, copied, reference_of, right

    for name in names or CASES:
        ref = reference_of(name, 0)
        values = copied(ref.values)
        compiled_variant(name, 0, (), "cpu")(**values)
        right(ref, values)
        print(name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", [0, 16])
def test_optimised_code_of_the_cpu_computes_what_the_interpreter_says(first: int) -> None:
    from test_kernels import CASES

    names = sorted({*(WITH_TYPES if first == 0 else ()), *list(CASES)[first::32]})
    command = [sys.executable, __file__, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, names), done.stderr


if __name__ == "__main__":
    sys.path[:0] = map(str, FOLDERS)
    main(sys.argv[1:])
