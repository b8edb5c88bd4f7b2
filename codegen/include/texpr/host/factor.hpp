#line 2 "/texpr/include/texpr/host/factor.hpp"
// What tensor cores multiply of an element, on a CPU.
#pragma once
#include "texpr/convert.cuh"

namespace tx::host {

// As products take an element: one of f32 is cut to the 10 bits of tf32's fraction, one of an integer is itself.
template <class T>
inline auto factor(T x) {
  if constexpr (is_integer<T>) {
    return static_cast<i64>(x);
  } else if constexpr (same<T, f32>) {
    return static_cast<f64>(f32_of_bits(to_bits(x) & 0xffffe000u));
  } else {
    return static_cast<f64>(widen(x));
  }
}
template <class T>
using FactorOf = decltype(factor(T{}));
template <class T>
constexpr int depth_of = 32 / static_cast<int>(sizeof(T));

}  // namespace tx::host
