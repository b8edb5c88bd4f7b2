"""The direct way into a compiled kernel: one Numba function that takes the arrays themselves.

Checking a call in Python takes microseconds, in which the other cores fall asleep; waking them costs a short kernel a
tenth of its time, and more where it streams through the caches that Python lies in. The entry looks at its arguments in
compiled code, makes room for a small workspace and calls `run`, or returns -1 where only `bind_arguments` can tell. It
exists for kernels whose arguments NumPy and Numba both know: arrays dense and of native types, sizes bound or told by
them (`entry_sizes.py`).

    @njit(int64(types.Array(float32, 2, "C", readonly=True), float32[::1], float64))
    def enter(array0, array1, scalar2):
        address0 = array0.ctypes.data
        address1 = array1.ctypes.data
        if array0.shape[0] != 512 or array0.shape[1] != 64 or address0 % 16 != 0:
            return -1
        if array1.shape[0] != 512 or address1 % 16 != 0:
            return -1
        if address0 < address1 + 2048 and address1 < address0 + 131072:
            return -1
        return run(address0, address1, np.float32(scalar2), 0)
"""

from collections.abc import Iterator
from itertools import combinations
from math import prod

from texpr.codegen.cpu.context import Writer
from texpr.codegen.cpu.entry_sizes import MOST, EntrySizes, NotAskedError, is_dense
from texpr.codegen.cpu.launch import ELEMENT
from texpr.codegen.manifest import ALIGNMENT_BYTES, Manifest, Parameter
from texpr.grammar.records import dataclass
from texpr.grammar.types import ELEMENT_TYPES

CLOSER_LOOK = -1
MAX_WORKSPACE_BYTES = 1 << 20  # of which no machine has too little
MAX_PARAMETERS = 16  # the pairs that may overlap grow with the square

_CARRIED = ("f16", "bf16", "f8e4m3", "f8e5m2")  # as integers of their width
_NATIVE = {name: text for name, text in ELEMENT.items() if name not in _CARRIED} | {"bool": "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryText:
    """A module text that defines `enter` beside the `run` it calls, and the exact type of each argument: a Python type,
    or None for a NumPy array."""

    source: str
    kinds: tuple[type | None, ...]


def emit_entry(manifest: Manifest, *, checked: bool) -> EntryText | None:
    """The entry of a kernel, whose `run` returns a finding where it is `checked`; None where it has sizes that no array
    tells or a large workspace to allocate, or arguments that Numba does not take as they are (floats of 16 and 8 bits;
    flat, strided or empty buffers)."""
    parameters, room = manifest.parameters, manifest.workspace_bytes
    if len(parameters) > MAX_PARAMETERS or not isinstance(room, int) or room > MAX_WORKSPACE_BYTES:
        return None
    if not all(p.dtype in _NATIVE and (p.scalar or _is_plain(p)) for p in parameters):
        return None
    try:
        sizes = EntrySizes(manifest)
        asked = list(_questions(parameters, sizes))
    except NotAskedError:
        return None

    names = [f"{'scalar' if p.scalar else 'array'}{k}" for k, p in enumerate(parameters)]
    out = Writer()
    out.line("import numpy as np")
    imported = {*_NATIVE.values(), "njit", "types", *(("finding", "finding_type") if checked else ())}
    imported |= {"hold"} if room else set()
    out.line(f"from texpr.codegen.cpu.library import {', '.join(sorted(imported))}")
    out.line()
    out.line(f"@njit({'finding_type' if checked else 'int64'}({', '.join(map(_type_text, parameters))}))")
    with out.block(f"def enter({', '.join(names)}):"):
        for k, parameter in enumerate(parameters):
            if not parameter.scalar:
                out.line(f"address{k} = array{k}.ctypes.data")
        for name, axis in sizes.free.items():
            out.line(f"{name} = {axis}")
        for question in asked:
            with out.block(f"if {question}:"):
                out.line(f"return finding({CLOSER_LOOK}, 0, 0)" if checked else f"return {CLOSER_LOOK}")
        values = [_converted(k, p) if p.scalar else f"address{k}" for k, p in enumerate(parameters)]
        values += sizes.free
        if room:
            out.line(f"memory = np.empty({room + ALIGNMENT_BYTES}, np.uint8)")
            out.line(f"workspace = (memory.ctypes.data + {ALIGNMENT_BYTES - 1}) & -{ALIGNMENT_BYTES}")
            out.line(f"result = run({', '.join([*values, 'workspace'])})")
            out.line("hold(memory)")
            out.line("return result")
        else:
            out.line(f"return run({', '.join([*values, '0'])})")
    return EntryText(source=out.text(), kinds=tuple(map(_kind, parameters)))


def _is_plain(parameter: Parameter) -> bool:
    """Whether an array parameter must be row-major, and may have elements."""
    shape = parameter.shape
    empty = any(isinstance(extent, int) and extent < 1 for extent in shape)
    return bool(shape) and not parameter.flat and not empty and is_dense(parameter)


def _kind(parameter: Parameter) -> type | None:
    if not parameter.scalar:
        return None
    dtype = ELEMENT_TYPES[parameter.dtype]
    return bool if dtype.is_bool else int if dtype.is_integer else float


def _type_text(parameter: Parameter) -> str:
    native, rank = _NATIVE[parameter.dtype], len(parameter.shape)
    if not parameter.scalar and parameter.writes:
        return f"{native}[{':, ' * (rank - 1)}::1]"
    if not parameter.scalar:  # takes writeable arrays, too
        return f'types.Array({native}, {rank}, "C", readonly=True)'
    return {bool: "boolean", int: "int64", float: "float64"}[_kind(parameter) or float]


def _converted(k: int, parameter: Parameter) -> str:
    """A scalar in the type that `run` takes; integers are known to be in range."""
    narrow = ELEMENT_TYPES[parameter.dtype]
    return f"scalar{k}" if narrow.is_bool else f"np.{_NATIVE[parameter.dtype]}(scalar{k})"


def _questions(parameters: tuple[Parameter, ...], sizes: EntrySizes) -> Iterator[str]:
    """What must be false of a call: a size or a shape out of place, a misaligned array or a number out of range; a
    shared byte of two arrays of which one is written. Raises NotAskedError."""
    for name in sizes.free:
        yield f"{name} < 1 or {name} > {MOST}"
    for fact in sizes.facts:
        yield f"not {fact}"
    for k, parameter in enumerate(parameters):
        dtype = ELEMENT_TYPES[parameter.dtype]
        if not parameter.scalar:
            extents = map(sizes.expression, parameter.shape)
            wrong = [f"array{k}.shape[{axis}] != {extent}" for axis, extent in enumerate(extents)]
            yield " or ".join([*wrong, f"address{k} % {max(parameter.align, 1)} != 0"])
        elif dtype.is_integer and not dtype.is_bool and dtype.bits < 64:
            low, high = dtype.integer_range
            yield f"scalar{k} < {low} or scalar{k} > {high}"
    arrays = [(k, p, _bytes(k, p)) for k, p in enumerate(parameters) if not p.scalar]
    for (i, one, size), (j, other, room) in combinations(arrays, 2):
        if one.writes or other.writes:
            yield f"address{i} < address{j} + {room} and address{j} < address{i} + {size}"


def _bytes(k: int, parameter: Parameter) -> str:
    """The length of an array, as a number or by what was given."""
    known = [extent for extent in parameter.shape if isinstance(extent, int)]
    if len(known) < len(parameter.shape):
        return f"array{k}.nbytes"
    return str(prod(known) * ELEMENT_TYPES[parameter.dtype].size_bytes)
