"""Floats of 8 and 16 bits on the CPU, carried as their bits: exact conversion to and from f32.

Numba has no such types, so arrays of them are `uint16` or `uint8`, and emitted code computes in f32. Every format is
one row of a table (fraction bits, exponent bias, specials); the conversions are branch-free apart from selects, so
LLVM vectorises them. Rounding is to nearest even, once: wider sources are first rounded to odd (Boldo and Melquiond,
IEEE Trans. Computers 57, 2008). f8 saturates, NaN stays NaN, denormals are kept.

    f8e4m3: encode(1.0e6) = 0x7e (448)   encode(nan) = 0x7f   decode(0x01) = 2 ** -9
"""

import platform
from collections.abc import Callable
from typing import Any

import numpy as np

from texpr.codegen.cpu.intrinsics import bits_of_f32, f32_of_bits, f32_to_half, half_to_f32, inline
from texpr.grammar.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A narrow float: `fraction` explicit bits, exponent `bias`, `special` the least magnitude that is infinity or
    NaN, `nan` the NaN that encoding makes, `ceiling` the greatest f32 that finite values saturate to (None: they
    overflow to infinity)."""

    bits: int
    fraction: int
    bias: int
    special: int
    nan: int
    ceiling: float | None


FORMATS: dict[str, Format] = {
    "f16": Format(bits=16, fraction=10, bias=15, special=0x7C00, nan=0x7E00, ceiling=None),
    "bf16": Format(bits=16, fraction=7, bias=127, special=0x7F80, nan=0x7FC0, ceiling=None),
    "f8e4m3": Format(bits=8, fraction=3, bias=7, special=0x7F, nan=0x7F, ceiling=448.0),
    "f8e5m2": Format(bits=8, fraction=2, bias=15, special=0x7C, nan=0x7E, ceiling=57344.0),
}


def make_decode(form: Format) -> Any:
    """The Numba function from bits to f32 of a format."""
    if form.bias == 127:  # the upper half of an f32

        def upper(code: Any) -> Any:
            return f32_of_bits(np.uint32(np.uint32(code) << np.uint32(16)))

        return inline(upper)

    shift = np.uint32(23 - form.fraction)
    magnitude_mask = np.uint32((1 << (form.bits - 1)) - 1)
    sign_shift = np.uint32(32 - form.bits)
    sign_mask = np.uint32(1 << 31)
    special = np.uint32(form.special)
    exponent = np.uint32(0x7F800000 if form.ceiling != 448.0 else 0x7FC00000)
    scale = np.float32(2.0 ** (127 - form.bias))

    def decode(code: Any) -> Any:
        wide = np.uint32(code)
        magnitude = np.uint32(wide & magnitude_mask)
        sign = np.uint32(np.uint32(wide << sign_shift) & sign_mask)
        placed = np.uint32(magnitude << shift)
        finite = bits_of_f32(np.float32(f32_of_bits(placed) * scale))  # also normalises denormals, exactly
        chosen = np.uint32(placed | exponent) if magnitude >= special else finite
        return f32_of_bits(np.uint32(chosen | sign))

    return inline(decode)


def make_encode(form: Format) -> Any:
    """The Numba function from f32 to bits of a format."""
    shift = np.uint32(23 - form.fraction)
    one = np.uint32(1)
    below_half = np.uint32((1 << (22 - form.fraction)) - 1)
    rebias = np.uint32(((form.bias - 127) << 23) & 0xFFFFFFFF)
    least_normal = np.uint32((128 - form.bias) << 23)
    magic = np.float32(2.0 ** (24 - form.bias - form.fraction)) if form.bias < 127 else np.float32(0.0)
    magic_bits = np.uint32(magic.view(np.uint32))
    sign_shift = np.uint32(32 - form.bits)
    sign_mask = np.uint32(1 << (form.bits - 1))
    magnitude_mask = np.uint32(0x7FFFFFFF)
    infinity = np.uint32(0x7F800000)
    nan = np.uint32(form.nan)
    saturating = form.ceiling is not None
    top = np.uint32(np.float32(form.ceiling if form.ceiling is not None else 0.0).view(np.uint32))
    exponents = 1 << (form.bits - 1 - form.fraction)
    overflow = np.uint32((exponents - 1 - form.bias + 127) << 23)  # the least power of two that has no finite code
    above = np.uint32(form.special)
    has_denormals = form.bias < 127
    result = np.uint16 if form.bits == 16 else np.uint8

    def encode(value: Any) -> Any:
        word = bits_of_f32(value)
        sign = np.uint32(np.uint32(word >> sign_shift) & sign_mask)
        size = np.uint32(word & magnitude_mask)
        is_nan = size > infinity
        if saturating:
            size = top if size > top else size
        tie = np.uint32(np.uint32(size >> shift) & one)
        code = np.uint32(np.uint32(size + rebias + below_half + tie) >> shift)
        if has_denormals:
            small = np.uint32(bits_of_f32(np.float32(f32_of_bits(size) + magic)) - magic_bits)
            code = small if size < least_normal else code
        if not saturating:
            code = above if size >= overflow else code
        code = nan if is_nan else code
        return result(np.uint32(code | sign))

    return inline(encode)


def has_half_instructions() -> bool:
    """Whether this machine converts f16 in hardware, so that LLVM needs no library call for it."""
    from llvmlite import binding

    if platform.machine().lower() in ("aarch64", "arm64"):
        return True
    return bool(binding.get_host_cpu_features().get("f16c", False))


def _odd_f32(value: Any) -> Any:
    """f64 to f32, rounded to odd: a second rounding to 16 bits or fewer is then exact."""
    near = np.float32(value)
    wide = np.float64(near)
    word = bits_of_f32(near)
    beyond = abs(wide) > abs(value)
    truncated = np.uint32(word - np.uint32(1)) if beyond else word
    inexact = (wide != value) and (value == value)
    return f32_of_bits(np.uint32(truncated | np.uint32(1)) if inexact else word)


def _odd_f32_of_i64(value: Any) -> Any:
    """i64 to f32, rounded to odd."""
    sticky = np.int64(value >> 11) | np.int64((value & 0x7FF) != 0)
    small = -(1 << 52) < value < (1 << 52)
    return odd_f32(np.float64(value) if small else np.float64(sticky) * 2048.0)


odd_f32 = inline(_odd_f32)
odd_f32_of_i64 = inline(_odd_f32_of_i64)

decode: dict[str, Callable[..., Any]] = {name: make_decode(form) for name, form in FORMATS.items()}
encode: dict[str, Callable[..., Any]] = {name: make_encode(form) for name, form in FORMATS.items()}
if has_half_instructions():
    decode["f16"], encode["f16"] = half_to_f32, f32_to_half
