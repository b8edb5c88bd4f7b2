"""From emitted text to a callable: the module is executed, which compiles every function to its explicit signature.

Only text that `emit_cpu` made is executed. Numba is imported here, at the first build.
"""

from collections.abc import Callable
from typing import Any

from texpr.codegen.cpu.context import Check
from texpr.codegen.cpu.emit import CpuParameter, CpuText
from texpr.grammar.diagnostics import InternalError, TExprError, error, fail
from texpr.grammar.types import ELEMENT_TYPES


class CpuKernel:
    """A compiled kernel. Call it with one value for each of `parameters`, in order: arrays as NumPy arrays in the
    declared strides (or addresses), scalars and sizes as numbers, the workspace as an array of bytes aligned to 256
    (or an address; 0 when there is none). Shapes are the caller's to check. Raises E0604 when a gathered subscript
    left its dimension."""

    def __init__(self, text: CpuText, run: Callable[..., int]) -> None:
        self.name = text.name
        self.parameters: tuple[CpuParameter, ...] = text.parameters
        self.checks: tuple[Check, ...] = text.checks
        self._run = run
        self._convert = tuple(_converter(p) for p in text.parameters)

    def __call__(self, *values: Any) -> None:
        code = self._run(*[convert(value) for convert, value in zip(self._convert, values, strict=True)])
        if code:
            check = self.checks[code - 1]
            raise TExprError([error("E0604", check.message, check.span, "an iteration reaches beyond it")])


def _address(value: Any) -> int:
    if isinstance(value, int):
        return value
    address: int = value.__array_interface__["data"][0]
    return address


def _converter(parameter: CpuParameter) -> Callable[[Any], Any]:
    if parameter.kind in ("array", "workspace"):
        return _address
    if parameter.kind == "size":
        return int
    dtype = ELEMENT_TYPES[parameter.dtype]
    if dtype.is_bool:
        return bool
    if dtype.is_integer:
        return int
    if dtype.bits >= 32:
        return float

    def bits(value: Any) -> int:
        import numpy as np

        from texpr.grammar.numerics import cast
        from texpr.grammar.types import F64

        stored = cast(np.asarray(float(value)), F64, dtype)
        return int.from_bytes(stored.tobytes(), "little")

    return bits


def build_cpu(text: CpuText) -> CpuKernel:
    """The callable of an emitted module. Raises E0503 when Numba cannot be imported."""
    try:
        import numba  # noqa: F401
    except ImportError:
        raise fail("E0503", "the target cpu needs Numba", help="install it: pip install numba") from None
    filename = f"<texpr cpu {text.name}>"
    scope: dict[str, Any] = {"__name__": "texpr_cpu_module"}
    try:
        exec(compile(text.source, filename, "exec"), scope)
    except Exception as cause:
        raise InternalError(f"Numba refused the text of {text.name}: {cause}") from cause
    return CpuKernel(text, scope["run"])
