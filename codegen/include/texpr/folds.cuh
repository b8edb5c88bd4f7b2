#line 2 "/texpr/include/texpr/folds.cuh"
// Reductions and scans of what lies in the registers of a thread.
#pragma once
#include "texpr/lanes.cuh"
#include "texpr/monoid.cuh"
#include "texpr/registers.cuh"

namespace tx {

// `if (x > best) best = x, at = number`, or what else Monoid picks, for each element of `from` from `index` on, two at
// once: a comparison and two choices, where a compiler makes four instructions of each element in f32.
template <class Monoid, int kCount, class T, int kAll>
TX_FN void pick(Reg<T, kCount>& best, Reg<i16, kCount>& at, const Reg<T, kAll>& from, int index, int number) {
  static_assert(sizeof(T) == 2 && kCount % 2 == 0, "elements of 16 bits, two in a word");
  const Packed<T, kCount> found = from.template part<kCount>(index);
  Packed<T, kCount> value = best.template part<kCount>(0);
  Packed<i16, kCount> place = at.template part<kCount>(0);
  const u32 numbers = static_cast<u16>(number) * 0x10001u;
  TX_UNROLL
  for (int i = 0; i < kCount / 2; ++i) {
    const u32 better = Monoid::better_words(found.word[i], value.word[i]);
    value.word[i] = (found.word[i] & better) | (value.word[i] & ~better);
    place.word[i] = (numbers & better) | (place.word[i] & ~better);
  }
  best.set_part(0, value);
  at.set_part(0, place);
}

// element(0), element(1), … combined in this order by one thread.
template <class Monoid, int kCount, class Get>
TX_FN typename Monoid::Partial fold(Get element) {
  using Partial = typename Monoid::Partial;
  if constexpr (is_scaled<Monoid>) {  // the greatest first, so that each sum is scaled once
    using T = decltype(Partial::sum);
    const T greatest = fold<Greatest<T>, kCount>([&](int i) { return element(i).greatest; });
    return {greatest, fold<Sum<T>, kCount>([&](int i) { return Monoid::scaled(element(i), greatest); })};
  } else if constexpr (is_narrow<Partial> && sizeof(Partial) == 2 && kCount % 2 == 0) {  // two at once
    Packed<Partial, 2> total;
    for (int i = 0; i < 2; ++i) total.set(i, Monoid::identity());
    TX_UNROLL
    for (int i = 0; i < kCount; i += 2) {
      Packed<Partial, 2> two;
      two.set(0, element(i));
      two.set(1, element(i + 1));
      total.word[0] = Monoid::combine_words(total.word[0], two.word[0]);
    }
    return Monoid::combine(total.get(0), total.get(1));
  } else {
    Partial total = Monoid::identity();
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) total = Monoid::combine(total, element(i));
    return total;
  }
}
template <class Monoid, class Count, class Get>
TX_FN typename Monoid::Partial fold(Count count, Get element) {
  typename Monoid::Partial total = Monoid::identity();
  for (Count i = 0; i < count; ++i) total = Monoid::combine(total, element(i));
  return total;
}

// put(0, ...), put(1, ...), ...: `total` and element(0), element(1), ... combined in this order by one thread, up to and
// with each of them, or before it (kExclusive).
template <class Monoid, int kCount, bool kExclusive = false, class Get, class Put>
TX_FN void scan(typename Monoid::Partial total, Get element, Put put) {
  TX_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const typename Monoid::Partial own = element(i);
    if constexpr (kExclusive) put(i, total);
    total = Monoid::combine(total, own);
    if constexpr (!kExclusive) put(i, total);
  }
}

}  // namespace tx
