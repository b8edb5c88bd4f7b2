"""Artifacts: what `compiled.save` writes, and the manifest of a planned kernel.

A folder holds `NAME.cu` (or `NAME.py` for a CPU), the headers that it includes, `NAME.h`, a cubin when a compiler was
there, and `manifest.json` with the digest of each. Files appear all at once: they are written to a folder beside and
renamed, so that a failure leaves nothing half-written.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from texpr.codegen.cuda.names import kernel_symbol
from texpr.codegen.device_memory import span_bytes
from texpr.codegen.graph import HostIf, HostLoop, KernelNode, Launch, PlannedGraph
from texpr.codegen.manifest import (
    MAX_MANIFEST_BYTES,
    MAX_WORKSPACE_BYTES,
    IfStep,
    JsonCondition,
    JsonExpr,
    LaunchStep,
    LoopStep,
    Manifest,
    Parameter,
    Step,
    WorkspaceTensor,
)
from texpr.codegen.manifest_io import read_manifest, write_manifest
from texpr.grammar.ast import (
    AccOp,
    Always,
    And,
    Buffer,
    Compare,
    Condition,
    IndexBinary,
    IndexConst,
    IndexExpr,
    IndexVar,
    Kernel,
    Not,
    Or,
    Role,
    SizeVar,
)
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.indexing import row_major
from texpr.grammar.paths import as_path, read_plain
from texpr.polyhedral.boxes import Box, boxes
from texpr.polyhedral.program import ProvedProgram
from texpr.polyhedral.target import Target

_MODES = {"in": "read", "out": "write", "inout": "read-write"}

ArgumentTable = Mapping[str, tuple[tuple[str, str], ...]]


def json_expr(expr: IndexExpr) -> JsonExpr:
    """An index expression as the manifest writes it."""
    match expr:
        case IndexConst(value=value):
            return value
        case IndexVar(name=name) | SizeVar(name=name):
            return name
        case IndexBinary(op=op, left=left, right=right):
            return [op.value, json_expr(left), json_expr(right)]


def json_condition(condition: Condition) -> JsonCondition:
    """An affine condition as the manifest writes it."""
    match condition:
        case Compare(op=op, left=left, right=right):
            return [op.value, json_expr(left), json_expr(right)]
        case And(parts=parts):
            return ["and", *map(json_condition, parts)]
        case Or(parts=parts):
            return ["or", *map(json_condition, parts)]
        case Not(part=part):
            return ["not", json_condition(part)]
        case Always(value=value):
            return ["true" if value else "false"]


def _row_major(shape: tuple[IndexExpr, ...]) -> tuple[JsonExpr, ...]:
    strides: list[JsonExpr] = []
    step: JsonExpr = 1
    for extent in reversed(shape):
        strides.append(step)
        factor = json_expr(extent)
        if isinstance(step, int) and isinstance(factor, int):
            step = step * factor
        else:
            step = factor if step == 1 else ["*", step, factor]
    return tuple(reversed(strides))


def _parameter(buffer: Buffer, direction: str, op: AccOp | None, box: Box) -> Parameter:
    strides = buffer.strides
    return Parameter(
        name=buffer.name,
        dtype=buffer.dtype.name,
        shape=tuple(map(json_expr, buffer.shape)),
        strides=_row_major(buffer.shape) if strides is None else tuple(map(json_expr, strides)),
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


def _steps(nodes: tuple[KernelNode, ...], planned: PlannedGraph, arguments: ArgumentTable) -> tuple[Step, ...]:
    steps: list[Step] = []
    for node in nodes:
        match node:
            case Launch(graph=graph):
                grid = graph.grid_dim
                steps.append(
                    LaunchStep(
                        symbol=kernel_symbol(graph.name),
                        grid=(json_expr(grid[0]), json_expr(grid[1]), json_expr(grid[2])),
                        cluster=graph.cluster_dim,
                        block=(graph.block_dim, 1, 1),
                        shared_bytes=planned.shared[graph.name].total_bytes if graph.name in planned.shared else 0,
                        arguments=arguments.get(kernel_symbol(graph.name), ()),
                    )
                )
            case HostLoop(index=index, extent=extent, body=body):
                inner = _steps(body, planned, arguments)
                steps.append(LoopStep(index=index, extent=json_expr(extent), body=inner))
            case HostIf(condition=condition, then=then, orelse=orelse):
                steps.append(
                    IfStep(
                        condition=json_condition(condition),
                        then=_steps(then, planned, arguments),
                        orelse=_steps(orelse, planned, arguments),
                    )
                )
    return tuple(steps)


def _workspace(planned: PlannedGraph) -> tuple[WorkspaceTensor, ...]:
    """The workspace tensors with offsets; a tensor's bytes are its extents times its element size, or with an author's
    strides those from its first element to its last."""
    found = []
    for tensor in planned.graph.tensors:
        if tensor.role is not Role.LOCAL:
            continue
        size: JsonExpr = tensor.dtype.size_bytes
        for extent in tensor.shape:
            factor = json_expr(extent)
            size = size * factor if isinstance(size, int) and isinstance(factor, int) else ["*", size, factor]
        if tensor.strides != row_major(tensor.shape):
            size = json_expr(span_bytes(tensor))
        offset = json_expr(planned.workspace.offsets[tensor.name])
        found.append(WorkspaceTensor(name=tensor.name, offset_bytes=offset, size_bytes=size))
    return tuple(found)


def make_manifest(
    kernel: Kernel, proved: ProvedProgram, planned: PlannedGraph, target: Target, arguments: ArgumentTable, version: str
) -> Manifest:
    """The manifest of a planned kernel, without files. `kernel` has its bound sizes' values as `Size.default`."""
    touched = boxes(proved.program)
    workspace_bytes = json_expr(planned.workspace.total_bytes)
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
        facts=tuple(map(json_condition, planned.graph.facts)),
        workspace_bytes=workspace_bytes,
        workspace=_workspace(planned),
        host=_steps(planned.graph.body, planned, arguments),
        files={},
        texpr=version,
    )


def _is_ours(folder: Path) -> bool:
    """Whether a folder is empty or holds exactly one artifact: only then may it be replaced."""
    if not folder.is_dir():
        return False
    if not any(folder.iterdir()):
        return True
    try:
        manifest = read_manifest(read_plain(folder / "manifest.json", MAX_MANIFEST_BYTES).decode("utf-8"))
    except (OSError, ValueError, TExprError):
        return False
    known = {*manifest.files, "manifest.json"}
    present = (path for path in folder.rglob("*") if not path.is_dir())
    return all(path.relative_to(folder).as_posix() in known for path in present)


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def save_artifact(folder: str | Path, manifest: Manifest, files: Mapping[str, bytes]) -> Path:
    """Write `files` and the manifest with their digests to `folder`, all or nothing; an older artifact is replaced.

    Raises E0606 when the folder cannot be written, or holds something that is not an artifact.
    """
    root = as_path(folder)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    text = write_manifest(replace(manifest, files=digests, loadable=any(name.endswith(".cubin") for name in digests)))
    try:
        if root.exists() and not _is_ours(root):
            raise fail(
                "E0606",
                f"{root} exists and is not an artifact's folder",
                help="name a new folder, or one that TExpr wrote",
            )
        root.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
        try:
            _write_all(beside, {**files, "manifest.json": text.encode()})
            beside.chmod(0o755)
            if root.exists():
                shutil.rmtree(root)
            beside.replace(root)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    except OSError as why:
        raise fail("E0606", f"{root} cannot be written: {why.strerror or why}") from None
    return root
