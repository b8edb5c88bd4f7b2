#line 2 "/texpr/include/texpr/math.cuh"
// Arithmetic and functions on values. Integers wrap, division floors and gives 0 for a divisor 0, shifts by a count
// outside the type shift everything out, min and max propagate NaN, round is to even. Functions are the accurate ones but where `#fast` permits others.
#pragma once
#include "texpr/convert.cuh"

namespace tx {

// ---- integers ----

template <class T, IfValue<T> = 0>
TX_FN T wrap_add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <class T, IfValue<T> = 0>
TX_FN T wrap_sub(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <class T, IfValue<T> = 0>
TX_FN T wrap_mul(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) * static_cast<Unsigned<T>>(b));
}
template <class T, IfValue<T> = 0>
TX_FN T wrap_neg(T a) {
  return static_cast<T>(Unsigned<T>(0) - static_cast<Unsigned<T>>(a));
}
template <class T, IfValue<T> = 0>
TX_FN T floor_div(T a, T b) {
  if (b == 0) return 0;
  if constexpr (is_signed<T>) {
    if (b == -1) return wrap_neg(a);  // the least value has no negative, and the machine would trap
    const T q = static_cast<T>(a / b);
    return static_cast<T>(a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q);
  } else {
    return static_cast<T>(a / b);
  }
}
template <class T, IfValue<T> = 0>
TX_FN T floor_mod(T a, T b) {
  if (b == 0) return 0;
  if constexpr (is_signed<T>) {
    if (b == -1) return 0;
    const T r = static_cast<T>(a % b);
    return static_cast<T>(r != 0 && (r < 0) != (b < 0) ? r + b : r);
  } else {
    return static_cast<T>(a % b);
  }
}
// floor_div and floor_mod of what is not below -b, by a known b: it takes fewer instructions to divide without a sign.
TX_FN i32 near_div(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a + b) / static_cast<u32>(b)) - 1; }
TX_FN i32 near_mod(i32 a, i32 b) { return static_cast<i32>(static_cast<u32>(a + b) % static_cast<u32>(b)); }
template <class T, IfValue<T> = 0>
TX_FN T ceil_div(T a, T b) {
  return wrap_neg(floor_div(wrap_neg(a), b));
}
template <class T, IfValue<T> = 0>
TX_FN T shl(T a, T count) {
  const Unsigned<T> places = static_cast<Unsigned<T>>(count);  // a negative count is a large one
  return places < 8 * sizeof(T) ? static_cast<T>(static_cast<Unsigned<T>>(a) << places) : static_cast<T>(0);
}
template <class T, IfValue<T> = 0>
TX_FN T shr(T a, T count) {
  const Unsigned<T> places = static_cast<Unsigned<T>>(count);
  if (places < 8 * sizeof(T)) return static_cast<T>(a >> places);
  if constexpr (is_signed<T>) {
    return static_cast<T>(a < 0 ? -1 : 0);  // the sign fills from the left
  } else {
    return 0;
  }
}

// ---- both ----

template <class T, IfValue<T> = 0>
TX_FN T min(T a, T b) {
  return b < a ? b : a;
}
template <class T, IfValue<T> = 0>
TX_FN T max(T a, T b) {
  return a < b ? b : a;
}
template <class T, IfValue<T> = 0>
TX_FN T abs(T a) {
  if constexpr (is_signed<T>) {
    return a < 0 ? wrap_neg(a) : a;
  } else {
    return a;
  }
}
// One rounding for floats; integers wrap.
template <class T, IfValue<T> = 0>
TX_FN T fma(T a, T b, T c) {
  return wrap_add(wrap_mul(a, b), c);
}

// ---- literals ----

// Behind a call, a compiler does not warn of a literal divisor that is zero, or of unsigned numbers below zero.
template <class T, IfValue<T> = 0>
TX_FN bool less(T a, T b) {
  return a < b;
}
template <class T, IfValue<T> = 0>
TX_FN T div(T a, T b) {
  return a / b;
}

// ---- floats ----
template <>
TX_FN f64 min(f64 a, f64 b) {
  return a < b || a != a ? a : b;
}
template <>
TX_FN f64 max(f64 a, f64 b) {
  return a > b || a != a ? a : b;
}

#if defined(TX_HOST)
template <>
TX_FN f32 min(f32 a, f32 b) {
  return a < b || a != a ? a : b;
}
template <>
TX_FN f32 max(f32 a, f32 b) {
  return a > b || a != a ? a : b;
}
// Built with contraction off, so the plain operations round one by one.
TX_FN f32 strict_mul(f32 a, f32 b) { return a * b; }
TX_FN f64 strict_mul(f64 a, f64 b) { return a * b; }
TX_FN f32 strict_add(f32 a, f32 b) { return a + b; }
TX_FN f64 strict_add(f64 a, f64 b) { return a + b; }
TX_FN f32 strict_sub(f32 a, f32 b) { return a - b; }
TX_FN f64 strict_sub(f64 a, f64 b) { return a - b; }
TX_FN f32 rsqrt(f32 x) { return 1.0f / __builtin_sqrtf(x); }
TX_FN f64 rsqrt(f64 x) { return 1.0 / __builtin_sqrt(x); }
#define TX_C(function) __builtin_##function
#else
template <>
TX_FN f32 min(f32 a, f32 b) {
  f32 c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
template <>
TX_FN f32 max(f32 a, f32 b) {
  f32 c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}
// These are never contracted, whatever the compiler's flags.
TX_FN f32 strict_mul(f32 a, f32 b) { return __fmul_rn(a, b); }
TX_FN f64 strict_mul(f64 a, f64 b) { return __dmul_rn(a, b); }
TX_FN f32 strict_add(f32 a, f32 b) { return __fadd_rn(a, b); }
TX_FN f64 strict_add(f64 a, f64 b) { return __dadd_rn(a, b); }
TX_FN f32 strict_sub(f32 a, f32 b) { return __fsub_rn(a, b); }
TX_FN f64 strict_sub(f64 a, f64 b) { return __dsub_rn(a, b); }
TX_FN f32 rsqrt(f32 x) { return ::rsqrtf(x); }
TX_FN f64 rsqrt(f64 x) { return ::rsqrt(x); }
#define TX_C(function) ::function
#endif

template <>
TX_FN f32 fma(f32 a, f32 b, f32 c) {
  return TX_C(fmaf)(a, b, c);
}
template <>
TX_FN f64 fma(f64 a, f64 b, f64 c) {
  return TX_C(fma)(a, b, c);
}
TX_FN f32 pow(f32 x, f32 y) { return TX_C(powf)(x, y); }
TX_FN f64 pow(f64 x, f64 y) { return TX_C(pow)(x, y); }

#define TX_UNARY(name, function)                         \
  TX_FN f32 name(f32 x) { return TX_C(function##f)(x); } \
  TX_FN f64 name(f64 x) { return TX_C(function)(x); }
TX_UNARY(abs_float, fabs)
TX_UNARY(exp, exp)
TX_UNARY(exp2, exp2)
TX_UNARY(log2, log2)
TX_UNARY(log1p, log1p)
TX_UNARY(expm1, expm1)
TX_UNARY(sqrt, sqrt)
TX_UNARY(tanh, tanh)
TX_UNARY(erf, erf)
TX_UNARY(sin, sin)
TX_UNARY(cos, cos)
TX_UNARY(floor, floor)
TX_UNARY(ceil, ceil)
TX_UNARY(round, rint)  // ties to even
#undef TX_UNARY

#if defined(TX_HOST)
TX_FN f32 normcdf(f32 x) { return static_cast<f32>(0.5 * TX_C(erfc)(-0.70710678118654757 * x)); }
TX_FN f64 normcdf(f64 x) {
  if (abs_float(x) > 64.0) return x > 0.0 ? 1.0 : 0.0;
  const f64 y = -0.70710678118654757 * x;
  // by the rounding of y, which matters where y is large
  const f64 missed = fma(-0.70710678118654757, x, -y) + 4.833646656726457e-17 * x;
  return 0.5 * (TX_C(erfc)(y) - 1.1283791670955126 * exp(-y * y) * missed);
}
#else
// Within 2^-22 and 2^-23 of the result.
TX_FN f32 near_exp2(f32 x) {
  f32 y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TX_FN f32 near_inverse(f32 x) {
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Of t = |x|, exp(-t^2 / 2) * u * P(v), where u = 1 / (t + 3.75) and v = 1 - 5 u, which is the distribution at -t, or
// that from 1. The exponent is carried with what its roundings leave. Half as long as CUDA's, within 12 ulp for 5.
TX_FN f32 normcdf(f32 x) {
  const f32 t = min(TX_C(fabsf)(x), 15.0f);  // beyond, 0 or 1
  const f32 u = near_inverse(t + 3.75f);
  const f32 v = fma(u, -5.0f, 1.0f);
  f32 p = fma(0.0113645187f, v, -0.0215986297f);
  p = fma(fma(p, v, -0.0324473307f), v, 0.100833774f);
  p = fma(fma(p, v, 0.0940054730f), v, -0.718012154f);
  p = fma(fma(p, v, 1.41954899f), v, -1.60849500f);
  p = fma(p, v, 1.15380156f);
  const f32 square = t * t;
  const f32 power = square * -0.721347511f;
  f32 rest = fma(square, -9.62981517e-09f, fma(square, -0.721347511f, -power));
  rest = fma(fma(t, t, -square), -0.721347511f, rest);
  const f32 e = near_exp2(power);
  const f32 tail = fma(e, rest * 0.693147182f, e) * (p * u);
  return TX_C(fabsf)((x > 0.0f ? 1.0f : 0.0f) - tail);
}
TX_FN f64 normcdf(f64 x) { return ::normcdf(x); }
#endif

TX_FN f64 log(f64 x) { return TX_C(log)(x); }
#if defined(TX_HOST)
TX_FN f32 log(f32 x) { return TX_C(logf)(x); }
#else
// Of a normal number above 0, 2^e * (1 + r) with r from -1/3 to 1/3, without what a logarithm asks for all others.
TX_FN f32 log_of_normal(f32 x) {
  const i32 e = (__float_as_int(x) - 0x3f2aaaab) & 0xff800000;
  const f32 r = __int_as_float(__float_as_int(x) - e) - 1.0f;
  f32 p = fma(-0.130188569f, r, 0.140846103f);
  p = fma(fma(p, r, -0.121486276f), r, 0.139806107f);
  p = fma(fma(p, r, -0.166842356f), r, 0.200122997f);
  p = fma(fma(p, r, -0.249996692f), r, 0.333331823f);
  p = fma(p, r, -0.5f);
  return fma(static_cast<f32>(e), 8.26295829e-08f, fma(r, r * p, r));  // ln 2 / 2^23
}
TX_FN bool is_normal(f32 x) { return __float_as_uint(x) - 0x00800000u < 0x7f000000u; }  // and above 0
TX_FN f32 log(f32 x) { return is_normal(x) ? log_of_normal(x) : TX_C(logf)(x); }
#endif

// Faster forms, for statements that are `#fast` or end in 16 bits: within the bounds of docs/numerics.md.
#if defined(TX_HOST)
TX_FN f32 fast_exp2(f32 x) { return exp2(x); }
TX_FN f32 fast_exp(f32 x) { return exp(x); }
TX_FN f32 exp_below(f32 x) { return exp(x); }
TX_FN f32 fast_div(f32 x, f32 y) { return x / y; }
TX_FN f32 fast_div_whole(f32 x, f32 y) { return x / y; }
TX_FN f32 fast_erf(f32 x) { return erf(x); }
TX_FN f32 fast_normcdf(f32 x) { return normcdf(x); }
#else
TX_FN f32 fast_exp2(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TX_FN f32 fast_exp(f32 x) { return fast_exp2(x * 1.4426950408889634f); }
// exp as accurate as `exp` of an x that is 0 at most, and 0 for what would be denormal: 2^t of the rounded t = x / ln 2,
// and exp of what that rounding left, x - t * ln 2. Six instructions, of which CUDA's has eight.
TX_FN f32 exp_below(f32 x) {
  const f32 near = max(x, -104.0f);  // of minus infinity something would be left that is no number
  const f32 t = near * 1.4426950408889634f;
  const f32 left = fma(t, 1.9046543e-9f, fma(t, -0.69314718246459961f, near));
  const f32 y = fast_exp2(t);
  return fma(y, left, y);
}
TX_FN f32 fast_div(f32 x, f32 y) {
  f32 q;
  asm("div.full.f32 %0, %1, %2;" : "=f"(q) : "f"(x), "f"(y));
  return q;
}
// The same by a whole number: its inverse is that of 0, or no number that is too large or denormal, which the other one
// takes six instructions more for. Also within 2 ulp.
TX_FN f32 fast_div_whole(f32 x, f32 y) { return x * near_inverse(y); }
// x * P(x^2) / Q(x^2) on the interval beyond which erf is 1 but for a few ulp: within 11 ulp, never above 1.
TX_FN f32 fast_erf(f32 x) {
  f32 y, r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(-3.65f));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(y), "f"(3.65f));
  const f32 square = y * y;
  f32 q = fma(1.47400561e-05f, square, 0.00160210393f);
  q = fma(fma(fma(q, square, 0.0200960394f), square, 0.14222239f), square, 0.56701940f);
  f32 p = fma(0.000238218796f, square, 0.00634402037f);
  p = fma(fma(fma(p, square, 0.0600246936f), square, 0.263690919f), square, 1.12837887f);
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(fma(q, square, 1.0f)));
  return y * p * r;
}
// 2^P(|x|), which is the distribution at -|x| within 2^-16 of it and 2^-24, or that from 1. The leading coefficient of
// P is negative, so that nothing is left of what lies far from 0.
TX_FN f32 fast_normcdf(f32 x) {
  const f32 t = TX_C(fabsf)(x);
  f32 p = fma(-0.000434325746f, t, 0.00681691687f);
  p = fma(fma(p, t, -0.0512194112f), t, -0.460496962f);
  const f32 tail = fast_exp2(fma(fma(p, t, -1.15069449f), t, -1.00002050f));
  return TX_C(fabsf)((x > 0.0f ? 1.0f : 0.0f) - tail);
}
#endif

template <>
TX_FN f32 abs(f32 x) {
  return abs_float(x);
}
template <>
TX_FN f64 abs(f64 x) {
  return abs_float(x);
}

// x * log(y), and 0 where x is 0 and y is a number.
template <class T, IfValue<T> = 0>
TX_FN T xlogy(T x, T y) {
  return x == T(0) && y == y ? T(0) : x * log(y);
}
#if defined(TX_HOST)
TX_FN f32 fast_xlogy(f32 x, f32 y) { return xlogy(x, y); }
#else
TX_FN f32 xlogy(f32 x, f32 y) {
  if (is_normal(y)) return x * log_of_normal(y);
  return x == 0.0f && y == y ? 0.0f : x * ::logf(y);
}
TX_FN f32 fast_xlogy(f32 x, f32 y) {
  f32 of_y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(of_y) : "f"(y));
  return x == 0.0f && y == y ? 0.0f : x * (of_y * 0.693147181f);
}
#endif

// 1 / (1 + exp(-x)) without overflow of the exponential on either side.
template <class T, IfValue<T> = 0>
TX_FN T sigmoid(T x) {
  const T e = exp(-abs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}
#if defined(TX_HOST)
TX_FN f32 fast_sigmoid(f32 x) { return sigmoid(x); }
#else
TX_FN f32 fast_sigmoid(f32 x) {  // of what overflows in the exponential, 0
  f32 y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + fast_exp(-x)));
  return y;
}
#endif

#undef TX_C
}  // namespace tx
