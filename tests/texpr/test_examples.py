"""Every example runs, and every `.tex` one is right on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from json_schema import faults

from texpr.frontends import load
from texpr.runtime.tracing.summary import summarise
from texpr.runtime.tracing.trace_file import read_trace
from texpr.trial import run_trial

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SIZES = {
    "matmul": {"M": 33, "N": 20, "K": 17},
    "softmax": {"M": 5, "N": 40},
    "transpose_shared": {"M": 32, "N": 48},
    "histogram": {"N": 100},
    "jacobi_1d": {"N": 30, "T": 3},
    "conv2d_same": {"H": 9, "V": 8},
    "attention_tile": {"M": 4, "N": 9, "D": 16},
}
NEEDS_GXX = {"checked_on_the_cpu"}
RANKS = {"several_ranks": 2}
TASKS = ("blocked_cholesky", "coupled_cluster", "tiled_contraction")  # which run in several ways
BOUNDED = {"tiled_contraction"}  # blocks of which move, in large numbers, while tasks run
SHARED = {"where"}  # what others import
TRACES = json.loads((EXAMPLES.parent / "docs" / "trace.schema.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.tex")), ids=lambda p: p.stem)
def test_example_programs_are_right(path: Path) -> None:
    report = run_trial(load(path).only, "cpu", sizes=SIZES[path.stem], check=True)
    assert report.outputs
    assert report.passed, str(report)


SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if path.stem not in SHARED)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_example_scripts_run(path: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if path.stem in NEEDS_GXX:
        request.getfixturevalue("need_gxx")
    command = [sys.executable, str(path)]
    if path.stem in RANKS:
        request.getfixturevalue("need_mpi")
        command = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(RANKS[path.stem]), *command]
    trace = tmp_path / "trace.json"
    if path.stem in TASKS:
        command += ["--trace", str(trace)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if path.stem in TASKS:
        assert faults(json.loads(trace.read_text(encoding="utf-8")), TRACES, TRACES) == []
        if path.stem in BOUNDED:
            overlap = summarise(read_trace(trace)).overlap
            assert overlap is not None and overlap > 0


@pytest.mark.mpi
@pytest.mark.parametrize("name", TASKS)
def test_examples_of_tasks_run_on_ranks(name: str) -> None:
    launcher = [str(Path(sys.executable).parent / "mpiexec"), "-n", "2"]
    command = [*launcher, sys.executable, str(EXAMPLES / f"{name}.py"), "--mpi"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0 and done.stdout.count("greatest difference from NumPy") == 2, done.stderr
