"""Builds that are kept: what the stages emitted, so that another process has it without running them.

An entry of the cache is of a checked kernel with the places where its nodes stand (the text names lines), a target, the
options, and the compiler that made it. It has the emitted texts and the manifest:

    {"schema": 1, "main": "softmax.cu", "files": {"softmax.cu": "…", …}, "headers": ["texpr/kernel.cuh", …],
        "manifest": "{…}", "best_by": ""}

Only builds that run to the end are kept, without choices from outside and without warnings of the stages, which their
users are to see each time. Whoever asks such a build for a stage that has not run makes it run (`Build.result`).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from texpr.cache import cache_folder, change, found
from texpr.grammar.diagnostics import TExprError
from texpr.grammar.source import SourceText, Span
from texpr.pipeline import Build, Emission, build
from texpr.polyhedral.target import Family
from texpr.tuned import compiler

if TYPE_CHECKING:
    from texpr.grammar.ast import Kernel
    from texpr.polyhedral.target import Target

KIND, SCHEMA = "build", 1
_INCLUDE = "include/"


def build_or_kept(
    kernel: "Kernel", target: "Target", *, sizes: Mapping[str, int], stop_after: str | None, **options: Any
) -> Build:
    """What `texpr.pipeline.build` makes of the same, from the cache where it has it, and kept there where it may be."""
    if stop_after is not None:
        return build(kernel, target, sizes=sizes, stop_after=stop_after, **options)
    if cache_folder() is None or options.get("choices") is not None:
        return _built(kernel, target, sizes, options)
    key = _key(kernel, target, sizes, options)
    emission = _read(found(KIND, key))
    if emission is not None:
        return Build(kernel, target, sizes, results={"emit": emission}, kept_options=options)
    made = _built(kernel, target, sizes, options)
    if not made.warnings:
        body = _written(made.result("emit"))
        change(KIND, key, lambda before: body)
    return made


def _built(kernel: "Kernel", target: "Target", sizes: Mapping[str, int], options: Mapping[str, Any]) -> Build:
    """What the stages make, down to the end, while what will compile it is loaded."""
    if target.family is Family.CUDA:
        from texpr.execute import begin_compiler

        begin_compiler()
    return build(kernel, target, sizes=sizes, **options)


def _key(kernel: "Kernel", target: "Target", sizes: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(repr(kernel).encode())
    sources: dict[SourceText, int] = {}
    for span in _spans(kernel):
        number = sources.setdefault(span.source, len(sources))
        digest.update(b"%d %d %d\n" % (number, span.start, span.end))
    for source in sources:
        digest.update(json.dumps([source.name, source.text, source.first_line]).encode())
    told = {name: dict(value) if isinstance(value, Mapping) else value for name, value in options.items()}
    own = {"program": digest.hexdigest(), "target": target.name, "sizes": dict(sizes), "compiler": compiler()}
    return {**own, "options": told}


def _spans(value: Any) -> Iterator[Span]:
    """All places that a tree names, in its order: they are out of what its nodes print."""
    if isinstance(value, Span):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _spans(item)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _spans(getattr(value, each.name))


def _written(emission: Emission) -> bytes:
    """An emission; of the headers their names, as the compiler that is part of the key has their texts."""
    from texpr.codegen.manifest_io import write_manifest

    files = {name: text.decode() for name, text in emission.files.items() if not name.startswith(_INCLUDE)}
    headers = [name.removeprefix(_INCLUDE) for name in emission.files if name.startswith(_INCLUDE)]
    manifest = write_manifest(emission.manifest)
    entry = {"schema": SCHEMA, "main": emission.main, "files": files, "headers": headers, "manifest": manifest}
    return json.dumps({**entry, "best_by": emission.best_by}).encode()


def _read(body: bytes | None) -> Emission | None:
    """What an entry has; None where there is none, or it is none of ours."""
    if body is None:
        return None
    from texpr.codegen.headers import header_files
    from texpr.codegen.manifest_io import read_manifest

    try:
        entry = json.loads(body)
        if entry["schema"] != SCHEMA:
            return None
        files = {name: text.encode() for name, text in entry["files"].items()}
        files |= {_INCLUDE + path: text.encode() for path, text in header_files(entry["headers"]).items()}
        manifest, best_by = read_manifest(entry["manifest"]), entry["best_by"]
        if best_by not in ("", "nvcc"):
            return None
        return Emission(main=entry["main"], files=files, manifest=manifest, best_by=best_by)
    except (ValueError, KeyError, TypeError, AttributeError, OSError, TExprError):
        return None
