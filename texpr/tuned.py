"""Tuned mappings: what `texpr tune` keeps, and what `compile(tuned=True)` takes.

An entry of the cache is of a program, a target and the sizes that are bound. It has the fastest choices of each device
on which they were measured, as JSON, and which compiler it was that made them:

    {"schema": 1, "devices": {"NVIDIA H200": {"compiler": "5f3a…", "choices": {…}, "at": {"M": 512}, "own_us": 64.0,
        "time_us": 61.2}}}

Nothing is taken that was measured elsewhere or with another compiler: that is E0609, as is an entry that is not there.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from texpr.cache import cache_folder, change, found
from texpr.grammar.diagnostics import TExprError, fail
from texpr.options import choices_of, flag

if TYPE_CHECKING:
    from texpr.grammar.ast import Kernel
    from texpr.polyhedral.mapped.candidate import Choices
    from texpr.polyhedral.target import Target

KIND, SCHEMA = "tuned", 1
COMPILER = ("grammar", "polyhedral", "codegen")  # the packages that make a program of a text
SOURCES = (".py", ".tex", ".json", ".cuh", ".hpp")


def chosen(kernel: "Kernel", target: "Target", sizes: Mapping[str, int], mapping: Any, tuned: Any) -> "Choices | None":
    """The choices that a compilation is told: by `mapping`, or with `tuned` those that are kept. Raises E0607 for wrong
    options, or both of them, and E0609 where nothing is kept for this kernel, device and compiler."""
    if not flag("tuned", tuned):
        return choices_of(mapping)
    if mapping is not None:
        raise fail("E0607", "`mapping` and `tuned` both say how to map", help="give one of them")
    return kept(kernel, target, sizes)


def kept(kernel: "Kernel", target: "Target", sizes: Mapping[str, int]) -> "Choices":
    """The choices that were the fastest on this machine's device. Raises E0609, and E0503 where there is no device."""
    from texpr.polyhedral.mapped.candidate_json import read_choices

    device = device_of(target)
    which = f"{kernel.name} for {target.name}" + "".join(f", {name} = {value}" for name, value in sizes.items())
    help = "`texpr tune` measures what fits; without `tuned` the compiler chooses"
    if cache_folder() is None:
        raise fail("E0609", f"nothing is tuned of {which}: the cache is off", help="set TEXPR_CACHE_DIR to a folder")
    devices = _devices(found(KIND, _key(kernel, target, sizes)))
    if not devices:
        raise fail("E0609", f"nothing is tuned of {which}", help=help)
    if device not in devices:
        others = ", ".join(devices)
        raise fail("E0609", f"{which} is tuned on {others}, and this machine has {device}", help="tune it here, too")
    own = devices[device]
    if own.get("compiler") != compiler():
        raise fail("E0609", f"{which} is tuned with another version of the compiler", help="tune it again")
    try:
        return read_choices(own.get("choices"))
    except TExprError:
        raise fail("E0609", f"what was tuned of {which} cannot be read", help="tune it again") from None


def keep(
    kernel: "Kernel", target: "Target", sizes: Mapping[str, int], choices: "Choices", figures: Mapping[str, Any]
) -> bool:
    """Keep the choices for this machine's device, in place of those before; whether the cache took them."""
    from texpr.polyhedral.mapped.candidate_json import choices_json

    own = {"compiler": compiler(), "choices": choices_json(choices), **figures}
    device = device_of(target)

    def added(body: bytes | None) -> bytes:
        return json.dumps({"schema": SCHEMA, "devices": {**_devices(body), device: own}}).encode()

    return change(KIND, _key(kernel, target, sizes), added)


def _key(kernel: "Kernel", target: "Target", sizes: Mapping[str, int]) -> dict[str, Any]:
    """Of a checked kernel, whatever its text looks like: nodes print without the places where they stand."""
    program = hashlib.sha256(repr(kernel).encode()).hexdigest()
    return {"program": program, "target": target.name, "sizes": dict(sizes)}


def _devices(body: bytes | None) -> dict[str, dict[str, Any]]:
    """What an entry has, by device; nothing of one that is none."""
    try:
        data = json.loads(body or b"{}")
    except ValueError:
        return {}
    devices = data.get("devices") if isinstance(data, dict) and data.get("schema") == SCHEMA else None
    if not isinstance(devices, dict):
        return {}
    return {name: own for name, own in devices.items() if isinstance(own, dict)}


@cache
def compiler() -> str:
    """The digest of the files that make a program of a text: another one may choose, or emit, something else."""
    import texpr

    digest = hashlib.sha256()
    for package in COMPILER:
        folder = Path(*__import__(f"texpr.{package}", fromlist=["x"]).__path__)
        for path in sorted(path for path in folder.rglob("*") if path.suffix in SOURCES):
            digest.update(f"{package}/{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return f"{texpr.__version__}-{digest.hexdigest()[:16]}"


def device_of(target: "Target") -> str:
    """The device of this machine that runs a target, by its name. Raises E0503 where there is none."""
    from texpr.polyhedral.target import Family

    if target.family is Family.CUDA:
        from texpr.runtime.device import device_name

        return device_name(0)
    return f"{_processor()}, {len(os.sched_getaffinity(0))} threads"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
