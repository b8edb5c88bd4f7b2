#line 2 "/texpr/include/texpr/host/factor.hpp"
// What tensor cores multiply of an element, on a CPU.
#pragma once
#include <cmath>

#include "texpr/convert.cuh"

namespace tx::host {

// As products take an element: one of f32 is cut to the 10 bits of tf32's fraction, one of an integer is itself.
template <class T>
inline auto factor(T x) {
  if constexpr (is_integer<T>) {
    return static_cast<i64>(x);
  } else if constexpr (same<T, f32>) {
    return static_cast<f64>(f32_of_bits(to_bits(x) & 0xffffe000u));
  } else if constexpr (same<T, f64>) {
    return x;
  } else {
    return static_cast<f64>(widen(x));
  }
}
template <class T>
using FactorOf = decltype(factor(T{}));
template <class T>
constexpr int depth_of = 32 / static_cast<int>(sizeof(T));

// The exponent of a factor of f8: a denormal one has that of the least normal number.
template <class T>
inline int exponent_of(f64 x) {
  constexpr int kLeast = same<T, f8e4m3> ? -6 : -14;
  return x == 0 || std::ilogb(x) < kLeast ? kLeast : std::ilogb(x);
}

// c and the products of 32 pairs of f8, as tensor cores add them: all in whole units of the greatest exponent's 14th
// bit, the rest cut off, as that of the result is.
TX_ONCE f32 aligned_sum(f32 c, const f64* a, const int* exponents_a, const f64* b, const int* exponents_b) {
  f64 exact = c;
  int top = c == 0 ? -1000 : std::ilogb(c);
  for (int k = 0; k < 32; ++k) {
    exact += a[k] * b[k];
    if (a[k] * b[k] != 0 && exponents_a[k] + exponents_b[k] > top) top = exponents_a[k] + exponents_b[k];
  }
  if (!std::isfinite(exact)) return static_cast<f32>(exact);
  const f64 scale = std::ldexp(1.0, 13 - top);
  f64 units = std::trunc(c * scale);
  for (int k = 0; k < 32; ++k) units += std::trunc(a[k] * b[k] * scale);
  const int beyond = units == 0 ? 0 : std::ilogb(units) - 13;
  if (beyond > 0) units = std::ldexp(std::trunc(std::ldexp(units, -beyond)), beyond);
  return static_cast<f32>(units / scale);
}

}  // namespace tx::host
