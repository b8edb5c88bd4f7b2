"""Compilers that are there and do not work: an error of the environment that says what to do, never our defect."""

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from texpr.cli import DEFECT, ENVIRONMENT, guarded
from texpr.codegen import toolchain
from texpr.grammar.diagnostics import Diagnostic, TExprError, fail

KERNEL = 'extern "C" __global__ void k() {}\n'
NVCC_VERSION = 'case "$1" in --version) echo "Cuda compilation tools, release 13.0"; exit 0;; esac\n'
BROKEN = {
    "exits 1": ("exit 1", "exit code 1"),
    "says nothing": ("exit 0", "names no version"),
    "prints garbage": (r"printf '\377\001\033[2J'; exit 0", "names no version"),
    "is no program": ("(((", "exit code 2"),
    "hangs": ("sleep 60", "took longer"),
    "fails later": (f"{NVCC_VERSION}exit 7", "exit code 7"),
    "writes nothing": (NVCC_VERSION, "wrote nothing"),
    "hangs later": (f"{NVCC_VERSION}sleep 60", "took longer"),
    "is killed": (f"{NVCC_VERSION}kill -9 $$", "exit code -9"),
}


@pytest.fixture(autouse=True)
def quick_and_forgetful(monkeypatch: pytest.MonkeyPatch):
    """No test waits for a compiler that hangs, and none sees the compilers of another test."""
    monkeypatch.delenv("CUDA_HOME", raising=False)
    for find in (toolchain.find_nvcc, toolchain.find_gxx):
        find.cache_clear()
    yield
    for find in (toolchain.find_nvcc, toolchain.find_gxx):
        find.cache_clear()


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def refusal(action) -> Diagnostic:
    with pytest.raises(TExprError) as caught:
        action()
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_nvcc_is_an_error_of_the_environment(name, monkeypatch, tmp_path):
    script, why = BROKEN[name]
    if "hangs" in name:
        monkeypatch.setattr(toolchain, "TIMEOUT_S", 0.3)
        monkeypatch.setattr(toolchain, "PROBE_TIMEOUT_S", 0.3)
    program(tmp_path / "nvcc", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    diagnostic = refusal(lambda: toolchain.compile_cubin(KERNEL, "sm_90a", by="nvcc"))
    assert diagnostic.code == "E0503", diagnostic
    assert f"{tmp_path}/nvcc does not work" in diagnostic.message and why in diagnostic.message
    assert "texpr doctor" in diagnostic.help
    assert all(text.isprintable() for text in diagnostic.notes)
    assert toolchain.describe_nvcc()


@pytest.mark.parametrize(("script", "why"), [("exit 1", "exit code 1"), ("echo g++ 12; test $# = 1", "exit code 1")])
def test_a_broken_gxx_is_an_error_of_the_environment(script, why, monkeypatch, tmp_path):
    program(tmp_path / "g++", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    diagnostic = refusal(lambda: toolchain.compile_host(KERNEL, tmp_path))
    assert diagnostic.code == "E0503" and why in diagnostic.message and "apt install g++" in diagnostic.help


def test_a_compiler_that_cannot_be_executed_is_passed_over_or_named(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").mkdir()  # a folder may be entered, which looks like the right to execute it
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    diagnostic = refusal(lambda: toolchain.compile_cubin(KERNEL, "sm_90a", by="nvcc"))
    assert diagnostic.code == "E0503" and "nvcc does not work" in diagnostic.message


@pytest.mark.nvcc
def test_an_nvcc_without_a_host_compiler_says_that_it_needs_one(monkeypatch, tmp_path):
    real = toolchain.find_nvcc()
    assert real is not None
    program(tmp_path / "nvcc", f'exec "{real.path}" "$@"')
    toolchain.find_nvcc.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    diagnostic = refusal(lambda: toolchain.compile_cubin(KERNEL, "sm_90a", by="nvcc"))
    assert diagnostic.code == "E0503" and "g++ on PATH" in diagnostic.help
    assert any("gcc" in note or "host compiler" in note for note in diagnostic.notes)


@pytest.mark.nvcc
def test_an_architecture_that_nvcc_does_not_know_is_not_our_text_s_fault():
    diagnostic = refusal(lambda: toolchain.compile_cubin(KERNEL, "sm_999", by="nvcc"))
    assert diagnostic.code == "E0503" and "sm_999" in diagnostic.help


def test_no_place_for_temporary_files_is_an_error_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(toolchain.tempfile, "tempdir", str(tmp_path / "none"))

    def enter():
        with toolchain.scratch_folder():
            pytest.fail("there is no such folder")

    diagnostic = refusal(enter)
    assert diagnostic.code == "E0503" and "TMPDIR" in diagnostic.help


@pytest.mark.gxx
def test_a_text_that_a_working_compiler_refuses_is_our_defect(tmp_path):
    diagnostic = refusal(lambda: toolchain.compile_host("int x = nothing;\n", tmp_path))
    assert diagnostic.code == "E0504" and "report" in diagnostic.help


@pytest.mark.parametrize(("code", "exit_code"), [("E0503", ENVIRONMENT), ("E0504", DEFECT), ("E0301", 1)])
def test_exit_codes_tell_the_environment_from_a_defect(code, exit_code, capsys):
    def run() -> None:
        raise fail(code, "why")

    assert guarded(run) == exit_code
    assert code in capsys.readouterr().err


def test_an_interrupted_compiler_ends(monkeypatch, tmp_path):
    def interrupted(process, timeout):
        found.append(process)
        raise KeyboardInterrupt

    found: list[subprocess.Popen[str]] = []
    program(tmp_path / "nvcc", "sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        toolchain.find_nvcc()
    assert found[0].wait(50) == -signal.SIGKILL
