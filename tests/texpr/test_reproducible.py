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


def built(folder: Path, name: str, target: str, seed: str, *flags: str) -> dict[str, bytes]:
    folder.mkdir(parents=True)
    source = folder / f"{name}.tex"
    source.write_bytes((ROOT / "tests" / "kernels" / f"{name}.tex").read_bytes())
    command = [
        sys.executable,
        "-m",
        "texpr",
        "build",
        f"{name}.tex",
        *PROGRAMS[name],
        "-t",
        target,
        "-o",
        "out",
        *flags,
    ]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "TEXPR_CACHE_DIR": "off", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {str(p.relative_to(folder / "out")): p.read_bytes() for p in (folder / "out").rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["cuda:sm_90a", "cpu"])
def test_sources_and_manifests_are_equal(tmp_path: Path, name: str, target: str) -> None:
    first = built(tmp_path / "a", name, target, "1", "--source-only")
    second = built(tmp_path / "deeper" / "b", name, target, "77", "--source-only")
    assert first == second
    assert str(tmp_path).encode() not in b"".join(first.values())


@pytest.mark.nvcc
def test_cubins_are_equal(tmp_path: Path, need_nvcc: None) -> None:
    first = built(tmp_path / "a", "softmax", "cuda:sm_90a", "1")
    second = built(tmp_path / "deeper" / "b", "softmax", "cuda:sm_90a", "77")
    assert "softmax.cubin" in first
    assert first == second
