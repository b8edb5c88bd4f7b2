"""Fixtures for all tests: golden files with an update flag."""

import fcntl
import gc
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from hypothesis import settings

# In CI the examples are the same in each run: a find of a random search must not fail an unrelated change. `dev` has
# fewer, for the tests around a change while one works on it. No test depends on how fast the machine is.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("local", deadline=None)
settings.register_profile("dev", deadline=None, max_examples=30)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "local"))

# Twelve thousand tests stay alive to the end: the collector went through them again and again, for a fifth of all work.
gc.set_threshold(100_000)


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `--long`, only one in n cases of a `sampled(n)` test, the first of them among these, and none that is
    `long`; a case that is named is run."""
    if config.getoption("--long") or any("::" in argument for argument in config.args):
        return
    numbers = Counter[str]()
    left: set[str] = set()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        name, _, _ = item.nodeid.partition("[")
        if item.get_closest_marker("long") or (sampled and numbers[name] % sampled.args[0]):
            left.add(item.nodeid)
        numbers[name] += 1
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


GOLDEN = Path(__file__).parent / "golden"


class Golden(Protocol):
    def __call__(self, name: str, text: str) -> None: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")
    parser.addoption("--long", action="store_true", help="all cases of every test: some twenty minutes on two cores")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden("stage/case.txt", text)` compares with the committed file; a missing one fails."""
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {name}: did you forget --update-golden?")
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; --update-golden rewrites it"

    return compare


BUILDS = SimpleNamespace(threads=False)  # whether Numba builds threads, which is most of its work


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba builds loops that threads share, as for users; else one runs all parts, one after another."""
    monkeypatch.setattr(BUILDS, "threads", True)


@pytest.fixture
def every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches on the CPU are run in parts, however little there is to do."""
    monkeypatch.setattr("texpr.codegen.cpu.launch.SERIAL_OPERATIONS", 0)


@pytest.fixture
def every_core(threads: None, every_part: None) -> None:
    """The same, and all cores run them."""


@cache
def _usual() -> tuple[Callable[[str, dict[str, Any]], None], tuple[str, ...]]:
    """How a text is given to Numba, and the flags of g++."""
    from texpr.codegen import toolchain
    from texpr.codegen.cpu import build

    return build._execute, toolchain.GXX_FLAGS


def _set_levels(patch: pytest.MonkeyPatch, numba_level: int, gxx_level: str) -> None:
    """The levels of optimisation from now on. LLVM's own machine code has that of the first build of a process."""
    execute, flags = _usual()

    def execute_at(source: str, scope: dict[str, Any]) -> None:
        from numba import config

        config.OPT = type(config.OPT)(numba_level)
        execute(source if BUILDS.threads else source.replace(", parallel=True)", ")"), scope)

    patch.setattr("texpr.codegen.cpu.build._execute", execute_at)
    patch.setattr("texpr.codegen.toolchain.GXX_FLAGS", tuple(gxx_level if f == "-O1" else f for f in flags))


@pytest.fixture(scope="session", autouse=True)
def _builds_are_made() -> Iterator[None]:
    """No build comes from the cache, whatever a test has put in the place of a part of the compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("texpr.kept.cache_folder", lambda: None)
        yield


def _includes(*names: str) -> str:
    return "".join(f'#include "texpr/{name}"\n' for name in names)


HOST_HEADERS = _includes("host/host.hpp", "kernel.cuh", "wanted.cuh", "folds.cuh")  # what most texts begin with
TOGETHER = [
    "cluster",
    "contract",
    "dependent",
    "flags",
    "group",
    "look_back",
    "mbarrier",
    "mma",
    "parts",
    "pipe",
    "ring",
    "slots",
    "tma",
    "wgmma",
]
ALL_HEADERS = HOST_HEADERS + _includes(*(f"{name}.cuh" for name in TOGETHER))
# The functions of the checker that are no templates: elsewhere in each text, and all of them in one object.
ELSEWHERE, HERE = (f"#define TX_ONCE __attribute__(({how})) inline\n" for how in ("gnu_inline", "used"))


class HostHeaders:
    """The host headers, read by g++ once for each level of optimisation and not for each text, and what is compiled of
    the checker for blocks that run together, linked with the texts that have such: two thirds of the work. g++ takes
    `host.hpp.gch/*` in place of `host.hpp` where the flags are the same, and the header where they are not. The workers
    of a run share what the first has made in `folder`."""

    def __init__(self, folder: Path, gxx: str) -> None:
        self.folder, self.gxx = folder, gxx

    def _made(self, name: str, level: str, text: str, result: str, *how: str) -> Path:
        """`folder/name/result`, made of `text` by whoever comes first."""
        from texpr.codegen import toolchain

        home = self.folder / name
        path = home / result
        path.parent.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                flags = [level if f.startswith("-O") else f for f in toolchain.GXX_FLAGS if f != "-shared"]
                (home / f"of{level}.txt").write_text(text)
                command = [self.gxx, *flags, "-Werror", "-I", str(toolchain.INCLUDE), *how, f"of{level}.txt"]
                subprocess.run([*command, "-o", f"{result}.part"], cwd=home, check=True)
                path.with_name(f"{path.name}.part").rename(path)
        return path

    def compile(self, source: str, folder: Path, *, werror: bool = False) -> Path:
        """`compile_host`."""
        from texpr.codegen import toolchain

        together = "TX_EXPORT_AS(" in source
        level = next(flag for flag in toolchain.GXX_FLAGS if flag.startswith("-O"))
        name, text = ("all", ELSEWHERE + ALL_HEADERS) if together else ("usual", HOST_HEADERS)
        self._made(name, level, text, f"texpr/host/host.hpp.gch/{level}", "-x", "c++-header")
        linked: list[Path] = []
        if together:
            linked.append(self._made("object", level, HERE + ALL_HEADERS, f"host{level}.o", "-c", "-x", "c++"))
        include = (self.folder / name, toolchain.INCLUDE)
        return toolchain.compile_host(source, folder, include, linked, werror=werror)


@pytest.fixture(scope="session", autouse=True)
def _host_headers_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from texpr.codegen import host_run, toolchain

    found = toolchain.find_gxx()
    if found is None:
        yield
        return
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "host_headers"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_run, "compile_host", HostHeaders(folder, found.path).compile)
        yield


@pytest.fixture(scope="session", autouse=True)
def _plain_builds() -> Iterator[None]:
    """What Numba and g++ build is not optimised, which is half of their work, and has no threads, but where a test asks
    for it; what other processes build is, as for users (`tests/kernels/test_optimised.py`)."""
    with pytest.MonkeyPatch.context() as patch:
        _set_levels(patch, 0, "-O0")
        yield


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passes of LLVM run, and g++ builds, as for users."""
    _set_levels(monkeypatch, 3, "-O1")


@pytest.fixture(scope="module")
def optimised_file() -> Iterator[None]:
    """The same for all tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        _set_levels(patch, 3, "-O1")
        yield


def _need(tool: str, found: object) -> None:
    """Skip without the tool; with CI_STRICT=1 its absence is a failure."""
    if found is not None:
        return
    if os.environ.get("CI_STRICT") == "1":
        pytest.fail(f"CI_STRICT=1 and {tool} was not found")
    pytest.skip(f"{tool} was not found")


@pytest.fixture(scope="session")
def need_nvcc() -> None:
    """For tests marked `nvcc`."""
    from texpr.codegen.toolchain import find_nvcc

    _need("nvcc", find_nvcc())


@pytest.fixture(scope="session")
def need_nvdisasm() -> None:
    """For tests marked `nvdisasm`."""
    from texpr.codegen.toolchain import find_nvdisasm

    _need("nvdisasm", find_nvdisasm())


@pytest.fixture(scope="session")
def need_nvrtc() -> None:
    """For tests marked `nvrtc`."""
    from texpr.codegen.toolchain import find_nvrtc

    _need("NVRTC", find_nvrtc())


@pytest.fixture(scope="session")
def need_gxx() -> None:
    """For tests marked `gxx`."""
    from texpr.codegen.toolchain import find_gxx

    _need("g++", find_gxx())


@pytest.fixture(scope="session")
def need_gcc() -> None:
    """For tests that build C."""
    _need("gcc", shutil.which("gcc"))


@pytest.fixture(scope="session")
def need_mpi() -> None:
    """For tests marked `mpi`, which start ranks."""
    launcher = Path(sys.executable).parent / "mpiexec"
    _need("mpi4py with its mpiexec", find_spec("mpi4py") if launcher.exists() else None)


@pytest.fixture(autouse=True)
def _tools_of_markers(request: pytest.FixtureRequest) -> None:
    """The markers of tools ask for these by themselves."""
    for marker in ("nvcc", "nvdisasm", "nvrtc", "gxx", "mpi"):
        if request.node.get_closest_marker(marker) is not None:
            request.getfixturevalue(f"need_{marker}")
