#line 2 "/texpr/include/texpr/fragment.cuh"
// Elements of a tile in the registers of one thread of a warp or warpgroup, and which elements they are. The tables are
// those of grammar/fragments.py.
#pragma once
#include "texpr/here.cuh"
#include "texpr/kernel.cuh"
#if defined(TX_HOST)
#include "texpr/host/registers.hpp"
#endif

namespace tx {

template <class T>
struct FragmentWord {
  using type = u32;
};
template <>
struct FragmentWord<f32> {
  using type = f32;
};
template <>
struct FragmentWord<i32> {
  using type = i32;
};
template <>
struct FragmentWord<f64> {
  using type = f64;
};

#if !defined(TX_HOST)
// A word as instructions take it.
TX_FN u32 bits_of(u32 word) { return word; }
TX_FN u32 bits_of(f32 word) { return __float_as_uint(word); }
#endif

// The type of sums of products of such elements.
template <class T, bool kIntegers = is_integer<T>>
struct SumOfType {
  using type = f32;
};
template <class T>
struct SumOfType<T, true> {
  using type = i32;
};
template <>
struct SumOfType<f64, false> {
  using type = f64;
};
template <class T>
using SumOf = typename SumOfType<T>::type;

// Which types instructions multiply: one, or both kinds of f8.
template <class T>
constexpr bool is_f8 = same<T, f8e4m3> || same<T, f8e5m2>;
template <class T, class U>
constexpr bool may_multiply = same<T, U> || (is_f8<T> && is_f8<U>);

// How many elements a word of 32 bits has; those of f64 are words of their own.
template <class T>
constexpr int in_word = sizeof(T) < 4 ? 4 / static_cast<int>(sizeof(T)) : 1;

// kCount elements in words of 32 bits, two of 16 bits in one, four of 8; or in words of 64.
template <class T, int kCount>
struct Fragment {
  using Element = T;
  using Word = typename FragmentWord<T>::type;
  static constexpr int kEach = in_word<T>, kBits = 8 * static_cast<int>(sizeof(T));
  static constexpr int kElements = kCount, kWords = kCount / kEach;

  Word word[kWords];
#if defined(TX_HOST)
  host::Registers state;
#endif

  TX_FN T get(int i, Here here = Here::now()) const {
    check_read(here);
    if constexpr (kEach == 1) {
      return word[i];
    } else {
      const auto bits = static_cast<UnsignedOfBytes<sizeof(T)>>(word[i / kEach] >> (kBits * (i % kEach)));
      T x;
      TX_COPY(&x, &bits, sizeof x);
      return x;
    }
  }
  TX_FN void set(int i, T x, Here here = Here::now()) {
    check_write(here);
    if constexpr (kEach == 1) {
      word[i] = x;
    } else {
      UnsignedOfBytes<sizeof(T)> bits;
      TX_COPY(&bits, &x, sizeof x);
      const int shift = kBits * (i % kEach);
      u32& w = word[i / kEach];
      w = (w & ~((~0u >> (32 - kBits)) << shift)) | static_cast<u32>(bits) << shift;
    }
  }
  // Element i, to read or to write.
  TX_FN Word& operator()(int i, Here here = Here::now()) {
    static_assert(kEach == 1, "narrow elements share words: use get and set");
    check_write(here);
    return word[i];
  }
  TX_FN void fill(T x, Here here = Here::now()) {
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) set(i, x, here);
  }

#if defined(TX_HOST)
  void check_read(Here here) const { state.check_settled(here); }
  void check_write(Here here) { state.check_write(here); }
#else
  TX_FN void check_read(Here) const {}
  TX_FN void check_write(Here) const {}
#endif
};

// The operands of a product by a warp, 32 bytes deep: of 16 bits A is 16 x 16 and B 16 x 8. A of a warpgroup is 64 x
// 16, 16 rows of it in each warp.
template <class T>
constexpr int in_registers = 16 / static_cast<int>(sizeof(T));  // of a in each thread
template <class T>
struct OperandA : Fragment<T, in_registers<T>> {
  static constexpr int kEach = in_word<T>;
  static TX_FN int row(int i, int lane) { return lane / 4 + i / kEach % 2 * 8; }
  static TX_FN int column(int i, int lane) { return lane % 4 * kEach + i % kEach + i / (2 * kEach) * 4 * kEach; }
};
template <class T>
struct OperandB : Fragment<T, 8 / sizeof(T)> {
  static constexpr int kEach = in_word<T>;
  static TX_FN int row(int i, int lane) { return lane % 4 * kEach + i % kEach + i / kEach * 4 * kEach; }
  static TX_FN int column(int, int lane) { return lane / 4; }
};

// Sums of products: of 16 rows held by a warp, or of 64 held by a warpgroup, 16 of them in each warp.
template <int kRows, int kColumns, class T = f32>
struct Accumulator : Fragment<T, kColumns / 2> {
  static_assert(kRows == 16 || kRows == 64, "a warp holds 16 rows, a warpgroup 64");
  static_assert(kColumns % 8 == 0 && kColumns >= 8 && kColumns <= 256, "8 to 256 columns, in steps of 8");
  static_assert(same<T, f32> || same<T, f16> || same<T, i32> || same<T, f64>, "accumulators are f32, f16, i32 or f64");

  // Where element i of a thread lies in the tile; `thread` counts in the warp or warpgroup.
  static TX_FN int row(int i, int thread) { return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8; }
  static TX_FN int column(int i, int thread) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }
  static TX_FN int self() { return kRows == 16 ? lane() : thread() % 128; }
  TX_FN int row(int i) const { return row(i, self()); }
  TX_FN int column(int i) const { return column(i, self()); }
};

}  // namespace tx
