"""Elementary functions of f32 on the CPU as arithmetic alone, which LLVM vectorises: a call of the C library would run
once for each element.

None has a branch: every way is computed, and one selected. Polynomials are minimax ones of a relative error below
2^-27, evaluated by fused multiply-adds; 2^n is made of the bits of n + 1.5 * 2^23. NaN, infinities, zeros and denormals
are as in IEEE. `tests/codegen/test_cpu_elementary.py` has their errors, below those of `docs/numerics.md`.

    exp(x) = 2^n * (1 + r + r^2 * p(r)),   n = round(x / log(2)),   r = x - n * log(2)

Importing this module imports Numba.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir

from texpr.codegen.cpu.intrinsics import Gen, bits_of_f32, cgutils, f32_of_bits, fabs, fma, inline, intrinsic

f32, u32 = np.float32, np.uint32

ONE, TWO, HALF, INFINITY, NAN = f32(1.0), f32(2.0), f32(0.5), f32(math.inf), f32(math.nan)
SIGN, EXPONENT = u32(0x80000000), u32(0xFF800000)

MAGIC = f32(1.5 * 2**23)  # a float this large has no fraction: the last bits of n + MAGIC are those of n
MAGIC_BITS = u32(int(MAGIC.view(u32)) - 256)
LN2, LOG2E = f32(math.log(2)), f32(1 / math.log(2))
LN2_HIGH = f32(0.693359375)  # of ten bits: a product with an exponent is exact
LN2_LOW = f32(math.log(2) - 0.693359375)
LOG2E_LOW = f32(1 / math.log(2) - float(LOG2E))
EXP_LEAST, EXP_MOST = f32(-104.0), f32(89.0)  # beyond these: 0 (selected, for to underflow is slow) and infinity
EXP2_LEAST, EXP2_MOST = f32(-151.0), f32(128.0)

TWO_THIRDS = u32(f32(2 / 3).view(u32))
LEAST_NORMAL, SCALE, SCALED, ZERO = f32(2.0**-126), f32(2.0**23), f32(-23.0), f32(0.0)
EXPONENT_UNIT = f32(2.0**-23)

ERF_FAR, TANH_FAR = f32(0.92), f32(0.55)
NORMAL_TAIL, NORMAL_LEAST = f32(0.5), f32(15.0)  # normcdf(-15) is 0
NORMAL_MIDDLE = f32(2.5)  # of the tail, where the argument of its polynomial is 0
ROOT_HALF = f32(math.sqrt(0.5))


def _polynomial(*coefficients: float) -> Any:
    """The polynomial with these coefficients, the constant first."""

    def typed(context: Any, x: Any) -> tuple[Any, Gen]:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = args[0].type
            fused = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), "llvm.fma.f32")
            result = ir.Constant(kind, coefficients[-1])
            for coefficient in reversed(coefficients[:-1]):
                result = builder.call(fused, [result, args[0], ir.Constant(kind, coefficient)])
            return result

        return x(x), generate

    return intrinsic(typed)


exp_rest = _polynomial(0.4999999404, 0.1666651517, 0.0416684560, 0.0083694188, 0.0013813142)
exp2_rest = _polynomial(
    0.6931471825, 0.2402265072, 0.0555041023, 0.0096180346, 0.0013333950, 0.00015468022, 1.5195023e-05
)
log_rest = _polynomial(
    0.3333333731, -0.2499981225, 0.1999958009, -0.1668000668, 0.1430508047, -0.1218890026, 0.1074611768, -0.1287886053,
    0.1204216927,
)  # fmt: skip
erf_near = _polynomial(
    0.12837916613, -0.37612631917, 0.11283681542, -0.02685862221, 0.00519913295, -0.00081214157, 8.2811806e-05
)
erf_far = _polynomial(
    0.12864848971, 0.63515132666, 0.10623688996, -0.02376207523, 0.00364246522, -0.00032280543, 1.12314701e-05
)
normal_tail = _polynomial(
    0.7066566568, -0.4336921087, 0.1319872673, 0.009238003542, -0.01638969748, -0.001613424349, 0.002536414383,
    0.0007122620416, -0.0003248131068, -0.0001785462801,
)  # fmt: skip
tanh_near = _polynomial(-0.3333330750, 0.1333225667, -0.0538164228, 0.0209202562, -0.0060568452)


def _scaled(x: Any, shifted: Any) -> Any:
    """x * 2^n for `shifted` = n + MAGIC, by two factors: the result may be denormal, or beyond all floats."""
    biased = u32(bits_of_f32(shifted) - MAGIC_BITS)  # n + 256
    half = u32(biased >> u32(1))
    first = f32_of_bits(u32(u32(half - u32(1)) << u32(23)))
    second = f32_of_bits(u32(u32(biased - half - u32(1)) << u32(23)))
    return f32(f32(x * first) * second)


scaled = inline(_scaled)


def _exp(x: Any) -> Any:
    nothing = x < EXP_LEAST
    x = ZERO if nothing else x
    x = EXP_MOST if x > EXP_MOST else x
    shifted = fma(x, LOG2E, MAGIC)
    n = f32(shifted - MAGIC)
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    found = scaled(f32(fma(f32(r * r), exp_rest(r), r) + ONE), shifted)
    return ZERO if nothing else found


def _exp2(x: Any) -> Any:
    nothing = x < EXP2_LEAST
    x = ZERO if nothing else x
    x = EXP2_MOST if x > EXP2_MOST else x
    shifted = f32(x + MAGIC)
    r = f32(x - f32(shifted - MAGIC))
    found = scaled(fma(r, exp2_rest(r), ONE), shifted)
    return ZERO if nothing else found


exp_f32, exp2_f32 = inline(_exp), inline(_exp2)


def _make_log(binary: bool) -> Any:
    def log(x: Any) -> Any:
        small = x < LEAST_NORMAL
        normal = f32(x * SCALE) if small else x
        bits = bits_of_f32(normal)
        exponent = u32(u32(bits - TWO_THIRDS) & EXPONENT)
        m = f32(f32_of_bits(u32(bits - exponent)) - ONE)  # of -1/3 to 1/3
        e = fma(f32(np.int32(exponent)), EXPONENT_UNIT, SCALED if small else ZERO)
        square = f32(m * m)
        rest = fma(m, log_rest(m), -HALF)
        if binary:
            product = f32(m * LOG2E)
            low = fma(m, LOG2E_LOW, fma(m, LOG2E, -product))
            low = fma(f32(square * rest), LOG2E, low)
            whole = f32(e + product)  # what is rounded away here counts where the exponent is 1 and the rest below 0
            found = f32(whole + f32(f32(product - f32(whole - e)) + low))
        else:
            found = fma(e, LN2, fma(rest, square, m))
        found = found if x < INFINITY else f32(x + x)
        found = found if x >= ZERO else NAN
        return -INFINITY if x == ZERO else found

    return inline(log)


log_f32, log2_f32 = _make_log(False), _make_log(True)


def _with_sign(magnitude: Any, x: Any) -> Any:
    return f32_of_bits(u32(bits_of_f32(magnitude) | u32(bits_of_f32(x) & SIGN)))


with_sign = inline(_with_sign)


def _erf(x: Any) -> Any:
    t = fabs(x)
    near = fma(erf_near(f32(x * x)), x, x)
    far = f32(ONE - exp_f32(-fma(erf_far(t), t, t)))
    return with_sign(far, x) if t > ERF_FAR else near


def _tanh(x: Any) -> Any:
    t = fabs(x)
    square = f32(x * x)
    near = fma(f32(tanh_near(square) * square), x, x)
    far = fma(-TWO, f32(ONE / f32(exp_f32(f32(t + t)) + ONE)), ONE)
    return with_sign(far if t > TANH_FAR else near, x)  # that of 0, too


erf_f32, tanh_f32 = inline(_erf), inline(_tanh)


def _normcdf(x: Any) -> Any:
    """Where it is small: exp(-t^2 / 2) times what varies little; the square in two parts, of which the second is what
    rounding took from it."""
    near = fma(HALF, erf_f32(f32(x * ROOT_HALF)), HALF)
    t = -x if x < -NORMAL_TAIL else NORMAL_TAIL  # beside the tail: numbers that are quickly multiplied
    t = NORMAL_LEAST if t > NORMAL_LEAST else t
    square = f32(t * t)
    missed = fma(t, t, -square)
    r = f32(ONE / f32(t + NORMAL_MIDDLE))
    slow = f32(normal_tail(f32(f32(t - NORMAL_MIDDLE) * r)) * r)
    slow = fma(f32(-HALF * missed), slow, slow)
    far = f32(exp_f32(f32(-HALF * square)) * slow)
    return far if x < -NORMAL_TAIL else near


normcdf_f32 = inline(_normcdf)
