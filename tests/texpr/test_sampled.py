"""Which cases of tests wait for `--long`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = "tests/polyhedral/test_ringed_f8.py"
TEST = f"{FILE}::test_ragged_products_of_both_kinds_are_right_in_the_simulator"


def collected(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "--co", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("tests/")]


def test_one_case_in_four_of_a_sampled_test_is_run_without_long() -> None:
    every = collected(FILE, "--long")
    cases = [name for name in every if name.startswith(f"{TEST}[")]
    found = collected(FILE)
    assert set(found) < set(every)
    assert set(cases) & set(found) == set(cases[::4])
    assert {name.partition("[")[0] for name in found} == {name.partition("[")[0] for name in every}
    assert collected(cases[1]) == [cases[1]]  # one that is named
