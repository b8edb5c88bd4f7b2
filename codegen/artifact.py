"""Artifacts: what `compiled.save` writes, and the manifest of a planned kernel.

A folder holds `NAME.cu` (or `NAME.py` for a CPU), the headers that it includes, `NAME.h`, a cubin when a compiler was
there, and `manifest.json` with the digest of each. The folder is replaced as a whole (`replace.py`), and only if it is
empty or holds nothing but what an older manifest names: a user's own file, folder or link in it is a refusal.
"""

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from pathlib import Path, PurePosixPath

from texpr.codegen.cuda.copies import BoxMap
from texpr.codegen.cuda.names import kernel_symbol
from texpr.codegen.manifest import (
    MAX_MANIFEST_BYTES,
    MAX_WORKSPACE_BYTES,
    IfStep,
    JsonCondition,
    JsonExpr,
    LaunchStep,
    LoopStep,
    Manifest,
    MapArgument,
    Parameter,
    Step,
    Words,
    WorkspaceTensor,
)
from texpr.codegen.manifest_io import read_manifest, write_manifest
from texpr.codegen.replace import replace_folder
from texpr.grammar.ast import (
    AccOp,
    Buffer,
    Condition,
    IndexExpr,
    Kernel,
    Role,
)
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.index.text import JSON, text
from texpr.grammar.paths import as_path, not_written, read_plain
from texpr.grammar.records import dataclass
from texpr.polyhedral.layout.declared import declared_layout
from texpr.polyhedral.layout.extent import extent_bytes
from texpr.polyhedral.layout.normal import strides
from texpr.polyhedral.mapped.between import GridBarrier, Init, words_bytes
from texpr.polyhedral.mapped.planned import PlannedProgram
from texpr.polyhedral.mapped.program import HostIf, HostLoop, HostNode, Launch
from texpr.polyhedral.mapped.walks import device_buffers, of_kind, overlaps
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.prove.boxes import Box, boxes
from texpr.polyhedral.target import Target

_MODES = {"in": "read", "out": "write", "inout": "read-write"}


def json_expr(expr: IndexExpr) -> JsonExpr:
    """An index expression as the manifest writes it."""
    found: JsonExpr = text(expr, JSON)
    return found


def json_condition(condition: Condition) -> JsonCondition:
    """An affine condition as the manifest writes it."""
    found: JsonCondition = text(condition, JSON)
    return found


def _parameter(buffer: Buffer, direction: str, op: AccOp | None, box: Box) -> Parameter:
    steps = strides(declared_layout(buffer))
    assert steps is not None, "callers know strides only"
    return Parameter(
        name=buffer.name,
        dtype=buffer.dtype.name,
        shape=tuple(map(json_expr, buffer.shape)),
        strides=tuple(map(json_expr, steps)),
        mode="accumulate" if op is not None else _MODES[direction],
        op=op.value if op is not None else None,
        box=tuple((json_expr(low), json_expr(high)) for low, high in box),
        align=buffer.align,
        flat=buffer.flat,
        scalar=buffer.role is Role.SCALAR,
    )


def parameters(
    kernel: Kernel, directions: Mapping[str, str], accumulated: Mapping[str, AccOp], touched: Mapping[str, Box]
) -> tuple[Parameter, ...]:
    """The manifest's parameters, in declared order."""
    return tuple(
        _parameter(b, directions.get(b.name, "in"), accumulated.get(b.name), touched.get(b.name, ()))
        for b in kernel.params
    )


def signature(kernel: Kernel, target: str, version: str, written: Collection[str] | None = None) -> Manifest:
    """A manifest without a host program: enough to check a call's arguments against an unproved kernel. `written` are
    the buffers that it writes; without it, all that are not declared `in`."""
    modes = {
        b.name: "in"
        if b.direction == "in" or b.role is Role.SCALAR or (written is not None and b.name not in written)
        else "inout"
        for b in kernel.params
    }
    return Manifest(
        name=kernel.name,
        target=target,
        arch="",
        loadable=False,
        parameters=parameters(kernel, modes, {}, {}),
        sizes={size.name: size.default for size in kernel.sizes},
        facts=tuple(map(json_condition, kernel.facts)),
        workspace_bytes=0,
        workspace=(),
        host=(),
        files={},
        texpr=version,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What the launches of emitted text pass, by symbol: arguments in order as (kind, name), and what the tensor maps
    among them describe, by name."""

    arguments: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    maps: Mapping[str, Mapping[str, BoxMap]] = field(default_factory=dict)


def _launch_step(launch: Launch, planned: PlannedProgram, passed: Passed) -> LaunchStep:
    symbol = kernel_symbol(launch.name)
    return LaunchStep(
        symbol=symbol,
        grid=(json_expr(launch.grid[0]), json_expr(launch.grid[1]), json_expr(launch.grid[2])),
        cluster=launch.cluster,
        block=(launch.threads, 1, 1),
        shared_bytes=planned.shared_bytes[launch.name],
        arguments=passed.arguments.get(symbol, ()),
        maps=tuple(_map(name, map_, planned) for name, map_ in passed.maps.get(symbol, {}).items()),
        overlaps=overlaps(launch),
        cooperative=any(of_kind(launch.body, GridBarrier)),
    )


def _map(name: str, described: BoxMap, planned: PlannedProgram) -> MapArgument:
    buffer = planned.program.buffers[described.buffer]
    steps = strides(planned.addresses[described.buffer].layout)
    if steps is None:
        raise fail("E0502", f"{buffer.name} lies in memory as no tensor map says", buffer.span)
    return MapArgument(
        name=name,
        array=buffer.name,
        dtype=buffer.dtype.name,
        shape=tuple(map(json_expr, buffer.shape)),
        strides=tuple(map(json_expr, steps)),
        box=described.box,
        swizzle_bytes=described.swizzle_bytes,
        promotion_bytes=described.promotion_bytes,
    )


_INITS = {Init.NONE: "none", Init.ZERO_EACH_CALL: "each call", Init.ZERO_ONCE: "once"}


def _words(planned: PlannedProgram) -> tuple[Words, ...]:
    """The counters and flags, 4 bytes each."""
    return tuple(
        Words(name=words.name, size_bytes=json_expr(words_bytes(words)), init=_INITS[words.init])
        for words in planned.program.words
    )


def _steps(nodes: tuple[HostNode, ...], planned: PlannedProgram, passed: Passed) -> tuple[Step, ...]:
    steps: list[Step] = []
    for node in nodes:
        match node:
            case Launch():
                steps.append(_launch_step(node, planned, passed))
            case HostLoop(index=index, extent=extent, body=body):
                inner = _steps(body, planned, passed)
                steps.append(LoopStep(index=index, extent=json_expr(extent), body=inner))
            case HostIf(condition=condition, then=then, orelse=orelse):
                steps.append(
                    IfStep(
                        condition=json_condition(condition),
                        then=_steps(then, planned, passed),
                        orelse=_steps(orelse, planned, passed),
                    )
                )
    return tuple(steps)


def _workspace(planned: PlannedProgram) -> tuple[WorkspaceTensor, ...]:
    """The workspace tensors with offsets and bytes, holes of their layouts included."""
    found = []
    for buffer in device_buffers(planned.program):
        if buffer.role is not Role.LOCAL:
            continue
        address = planned.addresses[buffer.name]
        size = json_expr(extent_bytes(address.layout, buffer.dtype.size_bytes))
        offset = json_expr(address.offset_bytes)
        found.append(WorkspaceTensor(name=buffer.name, offset_bytes=offset, size_bytes=size))
    return tuple(found)


def make_manifest(
    kernel: Kernel,
    proved: ProvedProgram,
    planned: PlannedProgram,
    target: Target,
    passed: Passed,
    version: str,
) -> Manifest:
    """The manifest of a planned kernel, without files. `kernel` has its bound sizes' values as `Size.default`."""
    touched = boxes(proved.program)
    workspace_bytes = json_expr(planned.workspace_bytes)
    if isinstance(workspace_bytes, int) and workspace_bytes > MAX_WORKSPACE_BYTES:
        why = f"the workspaces of {kernel.name} need {workspace_bytes} bytes, and an address space has less"
        raise fail("E0403", why, help="bind smaller sizes, or declare smaller buffers")
    return Manifest(
        name=kernel.name,
        target=target.name,
        arch=target.arch,
        loadable=False,
        parameters=parameters(proved.program.kernel, proved.directions, proved.accumulated, touched),
        sizes={size.name: size.default for size in kernel.sizes},
        facts=tuple(map(json_condition, planned.program.kernel.facts)),
        workspace_bytes=workspace_bytes,
        workspace=_workspace(planned),
        words=_words(planned),
        host=_steps(planned.program.host, planned, passed),
        files={},
        texpr=version,
    )


def _is_ours(folder: Path) -> bool:
    """Whether a folder is empty or holds exactly one artifact: only then may it be replaced."""
    if not folder.is_dir():
        return False
    present = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    if not present:
        return True
    try:
        manifest = read_manifest(read_plain(folder / "manifest.json", MAX_MANIFEST_BYTES).decode("utf-8"))
    except (OSError, ValueError, TExprError):
        return False
    files = {*manifest.files, "manifest.json"}
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    return all(
        name in (folders if path.is_dir() and not path.is_symlink() else files) for name, path in present.items()
    )


def _place(folder: str | Path) -> Path:
    """Where a folder is to stand: links are kept. E0606 for one that a rename would take from under others."""
    place = Path(os.path.realpath(as_path(folder)))
    mounted = os.path.ismount(place)  # `Path.is_mount` raises where another writer has the folder aside meanwhile
    if mounted or place == Path.cwd() or place in Path.cwd().parents:
        why = "a file system is mounted there" if mounted else "it is the working folder, or above it"
        raise fail("E0606", f"{folder} cannot be replaced as a whole: {why}", help="name a folder inside it")
    return place


def save_artifact(folder: str | Path, manifest: Manifest, files: Mapping[str, bytes]) -> Path:
    """Write `files` and the manifest with their digests to `folder`, all or nothing; an older artifact is replaced.

    Raises E0606 when the folder cannot be written, or holds something that is not an artifact; E0608 where the disk is
    full.
    """
    root = as_path(folder)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    text = write_manifest(replace(manifest, files=digests, loadable=any(name.endswith(".cubin") for name in digests)))
    try:
        replace_folder(_place(root), {**files, "manifest.json": text.encode()}, _is_ours)
    except OSError as why:
        raise not_written(root, why) from None
    return root
