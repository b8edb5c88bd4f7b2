"""Files and flags that are not what a command wants: an exit code of 1 or 2 and a sentence, never a wait."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADD = "kernel add(A: f32[N], B: f32[N]) { par N i { B[i] = A[i] } }\n"


def texpr(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "texpr", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe.tex"
    os.mkfifo(path)
    return path


def test_a_pipe_or_a_device_is_not_waited_for(pipe: Path, tmp_path: Path) -> None:
    for path in (pipe, Path("/dev/zero"), tmp_path):
        for command in (["check"], ["fmt"], ["map"]):
            done = texpr(*command, path)
            assert (done.returncode, "E0606" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("flags", "code"),
    [(["-D", "N=--5"], 2), (["-D", "N=1e3"], 2), (["-D", "N=-5"], 1), (["-D", "N=8", "--seed", "-1"], 2)],
)
def test_a_wrong_flag_is_refused(tmp_path: Path, flags: list[str], code: int) -> None:
    file = tmp_path / "add.tex"
    file.write_text(ADD)
    done = texpr("run", file, *flags)
    assert done.returncode == code
    assert "internal error" not in done.stderr


def test_inputs_from_a_pipe_are_refused(tmp_path: Path, pipe: Path) -> None:
    file = tmp_path / "add.tex"
    file.write_text(ADD)
    done = texpr("run", file, "-D", "N=8", "--input", pipe)
    assert (done.returncode, "E0606" in done.stderr) == (1, True)
