"""Loading an artifact's folder: manifest, digests, cubin. Only data is read; nothing in it is executed here."""

import hashlib
import time
from pathlib import Path

from texpr.codegen.manifest import MAX_MANIFEST_BYTES, LaunchStep, Manifest, Step, all_steps
from texpr.codegen.manifest_io import read_manifest
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.paths import as_path, read_plain, set_aside
from texpr.runtime.device import CudaBackend
from texpr.runtime.launch import Launcher

MAX_ARTIFACT_BYTES = 1 << 28  # of all files together
READ_ATTEMPTS, READ_PAUSE_S = 100, 0.01  # while the folder is being replaced


def launch_steps(steps: tuple[Step, ...]) -> tuple[LaunchStep, ...]:
    """Every launch of a host program."""
    return tuple(step for step in all_steps(steps) if isinstance(step, LaunchStep))


def read_artifact(folder: str | Path) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest and the files of an artifact, digests verified; one that is replaced meanwhile is read again.
    Raises E0505 or E0606."""
    root = as_path(folder)
    for _ in range(READ_ATTEMPTS):
        before = _identity(root)
        try:
            return _read(root)
        except TExprError:
            if _identity(root) == before and (before is not None or not set_aside(root)):
                raise
            time.sleep(READ_PAUSE_S)
    return _read(root)


def _identity(root: Path) -> tuple[int, ...] | None:
    """What tells one folder at a path from the next."""
    try:
        status = root.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _read(root: Path) -> tuple[Manifest, dict[str, bytes]]:
    try:
        text = read_plain(root / "manifest.json", MAX_MANIFEST_BYTES).decode("utf-8")
    except (OSError, ValueError) as why:
        aside = [] if root.exists() else set_aside(root)
        help = f"an interrupted build left the older one in {aside[0]}; build it again" if aside else None
        raise fail("E0606", f"{root / 'manifest.json'} cannot be read: {why}", help=help) from None
    manifest = read_manifest(text)
    files: dict[str, bytes] = {}
    room = MAX_ARTIFACT_BYTES
    for name, digest in manifest.files.items():
        files[name] = _read_file(root, name, room)
        room -= len(files[name])
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise fail(
                "E0505", f"the artifact's file {name} is not the one that was built", help="build the artifact again"
            )
    return manifest, files


def _read_file(root: Path, name: str, limit_bytes: int) -> bytes:
    path = root / name
    try:
        if not path.resolve().is_relative_to(root.resolve()):
            raise fail("E0505", f"the artifact's file {name} leaves its folder")
        if path.stat().st_size > limit_bytes:
            raise fail("E0505", f"the artifact's files are larger than {MAX_ARTIFACT_BYTES} bytes together")
        return read_plain(path, limit_bytes)
    except (OSError, RuntimeError) as why:  # a loop of links is a RuntimeError
        said = why.strerror if isinstance(why, OSError) else "its links go in a circle"
        raise fail("E0505", f"the artifact's file {name} cannot be read: {said}") from None


def load(folder: str | Path) -> Launcher:
    """A launcher for a saved CUDA artifact; needs cuda-core and a GPU, nothing of the compiler.

    Raises E0505 for a damaged or source-only artifact, E0503 without cuda-core.
    """
    manifest, files = read_artifact(folder)
    cubins = sorted(name for name in files if name.endswith(".cubin"))
    if not manifest.loadable or not cubins:
        raise fail(
            "E0505",
            f"this artifact of {manifest.name} for {manifest.target} holds source text only",
            help="compile the kernel in this process, or build it for a cuda target where NVRTC or nvcc is installed",
        )
    return Launcher(manifest, CudaBackend(files[cubins[0]], launch_steps(manifest.host)))
