"""Manifest v2 to and from JSON. Reading checks every field: a manifest is data from outside. Standard library only."""

import json
import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from texpr.codegen.manifest import (
    FORMAT,
    INITS,
    MAX_MANIFEST_BYTES,
    VERSION,
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
    canonical_json,
    check_condition,
    check_expr,
    damaged,
    questions,
)
from texpr.codegen.tensor_map import PROMOTION_BYTES, SWIZZLE_BYTES, TYPES, box_fault
from texpr.grammar.diagnostics import fail
from texpr.grammar.types import ELEMENT_TYPES

MANIFEST_KEYS = (
    "format", "version", "texpr", "name", "target", "arch", "loadable", "parameters", "sizes", "facts", "workspace",
    "words", "host", "files",
)  # fmt: skip
MODES = ("read", "write", "read-write", "accumulate")
ARGUMENT_KINDS = ("param", "scalar", "workspace", "words", "map", "size", "index")
MAX_STEPS_DEPTH = 64
MAX_FILES = 1000


def write_manifest(manifest: Manifest) -> str:
    """The canonical JSON text of a manifest."""
    return canonical_json(
        {
            "format": FORMAT,
            "version": VERSION,
            "texpr": manifest.texpr,
            "name": manifest.name,
            "target": manifest.target,
            "arch": manifest.arch,
            "loadable": manifest.loadable,
            "parameters": [
                {
                    "name": p.name,
                    "dtype": p.dtype,
                    "rank": len(p.shape),
                    "shape": list(p.shape),
                    "strides": list(p.strides),
                    "mode": p.mode,
                    "op": p.op,
                    "box": [list(side) for side in p.box],
                    "align": p.align,
                    "flat": p.flat,
                    "scalar": p.scalar,
                }
                for p in manifest.parameters
            ],
            "sizes": [[name, value] for name, value in manifest.sizes.items()],
            "facts": list(manifest.facts),
            "workspace": {
                "bytes": manifest.workspace_bytes,
                "tensors": [
                    {"name": t.name, "offset_bytes": t.offset_bytes, "size_bytes": t.size_bytes}
                    for t in manifest.workspace
                ],
            },
            "words": [{"name": w.name, "size_bytes": w.size_bytes, "init": w.init} for w in manifest.words],
            "host": [_step_to_json(step) for step in manifest.host],
            "files": dict(manifest.files),
        }
    )


def _step_to_json(step: Step) -> dict[str, Any]:
    match step:
        case LaunchStep():
            return {
                "launch": step.symbol,
                "grid": list(step.grid),
                "cluster": list(step.cluster),
                "block": list(step.block),
                "shared_bytes": step.shared_bytes,
                "arguments": [list(argument) for argument in step.arguments],
                "maps": [_map_to_json(map_) for map_ in step.maps],
                "overlaps": step.overlaps,
                "cooperative": step.cooperative,
            }
        case LoopStep():
            return {"loop": step.index, "extent": step.extent, "body": [_step_to_json(s) for s in step.body]}
        case IfStep():
            return {
                "if": step.condition,
                "then": [_step_to_json(s) for s in step.then],
                "else": [_step_to_json(s) for s in step.orelse],
            }


def _map_to_json(map_: MapArgument) -> dict[str, Any]:
    return {
        "name": map_.name,
        "array": map_.array,
        "dtype": map_.dtype,
        "shape": list(map_.shape),
        "strides": list(map_.strides),
        "box": list(map_.box),
        "swizzle_bytes": map_.swizzle_bytes,
        "promotion_bytes": map_.promotion_bytes,
    }


class _Reader:
    """Typed access to the fields of one JSON object; everything unexpected is E0505."""

    def __init__(self, value: object, what: str, keys: Iterable[str]) -> None:
        if not isinstance(value, dict):
            raise damaged(f"{what} is not an object")
        unknown = sorted(set(value) - set(keys))
        if unknown:
            raise damaged(f"{what} has the unknown field {str(unknown[0])[:40]!r}")
        self.value, self.what = value, what

    def get(self, key: str, kind: type) -> Any:
        found = self.value.get(key)
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise damaged(f"{self.what} has no {kind.__name__} {key!r}")
        return found

    def natural(self, key: str) -> int:
        found: int = self.get(key, int)
        if not 0 <= found < 2**62:
            raise damaged(f"{self.what}: {key} is out of range")
        return found

    def expr(self, key: str) -> JsonExpr:
        return check_expr(self.value.get(key))

    def exprs(self, key: str) -> tuple[JsonExpr, ...]:
        return tuple(check_expr(item) for item in self.get(key, list))


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isidentifier() or len(value) > 256:
        raise damaged("a name is malformed")
    return value


def _word(reader: _Reader, key: str) -> str:
    found: str = reader.get(key, str)
    if len(found) > 256 or not found.isascii() or not found.isprintable():
        raise damaged(f"{key} is malformed")
    return found


def _parameter(value: object) -> Parameter:
    keys = ("name", "dtype", "rank", "shape", "strides", "mode", "op", "box", "align", "flat", "scalar")
    reader = _Reader(value, "a parameter", keys)
    shape, strides = reader.exprs("shape"), reader.exprs("strides")
    mode, op, dtype = reader.get("mode", str), reader.value.get("op", ""), reader.get("dtype", str)
    operators = ("add", "mul", "max", "min") if mode == "accumulate" else (None,)
    if dtype not in ELEMENT_TYPES or mode not in MODES or op not in operators:
        raise damaged("a parameter has an unknown type, mode or operator")
    if reader.natural("rank") != len(shape) or len(strides) != len(shape):
        raise damaged("a parameter's rank, shape and strides disagree")
    box = []
    for side in reader.get("box", list):
        if not isinstance(side, list) or len(side) != 2:
            raise damaged("a parameter's box is malformed")
        box.append((check_expr(side[0]), check_expr(side[1])))
    if box and len(box) != len(shape):
        raise damaged("a parameter's box and shape disagree")
    return Parameter(
        name=_name(reader.get("name", str)),
        dtype=dtype,
        shape=shape,
        strides=strides,
        mode=mode,
        op=op,
        box=tuple(box),
        align=reader.natural("align"),
        flat=reader.get("flat", bool),
        scalar=reader.get("scalar", bool),
    )


def _three(reader: _Reader, key: str) -> tuple[int, int, int]:
    values = reader.get(key, list)
    if len(values) != 3 or not all(isinstance(v, int) and not isinstance(v, bool) and 0 < v < 2**31 for v in values):
        raise damaged(f"{key} is malformed")
    return values[0], values[1], values[2]


def _steps(values: object, depth: int = 0) -> tuple[Step, ...]:
    if not isinstance(values, list) or depth > MAX_STEPS_DEPTH:
        raise damaged("the host program is malformed")
    return tuple(_step(value, depth) for value in values)


def _step(value: object, depth: int) -> Step:
    kinds = set(value) & {"launch", "loop", "if"} if isinstance(value, dict) else set()
    if kinds == {"loop"}:
        reader = _Reader(value, "a host loop", ("loop", "extent", "body"))
        body = _steps(reader.get("body", list), depth + 1)
        return LoopStep(index=_name(reader.get("loop", str)), extent=reader.expr("extent"), body=body)
    if kinds == {"if"}:
        reader = _Reader(value, "a host condition", ("if", "then", "else"))
        then, orelse = _steps(reader.get("then", list), depth + 1), _steps(reader.get("else", list), depth + 1)
        return IfStep(condition=check_condition(reader.get("if", list)), then=then, orelse=orelse)
    if kinds != {"launch"}:
        raise damaged("the host program is malformed")
    keys = (
        "launch", "grid", "cluster", "block", "shared_bytes", "arguments", "maps", "overlaps", "cooperative",
    )  # fmt: skip
    reader = _Reader(value, "a launch", keys)
    grid = reader.exprs("grid")
    if len(grid) != 3:
        raise damaged("grid is malformed")
    arguments = []
    for item in reader.get("arguments", list):
        if not isinstance(item, list) or len(item) != 2 or item[0] not in ARGUMENT_KINDS:
            raise damaged("a launch's arguments are malformed")
        arguments.append((str(item[0]), _name(item[1])))
    maps = tuple(_map(item) for item in reader.get("maps", list))
    _distinct((map_.name for map_ in maps), "tensor maps")
    return LaunchStep(
        symbol=_name(reader.get("launch", str)),
        grid=(grid[0], grid[1], grid[2]),
        cluster=_three(reader, "cluster"),
        block=_three(reader, "block"),
        shared_bytes=reader.natural("shared_bytes"),
        arguments=tuple(arguments),
        maps=maps,
        overlaps=reader.get("overlaps", bool),
        cooperative=reader.get("cooperative", bool),
    )


def _map(value: object) -> MapArgument:
    keys = ("name", "array", "dtype", "shape", "strides", "box", "swizzle_bytes", "promotion_bytes")
    reader = _Reader(value, "a tensor map", keys)
    shape, strides, box = reader.exprs("shape"), reader.exprs("strides"), reader.get("box", list)
    dtype, swizzle = reader.get("dtype", str), reader.natural("swizzle_bytes")
    promotion = reader.natural("promotion_bytes")
    if dtype not in TYPES or swizzle not in SWIZZLE_BYTES or promotion not in PROMOTION_BYTES:
        raise damaged("a tensor map has a type, a swizzle or a promotion that there is not")
    if not len(shape) == len(strides) == len(box) or any(type(extent) is not int for extent in box):
        raise damaged("a tensor map's shape, strides and box disagree")
    fault = box_fault(box, ELEMENT_TYPES[dtype].size_bytes, swizzle)
    if fault is not None:
        raise damaged(fault if len(fault) < 200 else "a box is malformed")
    return MapArgument(
        name=_name(reader.get("name", str)),
        array=_name(reader.get("array", str)),
        dtype=dtype,
        shape=shape,
        strides=strides,
        box=tuple(box),
        swizzle_bytes=swizzle,
        promotion_bytes=promotion,
    )


def _words(value: object) -> Words:
    reader = _Reader(value, "words", ("name", "size_bytes", "init"))
    init = reader.get("init", str)
    if init not in INITS:
        raise damaged("words begin as nobody knows")
    return Words(name=_name(reader.get("name", str)), size_bytes=reader.expr("size_bytes"), init=init)


def _distinct(names: Iterable[str], what: str) -> None:
    found = list(names)
    if len(set(found)) != len(found):
        raise damaged(f"two {what} have one name")


def _sizes(values: list[object]) -> dict[str, int | None]:
    sizes: dict[str, int | None] = {}
    for item in values:
        if not isinstance(item, list) or len(item) != 2 or not (item[1] is None or type(item[1]) is int):
            raise damaged("a size is malformed")
        name = _name(item[0])
        if name in sizes:
            raise damaged("two sizes have one name")
        if item[1] is not None and not 0 <= item[1] < 2**63:
            raise damaged("a size is out of range")
        sizes[name] = item[1]
    return sizes


def _files(values: dict[object, object]) -> dict[str, str]:
    """File names with digests. A name stays inside the artifact's folder, and is the one way to write that place."""
    if len(values) > MAX_FILES:
        raise damaged(f"it lists more than {MAX_FILES} files")
    files: dict[str, str] = {}
    for name, digest in values.items():
        path = PurePosixPath(str(name))
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise damaged("a file name leaves the artifact's folder")
        if str(path) != name or not name.isascii() or not name.isprintable() or "\\" in name:
            raise damaged(f"the file name {str(name)[:80]!r} is written in an unusual way")
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            raise damaged("a digest is malformed")
        files[name] = digest
    return files


def read_manifest(text: str) -> Manifest:
    """The manifest in a JSON text. Raises E0505 for a damaged one or another version."""
    if len(text) > MAX_MANIFEST_BYTES:
        raise damaged("it is larger than 4 MiB")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise damaged("it is not JSON") from None
    reader = _Reader(value, "the manifest", MANIFEST_KEYS)
    if reader.get("format", str) != FORMAT:
        raise damaged("it is not a TExpr manifest")
    if reader.get("version", int) != VERSION:
        raise fail(
            "E0505",
            f"this manifest has version {str(reader.value['version'])[:20]}; this TExpr reads {VERSION}",
            help="build the artifact again with this TExpr",
        )
    workspace = _Reader(reader.get("workspace", dict), "the workspace", ("bytes", "tensors"))
    tensors = []
    for item in workspace.get("tensors", list):
        tensor = _Reader(item, "a workspace tensor", ("name", "offset_bytes", "size_bytes"))
        tensors.append(
            WorkspaceTensor(
                name=_name(tensor.get("name", str)),
                offset_bytes=tensor.expr("offset_bytes"),
                size_bytes=tensor.expr("size_bytes"),
            )
        )
    parameters = tuple(_parameter(item) for item in reader.get("parameters", list))
    _distinct((p.name for p in parameters), "parameters")
    _distinct((t.name for t in tensors), "workspace tensors")
    words = tuple(_words(item) for item in reader.get("words", list))
    _distinct((w.name for w in words), "words")
    facts: tuple[JsonCondition, ...] = tuple(check_condition(fact) for fact in reader.get("facts", list))
    manifest = Manifest(
        name=_name(reader.get("name", str)),
        target=_word(reader, "target"),
        arch=_word(reader, "arch"),
        loadable=reader.get("loadable", bool),
        parameters=parameters,
        sizes=_sizes(reader.get("sizes", list)),
        facts=facts,
        workspace_bytes=workspace.expr("bytes"),
        workspace=tuple(tensors),
        words=words,
        host=_steps(reader.get("host", list)),
        files=_files(reader.get("files", dict)),
        texpr=_word(reader, "texpr"),
    )
    questions(manifest)
    return manifest
