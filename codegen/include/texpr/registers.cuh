#line 2 "/texpr/include/texpr/registers.cuh"
// Wide accesses of which only some elements are wanted, into and out of the registers of a thread, and reductions of
// what lies in them.
#pragma once
#include "texpr/lanes.cuh"
#include "texpr/monoid.cuh"
#include "texpr/vector.cuh"

namespace tx {

// The elements between the last multiple of kBytes in memory and this one of an array.
template <int kBytes, class Memory, class Index>
TX_FN int lead(const Memory& of, Index index) {
  return static_cast<int>(reinterpret_cast<u64>(of.address(index)) & (kBytes - 1)) /
         static_cast<int>(sizeof(typename Memory::Element));
}

// kCount registers from one on, whose number is a constant once loops are unrolled.
template <int kCount, class T, int kAll>
TX_FN Vector<T, kCount> take(const Reg<T, kAll>& from, int index) {
  Vector<T, kCount> v;
  TX_UNROLL
  for (int i = 0; i < kCount; ++i) v.set(i, from.load(index + i));
  return v;
}
template <int kCount, class T, int kAll>
TX_FN void put(Reg<T, kAll>& to, int index, Vector<T, kCount> v) {
  TX_UNROLL
  for (int i = 0; i < kCount; ++i) to.store(index + i, v.get(i));
}

// Which of kCount elements lie in [begin, end).
template <int kCount>
struct Wanted {
  int first, last;  // from the first one on, before the last

  template <class Bound>
  TX_FN Wanted(Bound begin, Bound end)
      : first(begin <= 0 ? 0 : begin >= kCount ? kCount : static_cast<int>(begin)),
        last(end >= kCount ? kCount : end <= 0 ? 0 : static_cast<int>(end)) {}

  TX_FN bool any() const { return first < last; }
  TX_FN bool all() const { return first == 0 && last == kCount; }
  TX_FN bool has(int i) const { return i >= first && i < last; }

  // The vector with `other` in place of what is not wanted.
  template <class T>
  TX_FN Vector<T, kCount> or_else(Vector<T, kCount> v, Value<T> other) const {
    if (!all()) {
      TX_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (!has(i)) v.set(i, other);
      }
    }
    return v;
  }
};

// Elements index .. index + kCount - 1 at an aligned address: those that are wanted are read, in the rest is `other`.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_wanted(const Memory& from, Index index, Wanted<kCount> wanted,
                                           Value<typename Memory::Element> other, Here here = Here::now()) {
  VectorOf<Memory, kCount> v = {};
  if (wanted.any()) v = load_part<kCount, kCache>(from, index, index + wanted.first, index + wanted.last, here);
  return wanted.or_else(v, other);
}
// The same at any address.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_wanted_funnel(const Memory& from, Index index, Wanted<kCount> wanted,
                                                  Value<typename Memory::Element> other, Here here = Here::now()) {
  const VectorOf<Memory, kCount> v = load_funnel<kCount, kCache>(
      from, index, index + static_cast<Index>(wanted.first), index + static_cast<Index>(wanted.last), here);
  return wanted.or_else(v, other);
}
// Writes those that are wanted, one by one where some are not: another block may write the others.
template <Cache kCache = Cache::kPlain, int kCount, class Memory, class Index>
TX_FN void store_wanted(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v,
                        Wanted<kCount> wanted, Here here = Here::now()) {
  if (wanted.all()) {
    store<kCache>(to, index, v, here);
  } else {
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (wanted.has(i)) store(to, index + i, VectorOf<Memory, 1>{{v.element[i]}}, here);
    }
  }
}

// element(0), element(1), … combined in this order by one thread.
template <class Monoid, int kCount, class Get>
TX_FN typename Monoid::Partial fold(Get element) {
  typename Monoid::Partial total = Monoid::identity();
  TX_UNROLL
  for (int i = 0; i < kCount; ++i) total = Monoid::combine(total, element(i));
  return total;
}
template <class Monoid, class Count, class Get>
TX_FN typename Monoid::Partial fold(Count count, Get element) {
  typename Monoid::Partial total = Monoid::identity();
  for (Count i = 0; i < count; ++i) total = Monoid::combine(total, element(i));
  return total;
}

}  // namespace tx
