"""Two builds from different folders and hash seeds are equal to the byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "softmax": ["-D", "N=64"],
    "attention_tile": ["-D", "M=4", "-D", "N=8", "-D", "D=32"],
    "cholesky_column": [],
    "mixed_types": ["-D", "N=100"],
}


TARGETS = ["cuda:sm_90a", "cpu"]
COMMANDS = """
import sys
from texpr.cli import guarded, run_command
for command in sys.argv[1:]:
    if code := guarded(lambda: run_command(command.split())):
        sys.exit(code)
"""


def built(folder: Path, seed: str, *builds: tuple[str, str, str]) -> dict[str, bytes]:
    """The files of some builds (name, target, flags), of one process with that seed."""
    folder.mkdir(parents=True)
    for name, _, _ in builds:
        (folder / f"{name}.tex").write_bytes((ROOT / "tests" / "kernels" / f"{name}.tex").read_bytes())
    commands = [
        f"build {name}.tex {' '.join(PROGRAMS[name])} -t {target} -o {name}-{target.partition(':')[0]} {flags}"
        for name, target, flags in builds
    ]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "TEXPR_CACHE_DIR": "off", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, *commands],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*/*") if p.is_file()}


def test_sources_and_manifests_are_equal(tmp_path: Path) -> None:
    builds = [(name, target, "--source-only") for name in PROGRAMS for target in TARGETS]
    first = built(tmp_path / "a", "1", *builds)
    second = built(tmp_path / "deeper" / "b", "77", *reversed(builds))
    assert {f"{name}-{kind}/manifest.json" for name in PROGRAMS for kind in ("cuda", "cpu")} <= first.keys()
    assert first == second
    assert str(tmp_path).encode() not in b"".join(first.values())


@pytest.mark.nvcc
def test_cubins_are_equal(tmp_path: Path, need_nvcc: None) -> None:
    first = built(tmp_path / "a", "1", ("softmax", "cuda:sm_90a", ""))
    second = built(tmp_path / "deeper" / "b", "77", ("softmax", "cuda:sm_90a", ""))
    assert "softmax-cuda/softmax.cubin" in first
    assert first == second
