"""`benchmarks/run.py`: which script a suite is, and what is built or run where."""

import subprocess
import sys
from pathlib import Path

import pytest
import run

BUILT, ALONE = run.SUITES["memory"], run.SUITES["cpu"]


@pytest.mark.parametrize("name", run.SUITES)
def test_a_suite_is_a_script_of_its_folder_that_takes_what_it_is_called_with(name: str) -> None:
    suite = run.SUITES[name]
    found = subprocess.run([sys.executable, str(run.HERE / suite.script), "--help"], capture_output=True, text=True)
    assert found.returncode == 0 and ("build" in found.stdout) == suite.is_built, found


@pytest.mark.parametrize(
    ("gpu", "compiler", "there", "expected"),
    [(False, True, False, ["build"]), (True, True, False, ["build", "run"]), (True, True, True, ["run"]),
     (True, False, True, ["run"]), (False, True, True, ["build"])],
)  # fmt: skip
def test_what_is_built_or_run(gpu: bool, compiler: bool, there: bool, expected: list[str], tmp_path: Path) -> None:
    out = tmp_path if there else tmp_path / "none"
    assert run.steps(BUILT, out, gpu=gpu, compiler=compiler) == [[step, str(out)] for step in expected]
    assert run.steps(ALONE, out, gpu=gpu, compiler=compiler) == [[]]


@pytest.mark.parametrize(("gpu", "said"), [(True, "build it where that is"), (False, "neither a GPU")])
def test_what_cannot_be_done_is_said(gpu: bool, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        run.steps(BUILT, tmp_path / "none", gpu=gpu, compiler=False)


def test_arguments_go_to_the_script(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def call(command: list[str]) -> int:
        calls.append(command[1:])
        return 3

    monkeypatch.setattr(run, "has_gpu", lambda: False)
    assert run.main(["--suite", "memory", "there", "--kernel", "softmax"], call) == 3
    assert run.main(["--suite", "cpu", "product"], call) == 3
    own, other = str(run.HERE / "memory_bound.py"), str(run.HERE / "cpu.py")
    assert run.main(["--suite", "cpu", "--help"], call) == 3
    assert calls == [[own, "build", "there", "--kernel", "softmax"], [other, "product"], [other, "--help"]]
    assert run.main([], call) == 0 == run.main(["--help"], call) and len(calls) == 3
    assert "memory-bound kernels beside a device copy" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run.main(["memory"], call)
