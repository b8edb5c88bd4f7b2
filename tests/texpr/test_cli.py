"""The command line: what it prints and its exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
HALVE = "kernel halve(A: f32[N], inout C: f32[N]) {\n    par N i {\n        C[i / 2] = A[i]\n    }\n}\n"
ADD = "kernel add(A: f32[N], B: f32[N], C: f32[N]) {\n    par N i {\n        C[i] = A[i] + B[i]\n    }\n}\n"


Texpr = Callable[..., subprocess.CompletedProcess[str]]


def process(*args: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "texpr", *map(str, args)]
    env = {**os.environ, **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=False)


@pytest.fixture
def texpr(command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> Texpr:
    """The same in this process."""
    monkeypatch.chdir(ROOT)
    return lambda *args: subprocess.CompletedProcess(args, *command(*args))


@pytest.fixture
def halve(tmp_path: Path) -> Path:
    path = tmp_path / "halve.tex"
    path.write_text(HALVE)
    return path


@pytest.fixture
def add(tmp_path: Path) -> Path:
    path = tmp_path / "add.tex"
    path.write_text(ADD)
    return path


def test_check_accepts_a_right_program(add: Path, texpr: Texpr) -> None:
    done = texpr("check", add)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no races" in done.stdout


def test_check_refuses_a_race_with_its_witness(halve: Path, texpr: Texpr) -> None:
    done = texpr("check", halve, "-D", "N=8")
    assert done.returncode == 1
    assert "error[E0301]" in done.stderr
    assert "iterations i = 0 and i = 1 both write C[0]" in done.stderr


def test_check_json_has_code_place_and_witness(halve: Path, texpr: Texpr) -> None:
    done = texpr("check", halve, "-D", "N=8", "--json")
    found = json.loads(done.stdout)["diagnostics"][0]
    assert done.returncode == 1
    assert (found["code"], found["line"], found["column"]) == ("E0301", 3, 9)
    assert found["witness"]["first"] == {"i": 0}
    assert found["witness"]["second"] == {"i": 1}


def test_more_errors_than_are_told_are_errors_of_the_program(tmp_path: Path, command) -> None:
    path = tmp_path / "many.tex"
    path.write_text(ADD.replace(" {", f" where {', '.join(f'x{n} > 0' for n in range(101))} {{", 1))
    code, _, said = command("check", path)
    assert (code, said.count("error[E0201]"), said.count("mend them first")) == (1, 100, 1)


def test_fmt_formats_in_place_and_keeps_comments(tmp_path: Path, texpr: Texpr) -> None:
    path = tmp_path / "ugly.tex"
    path.write_text("kernel f(A:f32[N]) { -- why\npar N i{A[i]=1.0*(2.0)}}")
    assert texpr("fmt", "--check", path).returncode == 1
    assert texpr("fmt", path).returncode == 0
    assert "-- why" in path.read_text()
    assert texpr("fmt", "--check", path).returncode == 0


def test_map_shows_the_mapping(add: Path, texpr: Texpr) -> None:
    done = texpr("map", add, "-D", "N=1000")
    assert done.returncode == 0, done.stderr
    assert "lane" in done.stdout
    data = json.loads(texpr("map", add, "--json").stdout)
    assert data["schema"] == 6


def test_graph_shows_where_buffers_lie(add: Path, texpr: Texpr) -> None:
    done = texpr("graph", add)
    assert done.returncode == 0, done.stderr
    assert "buffers\n" in done.stdout and "strides (1)" in done.stdout


def test_build_writes_an_artifact_and_nothing_when_wrong(add: Path, halve: Path, tmp_path: Path, texpr: Texpr) -> None:
    done = texpr("build", add, "-o", tmp_path / "out", "--source-only")
    assert done.returncode == 0, done.stderr
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"add.cu", "add.h", "manifest.json", "include"} <= names
    assert texpr("build", halve, "-o", tmp_path / "bad", "-D", "N=8").returncode == 1
    assert not (tmp_path / "bad").exists()


def test_run_checks_against_the_interpreter(add: Path, tmp_path: Path, texpr: Texpr) -> None:
    done = texpr("run", add, "-D", "N=100", "--check", "--output", tmp_path / "o.npz")
    assert done.returncode == 0, done.stderr
    assert "greatest error" in done.stdout
    with np.load(tmp_path / "o.npz") as file:
        assert np.allclose(file["C"], file["A"] + file["B"])


def test_run_takes_inputs(add: Path, tmp_path: Path, texpr: Texpr) -> None:
    a, b = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    np.savez(tmp_path / "i.npz", A=a, B=b)
    done = texpr("run", add, "--input", tmp_path / "i.npz", "--output", tmp_path / "o.npz", "--json")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "o.npz") as file:
        assert np.array_equal(file["C"], a + b)


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("run", "ADD"), 1),
        (("run", "ADD", "-D", "N"), 2),
        (("run", "ADD", "-D", "N=abc"), 2),
        (("run", "ADD", "-D", "N=4", "-D", "N=5"), 2),
        (("run", "ADD", "-D", "Q=4"), 1),
        (("run", "ADD", "-D", "N=-4"), 1),
        (("run", "ADD", "-D", "N=8", "--target", "tpu"), 1),
        (("run", "ADD", "--input", "nowhere.npz"), 1),
        (("run", "ADD", "-D", "N=99999999999999999"), 1),
        (("check", "nowhere.tex"), 1),
        (("check", "."), 1),
        (("explain", "E9999"), 2),
        (("nonsense",), 2),
        ((), 2),
        (("cache",), 2),
        (("cache", "nonsense"), 2),
        (("check",), 2),
        (("check", "ADD", "ADD"), 2),
        (("check", "ADD", "--jso"), 2),
        (("run", "ADD", "--seed", "-1"), 2),
        (("build", "ADD"), 2),
        (("map", "ADD", "--kernel", "other"), 1),
    ],
)
def test_wrong_use_is_an_exit_code_without_a_traceback(
    add: Path, args: tuple[str, ...], code: int, texpr: Texpr
) -> None:
    done = texpr(*(str(add) if a == "ADD" else a for a in args))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize(("args", "code"), [(("version",), 0), (("check", "nowhere.tex"), 1), (("nonsense",), 2)])
def test_a_process_ends_with_the_code_of_its_command(args: tuple[str, ...], code: int) -> None:
    done = process(*args)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_explain_and_version_and_doctor(texpr: Texpr) -> None:
    assert "race" in texpr("explain", "E0301").stdout
    assert texpr("version").stdout.strip() == texpr("--version").stdout.strip() == "0.1.0"
    assert "nvcc" in texpr("doctor").stdout


def test_help_lists_commands_and_options(texpr: Texpr) -> None:
    listed = texpr("--help")
    assert (listed.returncode, listed.stderr) == (0, "") and "  cache list   List the entries" in listed.stdout
    assert texpr().stderr == listed.stdout
    assert "  run " not in texpr("cache", "--help").stdout
    shown = texpr("run", "--help")
    assert shown.returncode == 0 and "--seed NUMBER" in shown.stdout and "--check-full" not in shown.stdout


def test_a_command_that_is_not_there_is_answered_with_the_nearest_one(texpr: Texpr) -> None:
    assert "did you mean `build`?" in texpr("biuld").stderr
    assert "did you mean `clear`?" in texpr("cache", "claer").stderr


def test_options_stand_before_between_and_behind_arguments(add: Path, tmp_path: Path, texpr: Texpr) -> None:
    more = tmp_path / "more.tex"
    more.write_text(ADD.replace("    ", " "))
    for arguments in (("--check", add, more), (add, "--check", more), (add, more, "--check")):
        assert texpr("fmt", *arguments).stdout == f"would format {more}\n"
    assert texpr("map", "-DN=8", "--target=cpu", add).returncode == 0


def test_a_command_that_needs_no_library_loads_none() -> None:
    ours = "import sys, texpr.cli; texpr.cli.run_command(['version'])"
    code = (
        f"{ours}; print(sorted({{n.partition('.')[0] for n in sys.modules}} - sys.stdlib_module_names - {{'texpr'}}))"
    )
    plain = "import sys; print(sorted({n.partition('.')[0] for n in sys.modules} - sys.stdlib_module_names))"
    said, bare = (
        subprocess.run([sys.executable, "-c", each], capture_output=True, text=True, cwd=ROOT, check=True).stdout
        for each in (code, plain)
    )
    assert said == f"0.1.0\n{bare}"


def test_an_unknown_environment_variable_warns_with_the_nearest_name() -> None:
    done = process("version", environment={"TEXPR_CACHE_DIRR": "x"})
    assert "did you mean TEXPR_CACHE_DIR?" in done.stderr


def test_binary_files_are_refused_with_a_diagnostic(tmp_path: Path, texpr: Texpr) -> None:
    path = tmp_path / "noise.tex"
    path.write_bytes(bytes(range(256)))
    done = texpr("check", path)
    assert done.returncode == 1
    assert "error[E0104]" in done.stderr


def test_a_text_loads_no_reader_of_python(add: Path) -> None:
    code = (
        f"import sys, texpr.cli; texpr.cli.run_command(['check', {str(add)!r}]);"
        "print([name for name in sys.modules if name.startswith('texpr.grammar.python')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
