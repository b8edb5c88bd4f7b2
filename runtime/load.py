"""Loading an artifact's folder: manifest, digests, cubin. Only data is read; nothing in it is executed here."""

import hashlib
from pathlib import Path

from texpr.codegen.manifest import MAX_MANIFEST_BYTES, IfStep, LaunchStep, LoopStep, Manifest, Step
from texpr.codegen.manifest_io import read_manifest
from texpr.grammar.diagnostics import fail
from texpr.grammar.paths import as_path, read_plain
from texpr.runtime.device import CudaBackend
from texpr.runtime.launch import Launcher

MAX_FILE_BYTES = 1 << 30


def shared_bytes(steps: tuple[Step, ...]) -> dict[str, int]:
    """The dynamic shared memory of every kernel that the host program launches, by symbol."""
    found: dict[str, int] = {}
    stack = list(reversed(steps))
    while stack:
        match stack.pop():
            case LaunchStep() as step:
                found[step.symbol] = max(step.shared_bytes, found.get(step.symbol, 0))
            case LoopStep(body=body):
                stack.extend(reversed(body))
            case IfStep(then=then, orelse=orelse):
                stack.extend(reversed(then + orelse))
    return found


def read_artifact(folder: str | Path) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest and the files of an artifact, digests verified. Raises E0505 or E0606."""
    root = as_path(folder)
    try:
        text = read_plain(root / "manifest.json", MAX_MANIFEST_BYTES).decode("utf-8")
    except (OSError, ValueError) as why:
        raise fail("E0606", f"{root / 'manifest.json'} cannot be read: {why}") from None
    manifest = read_manifest(text)
    files: dict[str, bytes] = {}
    for name, digest in manifest.files.items():
        path = root / name
        try:
            if not path.resolve().is_relative_to(root.resolve()):
                raise fail("E0505", f"the artifact's file {name} leaves its folder")
            files[name] = read_plain(path, MAX_FILE_BYTES)
        except OSError as why:
            raise fail("E0505", f"the artifact's file {name} cannot be read: {why.strerror}") from None
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise fail(
                "E0505", f"the artifact's file {name} is not the one that was built", help="build the artifact again"
            )
    return manifest, files


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
            help="compile the kernel in this process, or build it for a cuda target where nvcc is installed",
        )
    return Launcher(manifest, CudaBackend(files[cubins[0]], shared_bytes(manifest.host)))
