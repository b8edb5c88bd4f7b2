#line 2 "/texpr/include/texpr/convert.cuh"
// Conversions between element types, as the language's Numerics section has them: to floats round to nearest even, to
// f8 saturate, NaN stays; float to integer truncates and saturates, NaN gives 0; integers wrap; non-zero is true.
#pragma once
#include "texpr/bits.cuh"

namespace tx {

// The layout of a narrow float: exponent and fraction bits, the greatest finite pattern, infinity (or the saturated
// value where infinity is not kept) and a NaN.
template <class T>
struct Format;
template <>
struct Format<f16> {
  static constexpr int exponent = 5, fraction = 10;
  static constexpr u32 overflow = 0x7c00, greatest = 0x7bff, nan = 0x7e00;
};
template <>
struct Format<bf16> {
  static constexpr int exponent = 8, fraction = 7;
  static constexpr u32 overflow = 0x7f80, greatest = 0x7f7f, nan = 0x7fc0;
};
template <>
struct Format<f8e4m3> {
  static constexpr int exponent = 4, fraction = 3;
  static constexpr u32 overflow = 0x7e, greatest = 0x7e, nan = 0x7f;
};
template <>
struct Format<f8e5m2> {
  static constexpr int exponent = 5, fraction = 2;
  static constexpr u32 overflow = 0x7b, greatest = 0x7b, nan = 0x7e;
};

template <class T>
TX_FN T of_pattern(u32 pattern) {
  return T{static_cast<decltype(T::bits)>(pattern)};
}

// Round to nearest even in integer arithmetic: one rounding from f64, so no double rounding anywhere.
template <class T>
TX_FN T round_to_narrow(f64 x) {
  using F = Format<T>;
  constexpr int bias = (1 << (F::exponent - 1)) - 1;
  constexpr int sign_at = F::exponent + F::fraction;
  const u64 bits = to_bits(x);
  const u32 sign = static_cast<u32>(bits >> 63) << sign_at;
  const int raw = static_cast<int>(bits >> 52 & 0x7ff);
  if (raw == 0x7ff) return of_pattern<T>(sign | (x != x ? F::nan : F::overflow));
  int exponent = raw - 1023 + bias;
  if (exponent > (1 << F::exponent)) return of_pattern<T>(sign | F::overflow);
  const u64 significand = (bits & 0xfffffffffffffull) | (raw != 0 ? u64(1) << 52 : 0);
  int shift = 52 - F::fraction;
  if (exponent < 1) {  // a subnormal of T: more bits fall off, and the hidden bit becomes visible
    shift += 1 - exponent;
    if (shift > 60) shift = 60;
    exponent = 1;
  }
  u64 kept = significand >> shift;
  const u64 rest = significand & ((u64(1) << shift) - 1), half = u64(1) << (shift - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  const u32 pattern = (static_cast<u32>(exponent - 1) << F::fraction) + static_cast<u32>(kept);
  return of_pattern<T>(sign | (pattern > F::greatest ? F::overflow : pattern));
}

template <class T>
TX_FN f32 widen_generic(T x) {
  using F = Format<T>;
  constexpr int bias = (1 << (F::exponent - 1)) - 1;
  const u32 bits = x.bits;
  const u32 sign = bits >> (F::exponent + F::fraction) << 31;
  const u32 exponent = bits >> F::fraction & ((1u << F::exponent) - 1);
  const u32 fraction = bits & ((1u << F::fraction) - 1);
  if (exponent == 0) {  // fraction * 2^(1 - bias - fraction bits), exact
    const f32 magnitude = static_cast<f32>(fraction) * f32_of_bits(static_cast<u32>(128 - bias - F::fraction) << 23);
    return f32_of_bits(sign | to_bits(magnitude));
  }
  if (same<T, f8e4m3>) {
    if ((bits & 0x7f) == 0x7f) return f32_of_bits(sign | 0x7fc00000u);
  } else if (exponent == (1u << F::exponent) - 1) {
    return f32_of_bits(sign | (fraction != 0 ? 0x7fc00000u : 0x7f800000u) | fraction << (23 - F::fraction));
  }
  return f32_of_bits(sign | (exponent + (127 - bias)) << 23 | fraction << (23 - F::fraction));
}

TX_FN f32 widen(bf16 x) { return f32_of_bits(static_cast<u32>(x.bits) << 16); }
TX_FN f32 widen(f16 x);
TX_FN f32 widen(f8e5m2 x) { return widen(f16{static_cast<u16>(x.bits << 8)}); }  // the upper byte of an f16

#if defined(TX_HOST)
TX_FN f32 widen(f16 x) { return widen_generic(x); }
TX_FN f32 widen(f8e4m3 x) { return widen_generic(x); }
template <class T, class From>
TX_FN T narrow(From x) {
  return round_to_narrow<T>(static_cast<f64>(x));
}
#else
TX_FN f32 widen(f16 x) {
  f32 y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
TX_FN f32 widen(f8e4m3 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<u16>(x.bits)));
  return widen(f16{static_cast<u16>(pair)});
#else
  return widen_generic(x);
#endif
}

// The machine's instruction where it rounds once from that source type; integer arithmetic elsewhere.
template <class T, class From>
TX_FN T narrow(From x) {
  u16 bits = 0;
  if constexpr (same<T, f16> && same<From, f32>) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return f16{bits};
  } else if constexpr (same<T, f16> && same<From, f64>) {
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
    return f16{bits};
  } else if constexpr (same<T, bf16> && same<From, f32>) {
    u32 pair;  // of one alone the instruction has a quarter of the rate; as the upper half it is what f32 widens it to
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
    __builtin_assume((pair & 0xffff) == 0);
    return bf16{static_cast<u16>(pair >> 16)};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  } else if constexpr (same<T, f8e4m3> && same<From, f32>) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(x));
    return f8e4m3{static_cast<u8>(bits)};
  } else if constexpr (same<T, f8e5m2> && same<From, f32>) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(x));
    return f8e5m2{static_cast<u8>(bits)};
#endif
  } else {
    (void)bits;
    return round_to_narrow<T>(static_cast<f64>(x));
  }
}
#endif

// Two neighbouring elements of 2 bytes in a word, each rounded once.
template <class T>
TX_FN u32 pack(f32 low, f32 high) {
#if !defined(TX_HOST)
  if constexpr (same<T, bf16>) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  } else if constexpr (same<T, f16>) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
#endif
  return static_cast<u32>(narrow<T>(low).bits) | static_cast<u32>(narrow<T>(high).bits) << 16;
}

// An integer as f64 for a later rounding to at most 51 bits: what does not fit is kept as a sticky last bit.
template <class T>
TX_FN f64 sticky_f64(T x) {
  if constexpr (sizeof(T) < 8) {
    return static_cast<f64>(x);
  } else {
    const bool negative = is_signed<T> && x < 0;
    u64 magnitude = negative ? u64(0) - static_cast<u64>(x) : static_cast<u64>(x);
    if (magnitude >> 53 != 0) magnitude = (magnitude >> 11 | ((magnitude & 0x7ff) != 0 ? 1 : 0)) << 11;
    const f64 value = static_cast<f64>(magnitude);
    return negative ? -value : value;
  }
}

// Truncation that saturates. The bounds are powers of two or small, so they are exact or rounded up to a value that the
// comparison still cuts rightly.
template <class To, class From>
TX_FN To truncate(From x) {
  if (x != x) return 0;
  if (x <= static_cast<From>(least<To>())) return least<To>();
  if (x >= static_cast<From>(greatest<To>())) return greatest<To>();
  return static_cast<To>(x);
}

template <class To, class From, IfValue<From> = 0>
TX_FN To cast(From x) {
  if constexpr (same<To, From>) {
    return x;
  } else if constexpr (is_narrow<From>) {
    return cast<To>(widen(x));
  } else if constexpr (same<To, bool>) {
    return x != static_cast<From>(0);
  } else if constexpr (is_narrow<To> && is_float<From>) {
    return narrow<To>(x);
  } else if constexpr (is_narrow<To> && sizeof(From) <= 2) {
    return narrow<To>(static_cast<f32>(x));  // f32 has all of them
  } else if constexpr (is_narrow<To>) {
    return round_to_narrow<To>(sticky_f64(x));
  } else if constexpr (is_integer<To> && is_float<From>) {
    return truncate<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace tx
