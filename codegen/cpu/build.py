"""From emitted text to a callable: the module is executed, which compiles every function to its explicit signature.

Only text that `emit_cpu` made is executed. Numba is imported here, at the first build.
"""

from collections.abc import Callable, Sequence
from typing import Any

from texpr.codegen.cpu.emit import CpuText
from texpr.codegen.cpu.entry import CLOSER_LOOK, EntryText, emit_entry
from texpr.codegen.manifest import Manifest
from texpr.grammar.diagnostics import InternalError, TExprError, error, fail
from texpr.grammar.records import dataclass
from texpr.grammar.types import ELEMENT_TYPES, F64

REFUSALS = (TypeError, ValueError, OverflowError)  # of an array of other strides or types, a number of 65 bits


@dataclass(frozen=True, slots=True)
class Entry:
    """The compiled way in of a kernel that nothing can stop behind it: `run` takes the arguments, of exactly these
    `kinds`, and returns 0, or another number where nothing ran, as it did not where one of the `refusals` is raised."""

    run: Callable[..., int]
    kinds: tuple[type, ...]
    refusals: tuple[type[Exception], ...] = REFUSALS


class CpuKernel:
    """A compiled kernel. `arguments` are (name, kind, element type) of what a call takes, in order: arrays as NumPy
    arrays in the declared strides or as addresses, scalars and sizes as numbers, the workspace as an array of bytes
    aligned to 256 or an address (0 for none). Shapes are the caller's to check.

    Raises E0604 when a gathered subscript left its dimension; what was written before stays written."""

    def __init__(self, scope: dict[str, Any], kinds: tuple[type, ...] | None) -> None:
        self.arguments: tuple[tuple[str, str, str], ...] = scope["ARGUMENTS"]
        self._checks: tuple[tuple[str, str], ...] = scope["CHECKS"]
        self._run: Callable[..., Any] = scope["run"]  # a finding where there are checks, else 0
        self._convert = tuple(_converter(kind, dtype) for _, kind, dtype in self.arguments)
        self._enter: Callable[..., Any] | None = scope.get("enter")
        self._kinds = kinds

    @property
    def entry(self) -> Entry | None:
        """None where `bind_arguments` tells every call, or what data says may end one."""
        if self._enter is None or self._kinds is None or self._checks:
            return None
        return Entry(self._enter, self._kinds)

    def __call__(self, *values: Any) -> None:
        self.run_converted([convert(value) for convert, value in zip(self._convert, values, strict=True)])

    def run_converted(self, values: list[Any]) -> None:
        """The same for addresses and numbers that need no conversion."""
        found = self._run(*values)
        if self._checks and found[0]:
            raise self._failed(*found)

    def enter(self, args: Sequence[Any]) -> bool:
        """The call with arrays and numbers themselves, shapes, alignment and overlap checked in compiled code. False:
        nothing ran, and `bind_arguments` has to tell whether anything is wrong."""
        if self._enter is None or tuple(map(type, args)) != self._kinds:
            return False
        try:
            found = self._enter(*args)
        except REFUSALS:
            return False
        code = found[0] if self._checks else found
        if code and code != CLOSER_LOOK:
            raise self._failed(*found)
        return bool(code == 0)

    def _failed(self, number: int, value: int, extent: int) -> TExprError:
        message, where = self._checks[number - 1]
        message = message.replace(" is VALUE, ", f" is {value}, ").replace(" has EXTENT ", f" has {extent} ")
        file, _, line = where.rpartition(":")
        witness = {"kind": "gather", "file": file, "line": int(line), "value": value, "extent": extent}
        return TExprError([error("E0604", message, notes=(f"at {where}",), witness=witness)])


def _address(value: Any) -> int:
    if isinstance(value, int):
        return value
    address: int = value.__array_interface__["data"][0]
    return address


def _converter(kind: str, name: str) -> Callable[[Any], Any]:
    if kind in ("array", "workspace"):
        return _address
    if kind == "size":
        return int
    dtype = ELEMENT_TYPES[name]
    if dtype.is_bool:
        return bool
    if dtype.is_integer:
        return int
    if dtype.bits >= 32:
        return float  # Numba rounds it to the nearest f32

    def bits(value: Any) -> int:
        import numpy as np

        from texpr.grammar.numerics import cast

        stored = cast(np.asarray(float(value)), F64, dtype)
        return int.from_bytes(stored.tobytes(), "little")

    return bits


def build_cpu(text: CpuText | str, manifest: Manifest | None = None) -> CpuKernel:
    """The callable of an emitted module, given as it came from `emit_cpu` or as its source alone; with an entry where
    the manifest is given and allows one. Raises E0503 when Numba cannot be imported."""
    try:
        import numba  # noqa: F401 -- asked for here, so that its absence is a diagnostic
        from numpy import ndarray
    except ImportError:
        raise fail("E0503", "the target cpu needs Numba", help="install it: pip install numba") from None
    scope: dict[str, Any] = {"__name__": "texpr_cpu_module"}
    entry: EntryText | None = None
    try:
        _execute(text if isinstance(text, str) else text.source, scope)
        if manifest is not None:
            entry = emit_entry(manifest, checked=bool(scope["CHECKS"]))
        if entry is not None:
            _execute(entry.source, scope)
    except Exception as cause:
        raise InternalError(f"Numba refused the emitted text: {cause}") from cause
    return CpuKernel(scope, tuple(kind or ndarray for kind in entry.kinds) if entry else None)


def _execute(source: str, scope: dict[str, Any]) -> None:
    exec(compile(source, "<texpr cpu module>", "exec"), scope)
