"""Tensor maps of a launch: made where an array first is, and kept, for encoding one takes as long as a launch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from texpr.codegen.manifest import MapArgument, evaluate
from texpr.codegen.tensor_map import TensorMap, address_fault, array_fault
from texpr.grammar.diagnostics import TExprError, fail
from texpr.grammar.types import ELEMENT_TYPES

if TYPE_CHECKING:
    from texpr.runtime.launch import Backend

MAX_MAPS = 64  # addresses of one argument


class MapMaker:
    """One argument of one launch at given sizes, of an array that begins at `address`, or as many bytes behind a
    multiple of tensor maps' own. Raises E0601 for an array of which there is no tensor map."""

    def __init__(self, kernel: str, argument: MapArgument, values: Mapping[str, int], address: int) -> None:
        self._kernel, self._argument = kernel, argument
        self._element_bytes = ELEMENT_TYPES[argument.dtype].size_bytes
        self._shape = tuple(evaluate(extent, values) for extent in argument.shape)
        self._strides = tuple(evaluate(step, values) * self._element_bytes for step in argument.strides)
        self._made: dict[int, Any] = {}
        fault = array_fault(self._shape, self._strides, self._element_bytes) or address_fault(address)
        if fault is not None:
            raise self._refused(fault)

    def at(self, address: int, backend: "Backend") -> Any:
        """The backend's argument for an array that begins there."""
        found = self._made.get(address)  # once: another thread may empty what is kept
        if found is None:
            if len(self._made) >= MAX_MAPS:
                self._made.clear()
            found = self._made[address] = backend.tensor_map(self._described(address))
        return found

    def _described(self, address: int) -> TensorMap:
        own = self._argument
        return TensorMap(
            address=address,
            dtype=own.dtype,
            element_bytes=self._element_bytes,
            shape=self._shape,
            strides_bytes=self._strides,
            box=own.box,
            swizzle_bytes=own.swizzle_bytes,
            promotion_bytes=own.promotion_bytes,
        )

    def _refused(self, fault: str) -> TExprError:
        why = f"{self._kernel}: {self._argument.array} is copied by a tensor map: {fault}"
        return fail("E0601", why, help="pad the rows of the array, or pass it at an aligned address")
