"""Running folds of a row in place: vectors of its elements, in as many steps as they have doublings, onto a total.

    total = running_add(row, first, count, total)     for k < count: total += row[first + k] ; row[first + k] = total

    [a, b, c, d]  ->  [a, a+b, b+c, c+d]  ->  [a, a+b, a+b+c, a+b+c+d]  ->  each onto total

A vector is folded in the row's type, and onto the total in the total's, which is rounded where it goes to the row.
Elements that are no whole vector are folded one after the other.

Importing this module imports Numba.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from llvmlite import ir
from numba import njit

from texpr.codegen.cpu.intrinsics import Gen, cgutils, intrinsic, types
from texpr.codegen.cpu.multiply import LANE
from texpr.polyhedral.target import CPU_SCAN_LANES

LANES = CPU_SCAN_LANES  # elements of a vector: LLVM makes several of it where registers are shorter
STEPS = [1 << step for step in range((LANES - 1).bit_length())]  # from a lane to the one whose fold it takes

Fold = Callable[[Any, Any, Any, bool], Any]
"""The instruction of a builder on two values, scalars or vectors; of signed integers, or not."""


def _plain(of_floats: str, of_integers: str) -> Fold:
    def fold(builder: Any, left: Any, right: Any, signed: bool) -> Any:
        return getattr(builder, of_integers if _is_integer(left.type) else of_floats)(left, right)

    return fold


def _extreme(name: str, comparison: str) -> Fold:
    def fold(builder: Any, left: Any, right: Any, signed: bool) -> Any:
        kind = left.type
        if _is_integer(kind):
            compare = builder.icmp_signed if signed else builder.icmp_unsigned
            return builder.select(compare(comparison, left, right), left, right)
        lanes = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
        suffix = lanes + ("f32" if _element(kind) == ir.FloatType() else "f64")
        called = ir.FunctionType(kind, [kind, kind])
        function = cgutils.get_or_insert_function(builder.module, called, f"llvm.{name}.{suffix}")
        return builder.call(function, [left, right], fastmath=("nsz",))

    return fold


def _element(kind: Any) -> Any:
    return kind.element if isinstance(kind, ir.VectorType) else kind


def _is_integer(kind: Any) -> bool:
    return isinstance(_element(kind), ir.IntType)


def _least(kind: Any) -> float | int:
    return -inf if isinstance(kind, types.Float) else kind.minval


def _greatest(kind: Any) -> float | int:
    return inf if isinstance(kind, types.Float) else kind.maxval


def _vector_fold(fold: Fold, nothing: Callable[[Any], float | int]) -> Any:
    """A vector of the row, folded onto the total: `(row, first, total) -> total`. `nothing`, of a type, changes no
    value, not 0 to -0 either."""

    def typed(context: Any, row: Any, first: Any, total: Any) -> tuple[Any, Gen]:
        kind, signed = row.dtype, getattr(row.dtype, "signed", True)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            vector = ir.VectorType(context.get_data_type(kind), LANES)
            address = builder.bitcast(builder.gep(args[0], [args[1]]), vector.as_pointer())
            lanes = builder.load(address, align=kind.bitwidth // 8)
            none = ir.Constant(vector, [nothing(kind)] * LANES)
            for step in STEPS:
                moved = [LANES + lane - step if lane >= step else lane for lane in range(LANES)]
                lanes = fold(builder, _shuffled(builder, none, lanes, moved), lanes, signed)
            wide = lanes if kind == total else builder.fpext(lanes, ir.VectorType(args[2].type, LANES))
            start = builder.insert_element(ir.Constant(wide.type, ir.Undefined), args[2], ir.Constant(LANE, 0))
            wide = fold(builder, _shuffled(builder, start, start, [0] * LANES), wide, signed)
            rounded = wide if kind == total else builder.fptrunc(wide, vector)
            builder.store(rounded, address, align=kind.bitwidth // 8)
            return builder.extract_element(wide, ir.Constant(LANE, LANES - 1))

        return total(row, types.int64, total), generate

    return intrinsic(typed)


def _shuffled(builder: Any, left: Any, right: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(LANE, LANES), lanes))


def _element_fold(fold: Fold) -> Any:
    """The same of one element."""

    def typed(context: Any, row: Any, at: Any, total: Any) -> tuple[Any, Gen]:
        kind, signed = row.dtype, getattr(row.dtype, "signed", True)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            address = builder.gep(args[0], [args[1]])
            value = builder.load(address)
            wide = value if kind == total else builder.fpext(value, args[2].type)
            result = fold(builder, args[2], wide, signed)
            builder.store(result if kind == total else builder.fptrunc(result, value.type), address)
            return result

        return total(row, types.int64, total), generate

    return intrinsic(typed)


def _running(fold: Fold, nothing: Callable[[Any], float | int]) -> Any:
    vector, element = _vector_fold(fold, nothing), _element_fold(fold)

    def running(row: Any, first: Any, count: Any, total: Any) -> Any:
        vectors = max(0, count) // LANES
        for number in range(vectors):
            total = vector(row, first + LANES * number, total)
        for at in range(LANES * vectors, count):
            total = element(row, first + at, total)
        return total

    return njit(error_model="numpy", boundscheck=False, forceinline=True)(running)


running_add = _running(_plain("fadd", "add"), lambda kind: -0.0 if isinstance(kind, types.Float) else 0)
running_mul = _running(_plain("fmul", "mul"), lambda kind: 1)
running_max = _running(_extreme("maximum", ">"), _least)
running_min = _running(_extreme("minimum", "<"), _greatest)
