"""How long it takes from a kernel's text to a Hopper cubin, beside Triton in the same rounds. No GPU is needed.

    python benchmarks/compile_cubins.py [--repeat 5] [--peer PYTHON] [--case softmax]

new process     interpreter, imports, text to cubin, with nothing kept
warm            text to cubin in a process that has compiled the kernel for another size, with nothing kept
cached process  the same command as the new process's, with what that one has kept

Seconds of wall time / of the processor (user + system, children included), each the best of the rounds. PYTHON is the
interpreter of an environment with triton==3.6.0 (`pip install triton==3.6.0` into one of its own); without it a line
says that the peer is absent. Behind the times stands what was aimed at, in seconds of the processor.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / "benchmarks" / "peers" / "triton_compile.py"
WAYS = ("new process", "warm", "cached process")
AIMS = {"new process": 0.6, "warm": 0.2, "cached process": 0.25}  # of the seed's matmul
PRODUCT = """kernel matmul(A: bf16[M, K], B: bf16[K, N], C: bf16[M, N]) {
    par M i, N j { C[i, j] = sum K k { A[i, k] * B[k, j] } }
}"""


@dataclass(frozen=True, slots=True)
class Case:
    """A program, by file or text, its sizes, and those of the process that is warm."""

    program: str
    sizes: Mapping[str, int]
    others: Mapping[str, int]


def _cube(size: int) -> dict[str, int]:
    return {"M": size, "N": size, "K": size}


CASES = {
    "matmul f32": Case("tests/kernels/matmul_seed.tex", _cube(4096), _cube(2048)),
    "matmul bf16": Case(PRODUCT, _cube(4096), _cube(2048)),
    "softmax": Case("tests/kernels/softmax.tex", {"M": 4096, "N": 4096}, {"M": 4096, "N": 2048}),
    "add+gelu": Case(
        "benchmarks/kernels/memory/add_gelu.tex", {"M": 4096, "N": 4096}, {"M": 2048, "N": 4096}
    ),
}  # fmt: skip


def compile_here(name: str, way: str) -> None:
    """Compile a case in this process, and print what it took."""
    import texpr
    from texpr.execute import cubin_of

    case = CASES[name]

    def cubin(sizes: Mapping[str, int]) -> bytes:
        text = case.program if case.program.startswith("kernel") else (ROOT / case.program).read_text(encoding="utf-8")
        return cubin_of(texpr.parse(text, name.split()[0]).only.compile("cuda:sm_90a", sizes=sizes).build)

    if way == "warm":
        cubin(case.others)
    before, begun = _processor_s(), time.perf_counter()
    size = len(cubin(case.sizes))
    wall = time.perf_counter() - begun
    print(json.dumps({"wall": wall, "cpu": _processor_s() - before, "bytes": size}))


def _processor_s() -> float:
    """What this process and its children have taken of the processor, those that are not over among them: a compiler
    waits for the next text."""
    children = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in children]
    ticks = sum(int(field) for stat in stats for field in stat[11:15])
    return sum(os.times()[:4]) + ticks / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class System:
    """One of what is compared: its command, and how it is told where to keep things."""

    name: str
    command: Sequence[str]
    cache_variable: str
    environment: Mapping[str, str]
    best: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    def measure(self, case: str, folder: Path) -> None:
        """All ways once, the better of this and what was measured before."""
        with tempfile.TemporaryDirectory(dir=folder) as kept, tempfile.TemporaryDirectory(dir=folder) as empty:
            self._take(case, "new process", kept)
            self._take(case, "cached process", kept)
            self._take(case, "warm", empty)

    def _take(self, case: str, way: str, cache: str) -> None:
        environment = {**self.environment, self.cache_variable: cache}
        before, begun = os.times(), time.perf_counter()
        command = [*self.command, case, "warm" if way == "warm" else "new"]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        wall, after = time.perf_counter() - begun, os.times()
        if done.returncode:
            raise SystemExit(f"{self.name}, {case}: {done.stderr.strip().splitlines()[-1:]}")
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        own = (told["wall"], told["cpu"]) if way == "warm" else (wall, sum(after[2:4]) - sum(before[2:4]))
        known = self.best.get((case, way), own)
        self.best[case, way] = (min(own[0], known[0]), min(own[1], known[1]))

    def shown(self, case: str, way: str) -> str:
        wall, cpu = self.best[case, way]
        return f"{wall:5.2f} /{cpu:5.2f}"


def systems(peer: str | None, folder: Path) -> list[System]:
    """This compiler, and Triton where it is there; bytecode of both is compiled once, as if they were installed."""
    usual = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    usual.pop("PYTHONDONTWRITEBYTECODE", None)
    own = {**usual, "PYTHONPATH": str(ROOT)}
    found = [System("TExpr", (sys.executable, str(Path(__file__)), "--here"), "TEXPR_CACHE_DIR", own)]
    if peer is None:
        print("Triton: absent (--peer names the interpreter of an environment with triton==3.6.0)")
        return found
    version = subprocess.run(
        [peer, "-c", "import triton; print(triton.__version__)"], capture_output=True, text=True, check=False
    )
    if version.returncode:
        print(f"Triton: absent ({peer} does not import it)")
        return found
    other = {name: value for name, value in usual.items() if name != "PYTHONPATH"}
    return [*found, System(f"Triton {version.stdout.strip()}", (peer, str(PEER)), "TRITON_CACHE_DIR", other)]


def table(cases: Sequence[str], repeat: int, peer: str | None) -> None:
    """Measure all systems in turns and print the table."""
    with tempfile.TemporaryDirectory() as name:
        every = systems(peer, Path(name))
        for number in range(repeat + 1):
            for case in cases:
                for system in every:
                    system.measure(case, Path(name))
            if number == 0:  # which read everything from disk, and wrote bytecode
                for system in every:
                    system.best.clear()
    print(
        "text to cubin for sm_90a, seconds: wall / processor, best of",
        repeat,
        f"(load average {os.getloadavg()[0]:.1f})",
    )
    print(f"{'':14}{'':14}" + "".join(f"{way:>18}" for way in WAYS))
    for case in cases:
        for number, system in enumerate(every):
            row = "".join(f"{system.shown(case, way):>18}" for way in WAYS)
            print(f"{case if number == 0 else '':14}{system.name:14}{row}")
    print(f"{'aimed at':28}" + "".join(f"{AIMS[way]:>18.2f}" for way in WAYS))


def main() -> None:
    if sys.argv[1:2] == ["--here"]:
        compile_here(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--peer", metavar="PYTHON", help="the interpreter of an environment with Triton")
    parser.add_argument("--case", action="append", choices=CASES, help="of these only")
    options = parser.parse_args()
    table(options.case or list(CASES), options.repeat, options.peer)


if __name__ == "__main__":
    main()
