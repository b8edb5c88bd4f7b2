#line 2 "/texpr/include/texpr/registers.cuh"
// Elements between wide accesses and the registers of a thread.
#pragma once
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

}  // namespace tx
