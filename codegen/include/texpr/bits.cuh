#line 2 "/texpr/include/texpr/bits.cuh"
// Floats as bit patterns and back.
#pragma once
#include "texpr/types.cuh"

namespace tx {

// An address in elements with kBits bits from kBase + kShift on XORed into those from kBase on: a swizzled tile.
template <int kBits, int kBase, int kShift, class Index>
TX_FN Index swizzled(Index address) {
  static_assert(0 < kBits && kBits <= kShift && 0 <= kBase, "bits that are read are not changed");
  return address ^ ((address >> kShift) & (((Index(1) << kBits) - 1) << kBase));
}
// The same as a type, for what finds its elements by itself; runs of `run` elements stay together.
template <int kBits, int kBase, int kShift>
struct Swizzled {
  static constexpr int run = 1 << kBase;
  template <class Index>
  static TX_FN Index at(Index address) {
    return swizzled<kBits, kBase, kShift>(address);
  }
};
struct Straight {
  static constexpr int run = 1 << 30;
  template <class Index>
  static TX_FN Index at(Index address) {
    return address;
  }
};

#if defined(TX_HOST)
template <class To, class From>
inline To bit_cast(From x) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  TX_COPY(&to, &x, sizeof to);
  return to;
}
TX_FN u32 to_bits(f32 x) { return bit_cast<u32>(x); }
TX_FN u64 to_bits(f64 x) { return bit_cast<u64>(x); }
TX_FN f32 f32_of_bits(u32 x) { return bit_cast<f32>(x); }
TX_FN f64 f64_of_bits(u64 x) { return bit_cast<f64>(x); }
#else
TX_FN u32 to_bits(f32 x) { return __float_as_uint(x); }
TX_FN u64 to_bits(f64 x) { return static_cast<u64>(__double_as_longlong(x)); }
TX_FN f32 f32_of_bits(u32 x) { return __uint_as_float(x); }
TX_FN f64 f64_of_bits(u64 x) { return __longlong_as_double(static_cast<i64>(x)); }
#endif

// The value of literals that C++ cannot spell.
TX_FN f32 f32_infinity() { return f32_of_bits(0x7f800000u); }
TX_FN f32 f32_nan() { return f32_of_bits(0x7fc00000u); }
TX_FN f64 f64_infinity() { return f64_of_bits(0x7ff0000000000000ull); }
TX_FN f64 f64_nan() { return f64_of_bits(0x7ff8000000000000ull); }

}  // namespace tx
