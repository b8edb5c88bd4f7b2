"""Where NVRTC is on this machine: a shared library of a CUDA toolkit, or of a Python package."""

import os
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_NAME = re.compile(r"libnvrtc\.so\.(\d+)")
OLDEST = 13  # of CUDA: older ones have not compiled our headers
DRIVER = Path(__file__).resolve().parent / "nvrtc_driver.py"


def nvrtc_path() -> str | None:
    """The library by CUDA_HOME, beside the nvcc on PATH, or of a Python package, in this order; None where there is
    none that is new enough: other packages bring old ones."""
    return next(map(str, _libraries()), None)


def identity(path: str) -> str:
    """What tells a library from another version of it, without loading it: it is 100 MB."""
    status = Path(path).stat()
    return f"{path}, {status.st_size} bytes, {status.st_mtime_ns}"


def _libraries() -> Iterator[Path]:
    for folder in _folders():
        found = [(int(match[1]), path) for path in _listed(folder) if (match := _NAME.fullmatch(path.name))]
        yield from (path for number, path in sorted(found, reverse=True) if number >= OLDEST)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _folders() -> Iterator[Path]:
    home, nvcc = os.environ.get("CUDA_HOME"), shutil.which("nvcc")
    roots = [Path(home)] if home else []
    roots += [Path(nvcc).resolve().parents[1]] if nvcc else []
    yield from (root / name for root in roots for name in ("lib64", "lib"))
    spec = find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(place).glob("cu*/lib"), reverse=True)
