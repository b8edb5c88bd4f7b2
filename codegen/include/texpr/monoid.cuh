#line 2 "/texpr/include/texpr/monoid.cuh"
// Monoids: what reductions and scans combine, in any grouping. A partial result starts from `identity`, an element
// becomes one by `lift`, and `result` is what the sequential statements would have left. kSymmetric: combine(a, b) and
// combine(b, a) are the same bits. The meanings in NumPy are in polyhedral/mapped/monoids.py.
#pragma once
#include "texpr/packed.cuh"
#include "texpr/update.cuh"

namespace tx {

// The least value that max starts from, and the greatest that min starts from.
template <class T>
TX_FN T lowest() {
  if constexpr (is_float<T>) {
    return same<T, f32> ? static_cast<T>(-f32_infinity()) : static_cast<T>(-f64_infinity());
  } else if constexpr (is_narrow<T>) {
    return cast<T>(-f32_infinity());
  } else {
    return least<T>();
  }
}
template <class T>
TX_FN T highest() {
  if constexpr (is_float<T>) {
    return same<T, f32> ? static_cast<T>(f32_infinity()) : static_cast<T>(f64_infinity());
  } else if constexpr (is_narrow<T>) {
    return cast<T>(f32_infinity());
  } else {
    return greatest<T>();
  }
}

// The greater or the lesser of two, of which one that is no number is none.
struct MaxNumber {
  template <class V>
  static TX_FN V apply(V a, V b) {
    return a > b || b != b ? a : b;
  }
};
struct MinNumber {
  template <class V>
  static TX_FN V apply(V a, V b) {
    return a < b || b != b ? a : b;
  }
};

// One value, combined by an operator of update.cuh, or by one of these. Of narrow floats only the greatest and the least: nothing is rounded.
template <class T, class Op>
struct Scalar {
  static constexpr bool kChooses = same<Op, Max> || same<Op, Min> || same<Op, MaxNumber> || same<Op, MinNumber>;
  static_assert(!is_narrow<T> || (sizeof(T) == 2 && kChooses), "a sum of narrow floats is wider");
  using Partial = T;
  static constexpr bool kSymmetric = true;
  static TX_FN T lift(T x) { return x; }
  static TX_FN T combine(T a, T b) {
    if constexpr (is_narrow<T>) {
      return narrow<T>(Op::apply(widen(a), widen(b)));
    } else {
      return Op::apply(a, b);
    }
  }
  static TX_FN T result(T a) { return a; }

  // Two neighbouring narrow floats at once.
  static TX_FN u32 combine_words(u32 a, u32 b) {
#if !defined(TX_HOST)
    u32 both;
    if constexpr (same<T, bf16> && same<Op, Max>) asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
    if constexpr (same<T, bf16> && same<Op, Min>) asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
    if constexpr (same<T, f16> && same<Op, Max>) asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
    if constexpr (same<T, f16> && same<Op, Min>) asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
    if constexpr (same<T, bf16> && same<Op, MaxNumber>) asm("max.bf16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
    if constexpr (same<T, bf16> && same<Op, MinNumber>) asm("min.bf16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
    if constexpr (same<T, f16> && same<Op, MaxNumber>) asm("max.f16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
    if constexpr (same<T, f16> && same<Op, MinNumber>) asm("min.f16x2 %0, %1, %2;" : "=r"(both) : "r"(a), "r"(b));
    return both;
#else
    Packed<T, 2> x, y;
    x.word[0] = a, y.word[0] = b;
    for (int i = 0; i < 2; ++i) x.set(i, combine(x.get(i), y.get(i)));
    return x.word[0];
#endif
  }
};
template <class T>
struct Sum : Scalar<T, Add> {
  static TX_FN T identity() { return is_float<T> ? static_cast<T>(-0.0f) : T(0); }  // -0 + x is x for all x, -0 too
};
template <class T>
struct Product : Scalar<T, Mul> {
  static TX_FN T identity() { return T(1); }
};
template <class T>
struct Greatest : Scalar<T, Max> {
  static TX_FN T identity() { return lowest<T>(); }
};
template <class T>
struct Least : Scalar<T, Min> {
  static TX_FN T identity() { return highest<T>(); }
};

// The same of those that are numbers: a NaN is no element.
template <class T>
struct GreatestNumber : Scalar<T, MaxNumber> {
  using Scalar<T, MaxNumber>::combine;
  static TX_FN T identity() { return lowest<T>(); }
  static TX_FN T lift(T x) { return combine(x, identity()); }
};
template <class T>
struct LeastNumber : Scalar<T, MinNumber> {
  using Scalar<T, MinNumber>::combine;
  static TX_FN T identity() { return highest<T>(); }
  static TX_FN T lift(T x) { return combine(x, identity()); }
};

// The greatest value and the sum of exp(value - greatest).
template <class T>
struct ScaledSum {
  struct Partial {
    T greatest, sum;
  };
  static constexpr bool kSymmetric = true;
  static TX_FN Partial identity() { return {lowest<T>(), T(0)}; }
  static TX_FN Partial lift(T x) { return {x, T(1)}; }
  // The sum under another greatest value. Infinities are only counted.
  static TX_FN T scaled(Partial a, T greatest) {
    return a.sum * exp(a.greatest == greatest ? T(0) : a.greatest - greatest);
  }
  static TX_FN Partial combine(Partial a, Partial b) {
    const T m = max(a.greatest, b.greatest);
    return {m, scaled(a, m) + scaled(b, m)};
  }
  // inf - inf is no number: so is the sum where the greatest of at least one value is infinite.
  static TX_FN Partial result(Partial a) {
    return {a.greatest, a.sum == T(0) ? T(0) : a.sum + (a.greatest - a.greatest)};
  }
};

template <class Monoid>
constexpr bool is_scaled = false;
template <class T>
constexpr bool is_scaled<ScaledSum<T>> = true;

// What `if (x > value) value = x, index = i` leaves, of kFirst; `>=` of the last. Nothing is the value to start from, at
// -1, and an element becomes what it leaves beside nothing: a NaN is never picked, and that value only by `>=` and `<=`.
template <class T, class Op, bool kFirst, class Index>
struct Picked {
  struct Partial {
    T value;
    Index index;
  };
  static constexpr bool kSymmetric = true;
  static TX_FN Partial identity() {
    if constexpr (same<Op, Max>) {
      return {lowest<T>(), Index(-1)};
    } else {
      return {highest<T>(), Index(-1)};
    }
  }
  static TX_FN Partial lift(T x, Index index) { return combine({x, index}, identity()); }
  static TX_FN Partial combine(Partial a, Partial b) {
    const bool nearer = kFirst ? a.index <= b.index : a.index >= b.index;
    const bool better = same<Op, Max> ? a.value > b.value : a.value < b.value;
    return better || (a.value == b.value && nearer) ? a : b;
  }
  static TX_FN Partial result(Partial a) { return a; }

  // Which of two neighbouring narrow floats are picked in place of those that were: all bits of each.
  static TX_FN u32 better_words(u32 x, u32 best) {
    u32 both = 0;
#if !defined(TX_HOST)
#define TX_BETTER_BY(fn, type) asm("set." fn ".u32." type " %0, %1, %2;" : "=r"(both) : "r"(x), "r"(best))
#define TX_BETTER(type)                                             \
  if constexpr (same<Op, Max> && kFirst) TX_BETTER_BY("gt", type);  \
  if constexpr (same<Op, Max> && !kFirst) TX_BETTER_BY("ge", type); \
  if constexpr (same<Op, Min> && kFirst) TX_BETTER_BY("lt", type);  \
  if constexpr (same<Op, Min> && !kFirst) TX_BETTER_BY("le", type)
    if constexpr (same<T, f16>) {
      TX_BETTER("f16x2");
      return both;
    }
#if __CUDA_ARCH__ >= 900
    if constexpr (same<T, bf16>) {
      TX_BETTER("bf16x2");
      return both;
    }
#endif
#undef TX_BETTER_BY
#undef TX_BETTER
#endif
    Packed<T, 2> found, old;
    found.word[0] = x, old.word[0] = best;
    TX_UNROLL
    for (int i = 0; i < 2; ++i) {
      const f32 one = widen(found.get(i)), other = widen(old.get(i));
      const bool better = same<Op, Max> ? one > other : one < other;
      if (better || (!kFirst && one == other)) both |= 0xffffu << (16 * i);
    }
    return both;
  }
};
template <class T, class Index = i32>
struct FirstGreatest : Picked<T, Max, true, Index> {};
template <class T, class Index = i32>
struct LastGreatest : Picked<T, Max, false, Index> {};
template <class T, class Index = i32>
struct FirstLeast : Picked<T, Min, true, Index> {};
template <class T, class Index = i32>
struct LastLeast : Picked<T, Min, false, Index> {};

// How many values, their mean, and the sum of the squares of their distances from it.
template <class T>
struct Moments {
  struct Partial {
    T count, mean, squares;
  };
  static constexpr bool kSymmetric = false;
  static TX_FN Partial identity() { return {T(0), T(0), T(0)}; }
  static TX_FN Partial lift(T x) { return {T(1), x, x - x}; }  // x - x: an infinite distance is no number
  static TX_FN Partial combine(Partial a, Partial b) {
    if (b.count == T(0)) return a;
    if (a.count == T(0)) return b;
    const T count = a.count + b.count, share = b.count / count, apart = b.mean - a.mean;
    const T mean = apart - apart == T(0) ? a.mean + apart * share : a.mean * (T(1) - share) + b.mean * share;
    return {count, mean, a.squares + b.squares + apart * apart * (a.count * share)};
  }
  static TX_FN Partial result(Partial a) { return a; }
};

}  // namespace tx
