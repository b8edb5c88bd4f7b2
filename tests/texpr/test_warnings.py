"""Warnings of the compiler reach people: as Python warnings where Python compiles, as text and JSON from the shell."""

import inspect
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import texpr

PROGRAM = "kernel eighths(inout A: f32[N], B: f32[N]) {\n    par N / 8 i {\n        B[i] = A[i]\n    }\n}\n"
CODES = ["W0302", "W0301"]  # 7 / 8 floors, and A is only read


@texpr.kernel
def eighths(A: texpr.inout(texpr.f32["N"]), B: texpr.f32["N"]):
    for i in texpr.par("N / 8"):
        B[i] = A[i]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "eighths.tex"
    path.write_text(PROGRAM)
    return path


def codes(found: list[warnings.WarningMessage]) -> list[str]:
    return [w.message.diagnostic.code for w in found if isinstance(w.message, texpr.TExprWarning)]


@pytest.mark.parametrize("kernel", [texpr.parse(PROGRAM).only, eighths], ids=["text", "decorated"])
def test_compiling_warns_at_the_line_of_the_caller(kernel: texpr.Kernel) -> None:
    with pytest.warns(texpr.TExprWarning, match="7 / 8 floors") as found:
        line = inspect.currentframe().f_lineno + 1
        compiled = kernel.compile(N=7)
    assert codes(found.list) == [w.code for w in compiled.warnings] == CODES
    assert {(w.filename, w.lineno) for w in found.list} == {(__file__, line)}


def test_a_plain_call_warns_once_for_what_it_compiles() -> None:
    kernel = texpr.parse(PROGRAM).only
    a, b = np.zeros(7, np.float32), np.zeros(7, np.float32)
    with pytest.warns(texpr.TExprWarning) as found:
        line = inspect.currentframe().f_lineno + 1
        kernel(a, b)
        kernel(a, b)
    assert codes(found.list) == CODES
    assert {(w.filename, w.lineno) for w in found.list} == {(__file__, line)}


def test_a_right_program_and_another_kernel_of_the_file_do_not_warn() -> None:
    right = "kernel right(A: f32[N]) { par N i { A[i] = 1.0 } }\nsize S = 7\n"
    module = texpr.parse(right + "kernel floors(A: f32[S]) { par S / 2 i { A[i] = 1.0 } }")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert module.right.compile().warnings == ()
    with pytest.warns(texpr.TExprWarning, match="7 / 2 floors"):
        module.floors.compile()


@pytest.mark.parametrize("name", ["check", "map", "graph", "build", "run"])
def test_every_command_that_compiles_prints_the_warnings(command, name: str, program: Path, tmp_path: Path) -> None:
    output = ("-o", tmp_path / "out", "--source-only") if name == "build" else ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a Python warning as well would be an error
        status, out, said = command(name, program, "-D", "N=7", *output)
    assert status == 0, said
    assert [said.count(f"warning[{code}]") for code in CODES] == [1, 1]
    assert "warning" not in out


def test_a_run_that_ends_in_an_error_has_said_what_it_was_warned_of(command, program: Path, tmp_path: Path) -> None:
    program.write_text(PROGRAM.replace("(inout", "(I: i32[N], inout").replace("A[i]", "A[I[i]]"))
    np.savez(tmp_path / "in.npz", I=np.full(9, 99, np.int32))
    status, out, said = command("run", program, "-D", "N=9", "--input", tmp_path / "in.npz")
    assert (status, out) == (1, "")
    assert said.index("warning[W0302]") < said.index("error[E0604]")


@pytest.mark.parametrize(("name", "field"), [("check", "diagnostics"), ("map", "warnings"), ("run", "warnings")])
def test_json_has_the_warnings_as_a_field(command, name: str, field: str, program: Path) -> None:
    status, out, said = command(name, program, "-D", "N=7", "--json")
    assert (status, said) == (0, "")
    assert [d["code"] for d in json.loads(out)[field]] == CODES


@pytest.mark.parametrize("name", ["map", "graph", "build"])
def test_sizes_that_are_left_dynamic_are_said(command, name: str, program: Path, tmp_path: Path) -> None:
    output = ("-o", tmp_path / "out", "--source-only") if name == "build" else ()
    assert "note: size N is dynamic" in command(name, program, *output)[2]
    assert "dynamic" not in command(name, program, "-D", "N=7", *output)[2]


def test_sizes_that_are_left_dynamic_are_said_in_python_and_in_json(command, program: Path, tmp_path: Path) -> None:
    kernel = texpr.load(program).only
    assert repr(kernel.compile()) == "<texpr.Compiled eighths for cpu: N dynamic>"
    assert repr(kernel.compile(N=7)) == "<texpr.Compiled eighths for cpu: N=7>"
    assert kernel.compile(stop_after="check").dynamic == ("N",)
    assert json.loads(command("map", program, "--json")[1])["dynamic"] == ["N"]
    np.savez(tmp_path / "in.npz", A=np.zeros(8, np.float32), B=np.zeros(8, np.float32))
    assert "with N=8 (dynamic)" in command("run", program, "--input", tmp_path / "in.npz")[1]
