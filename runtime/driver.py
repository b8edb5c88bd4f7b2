"""Calls of the CUDA driver that its Python packages do not make: tensor maps, which lie at multiples of 128 bytes, and
launches of which a parameter is one, or that overlap, or whose blocks run together.

The driver says where its functions are (`cuGetProcAddress`); the structures are those of cuda.h.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from texpr.codegen.tensor_map import PROMOTION_BYTES, SWIZZLE_BYTES, TYPES, TensorMap
from texpr.grammar.diagnostics import fail

MAP_BYTES, MAP_ALIGNMENT = 128, 128  # of a CUtensorMap; before CUDA 13 its alignment was 64
COOPERATIVE, OVERLAPPING = 2, 6  # launch attributes: cooperative; programmatic stream serialization


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value is an int here."""

    _fields_ = (("id", ctypes.c_int), ("unused", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_byte * 60))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def driver() -> Any:
    """The driver's own bindings."""
    from cuda.bindings import driver

    return driver


@cache
def _function(name: str, version: int, *types: Any) -> Any:
    """A function of the driver, of that version of CUDA. Raises E0503 for a driver that has none."""
    status, address, _ = driver().cuGetProcAddress(name.encode(), version, 0)
    if int(status) != 0 or not address:
        raise fail("E0503", f"the CUDA driver has no {name}", help="install a newer driver")
    return ctypes.CFUNCTYPE(ctypes.c_int, *types)(int(address))


def _check(code: int, what: str) -> None:
    if code != 0:
        raise fail("E0601", f"{what}: {_said(code)}")


def _said(code: int) -> str:
    bindings = driver()
    status, name = bindings.cuGetErrorName(bindings.CUresult(code))
    return name.decode() if int(status) == 0 else f"CUresult {code}"


def encode(found: TensorMap) -> Any:
    """The tensor map as the driver writes it: what a launch passes by value. Raises E0601 where the driver refuses."""
    memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    place = -(-ctypes.addressof(memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT
    rank = len(found.shape)
    u32, u64, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
    call = _function(
        "cuTensorMapEncodeTiled", 12000, pointer, ctypes.c_int, u32, pointer, pointer, pointer, pointer, pointer,
        ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int,
    )  # fmt: skip
    shape = (u64 * rank)(*reversed(found.shape))
    strides = (u64 * max(rank - 1, 1))(*reversed(found.strides_bytes[:-1]))
    box, steps = (u32 * rank)(*reversed(found.box)), (u32 * rank)(*[1] * rank)
    no_interleave, zeros_beyond = 0, 0
    swizzle, promotion = SWIZZLE_BYTES[found.swizzle_bytes][1], PROMOTION_BYTES[found.promotion_bytes][1]
    numbers = no_interleave, swizzle, promotion, zeros_beyond
    code = call(place, TYPES[found.dtype][1], rank, found.address, shape, strides, box, steps, *numbers)
    _check(code, f"the driver makes no tensor map of {found}")
    result: Any = (ctypes.c_byte * MAP_BYTES).from_address(place)
    result.kept = memory
    return result


def launch(
    function: int,
    grid: Sequence[int],
    block: Sequence[int],
    shared_bytes: int,
    stream: int,
    arguments: Sequence[Any],
    *,
    attributes: Sequence[int],
    symbol: str,
) -> None:
    """Enqueue a kernel with arguments of ctypes, pointers as integers. Raises E0601 when the driver refuses."""
    values = [ctypes.c_uint64(value) if isinstance(value, int) else value for value in arguments]
    pointers = (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
    config = _Config(
        grid=tuple(grid),
        block=tuple(block),
        shared_bytes=shared_bytes,
        stream=stream,
        attributes=(_Attribute * max(len(attributes), 1))(*(_Attribute(id=id, value=1) for id in attributes)),
        count=len(attributes),
    )
    void = ctypes.c_void_p
    call = _function("cuLaunchKernelEx", 11080, ctypes.POINTER(_Config), void, void, void)
    _check(call(config, function, pointers, None), f"the launch of {symbol} failed")
