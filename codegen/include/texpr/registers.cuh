#line 2 "/texpr/include/texpr/registers.cuh"
// Wide accesses of which only some elements are wanted, into and out of the registers of a thread, and reductions and
// scans of what lies in them.
#pragma once
#include "texpr/lanes.cuh"
#include "texpr/monoid.cuh"
#include "texpr/vector.cuh"

namespace tx {

// The elements between the last multiple of kBytes in memory and this one of an array. Where the array begins with a
// chunk, its number alone tells of it, but for the half of a sector in which the array begins: one value for all rows
// that lie apart by whole chunks.
template <int kBytes, class Memory, class Index>
TX_FN int lead(const Memory& of, Index index) {
  constexpr int kSize = static_cast<int>(sizeof(typename Memory::Element));
  if constexpr (!Memory::kShared && kBytes <= 32) {
    if constexpr (Memory::kBeginsChunk) {
      const u32 own = static_cast<u32>(index) & (kBytes / kSize - 1);
      if constexpr (kBytes <= 16) return static_cast<int>(own);
      return static_cast<int>(own ^ (static_cast<u32>(reinterpret_cast<u64>(of.address(0))) & 16) / kSize);
    }
  }
  return static_cast<int>(reinterpret_cast<u64>(of.address(index)) & (kBytes - 1)) / kSize;
}

// kCount registers from one on, whose number is a constant once loops are unrolled.
template <int kCount, class T, int kAll>
TX_FN Vector<T, kCount> take(const Reg<T, kAll>& from, int index) {
  return {from.template part<kCount>(index)};
}
// The same rounded to another type, narrow ones two at once.
template <class To, int kCount, class T, int kAll>
TX_FN Vector<To, kCount> rounded(const Reg<T, kAll>& from, int index) {
  Vector<To, kCount> v;
  if constexpr (sizeof(To) == 2 && is_narrow<To> && same<T, f32> && kCount % 2 == 0) {
    TX_UNROLL
    for (int i = 0; i < kCount; i += 2) v.packed.word[i / 2] = pack<To>(from.load(index + i), from.load(index + i + 1));
  } else {
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) v.set(i, cast<Value<To>>(from.load(index + i)));
  }
  return v;
}
template <class From, int kCount, class T, int kAll>
TX_FN void put(Reg<T, kAll>& to, int index, Vector<From, kCount> v) {
  if constexpr (same<From, T>) {
    to.set_part(index, v.packed);
  } else {
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) to.store(index + i, cast<Value<T>>(v.get(i)));
  }
}
// `other` in those of the registers that are not wanted. All loads of a row come first, or each would wait for the one
// before it.
template <int kCount, class T, int kAll>
TX_FN void fill(Reg<T, kAll>& to, int index, Wanted<kCount> wanted, Value<T> other) {
  if (wanted.all()) return;
  Packed<T, kCount> part = to.template part<kCount>(index);
  part.fill([=](int i) { return wanted.has(i); }, encode<T>(other));
  to.set_part(index, part);
}

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
