"""The `.npz` files of `texpr run`: data from outside, read by their headers first, never unpickled; written whole."""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from texpr.grammar.diagnostics import TExprError, fail
from texpr.trial_memory import check_count

if TYPE_CHECKING:
    from texpr.codegen.manifest import Manifest

MAX_ITEM_BYTES = 16  # of one element: more is none of our types, and could be any amount of memory


def load_inputs(path: Path, manifest: "Manifest") -> dict[str, Any]:
    """The arrays of an .npz by parameter name. Raises E0606 for what is no such file, E0601 for a name that is no
    parameter's, E0602 for an array too large to run with."""
    try:
        if path.exists() and not path.is_file():
            raise fail("E0606", f"{path} is not a file")
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            names = [p.name for p in manifest.parameters]
            for name in members:
                if name not in names:
                    why = f"{path} holds {name[:80]!r}, and {manifest.name} has no such parameter"
                    raise fail("E0601", why, help=f"the parameters are {', '.join(names)}")
            return {name: _read(archive, member, name) for name, member in members.items()}
    except (TExprError, MemoryError):
        raise
    except OSError as why:
        raise fail("E0606", f"{path} cannot be read: {why.strerror or why}") from None
    except Exception as why:  # zipfile, zlib, lzma and NumPy have many classes of errors for a damaged file
        said = str(why)[:200] or type(why).__name__
        raise fail("E0606", f"{path} is not a readable .npz: {said}") from None


def _read(archive: zipfile.ZipFile, member: str, name: str) -> Any:
    """One array. ValueError for what is none, E0602 for one too large."""
    import numpy

    with archive.open(member) as file:
        shape, is_fortran, dtype = _header(file)
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, not numbers")
        if dtype.itemsize > MAX_ITEM_BYTES:
            raise ValueError(f"{name} has elements of {dtype.itemsize} bytes")
        if not all(type(extent) is int and extent >= 0 for extent in shape):
            raise ValueError(f"{name} has no possible shape")
        count = math.prod(shape)
        check_count(name, count)
        size = count * dtype.itemsize
        if size > archive.getinfo(member).file_size:  # before memory is asked for
            raise ValueError(f"{name} is shorter than its header says")
        data = file.read(size)
        if len(data) != size or file.read(1):  # the read at the end also verifies the checksum
            raise ValueError(f"{name} has another length than its header says")
    array = numpy.frombuffer(data, dtype)
    return array.reshape(shape[::-1]).transpose() if is_fortran else array.reshape(shape)


def _header(file: IO[bytes]) -> tuple[tuple[Any, ...], bool, Any]:
    """Shape, whether the first dimension is the fastest, and type of the array that follows."""
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    if version == (1, 0):
        return npy.read_array_header_1_0(file)
    if version == (2, 0):
        return npy.read_array_header_2_0(file)
    raise ValueError(f"version {version} of the .npy format is not read")


def save_arrays(path: Path, values: Mapping[str, Any]) -> None:
    """Write an .npz; bf16 and f8 arrays as raw bytes of their width, which `load_inputs` takes back."""
    import io

    import numpy

    from texpr.inspect import write_whole
    from texpr.runtime.host_arrays import storable

    memory = io.BytesIO()
    arrays = {name: storable(numpy.asarray(value)) for name, value in values.items()}
    numpy.savez(memory, allow_pickle=False, **arrays)
    write_whole(path, memory.getvalue())
