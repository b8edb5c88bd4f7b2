#line 2 "/texpr/include/texpr/host/vector.hpp"
// The accesses of vector.cuh on a CPU, element by element: bounds, races and undefined reads as for single elements,
// and the alignment of the whole. What an access reads and discards has a pattern that no program should depend on.
#pragma once
#include "texpr/vector.cuh"

namespace tx {

namespace host {

TX_ONCE void found_unwanted(const char* name, i64 index, Here here) {
  char text[200];
  std::snprintf(text, sizeof text, "a chunk at %s[%lld] is read, of which no element is wanted", name, index);
  found(TX_HOST_BOUNDS, here, text, index);
  give_up();
}

}  // namespace host

template <class Index>
inline Index apart(Index first, int behind) {
  return first + behind;
}

template <int kCount, Cache, class Memory>
inline VectorOf<Memory, kCount> load_part(const Memory& from, i64 index, int first, int last, Here here) {
  VectorOf<Memory, kCount> v;
  std::memset(static_cast<void*>(&v), 0xCD, sizeof v);
  host::check_alignment(from.address(index), sizeof v, from.name(), index, here);
  bool any = false;
  for (int i = 0; i < kCount; ++i) {
    if (i < first || i >= last) continue;
    v.packed.set(i, *from.place(index + i, host::Mode::kRead, here, false));
    any = true;
  }
  if (!any) host::found_unwanted(from.name(), index, here);
  return v;
}

template <int kCount, Cache kCache, class Memory>
inline VectorOf<Memory, kCount> load_any(const Memory& from, i64 index, int first, int last, Here here) {
  for (const i64 end : {index, index + kCount - 1}) from.at(end, here.file, here.line);
  if (first < last && first < kCount && last > 0) return load_part<kCount, kCache>(from, index, first, last, here);
  VectorOf<Memory, kCount> v;
  std::memset(static_cast<void*>(&v), 0xCD, sizeof v);
  host::check_alignment(from.address(index), sizeof v, from.name(), index, here);
  return v;
}

template <class Memory>
inline int bytes_past(const Memory& from, i64 index) {
  if constexpr (!Memory::kShared) {
    if (Memory::kBeginsChunk) host::check_alignment(from.address(0), 16, from.name(), 0, Here::now());
  }
  return static_cast<int>(reinterpret_cast<u64>(from.address(index)) & 15);
}

template <int kCount, Cache kCache = Cache::kPlain, class Memory>
inline VectorOf<Memory, kCount> load(const Memory& from, i64 index, Here here = Here::now()) {
  static_assert(!Memory::kShared || kCache == Cache::kPlain, "hints are for global memory");
  return load_part<kCount, kCache>(from, index, 0, kCount, here);
}

template <Cache kCache = Cache::kPlain, int kCount, class Memory>
inline void store(const Memory& to, i64 index, Vector<typename Memory::Element, kCount> v, Here here = Here::now()) {
  static_assert(!Memory::kShared || kCache == Cache::kPlain, "hints are for global memory");
  static_assert(kCache != Cache::kReadOnly && kCache != Cache::kKeep, "this hint is for loads");
  host::check_alignment(to.address(index), sizeof v, to.name(), index, here);
  for (int i = 0; i < kCount; ++i) *to.place(index + i, host::Mode::kWrite, here, false) = v.packed.get(i);
}

template <int kApart, int kCount, class Memory>
inline void store_apart(const Memory& to, i64 index, Vector<typename Memory::Element, kCount> v,
                        Here here = Here::now()) {
  for (int i = 0; i < kCount; ++i) store(to, index + i * kApart, v.one(i), here);
}

TX_ONCE u32 funnel_word(u32 low, u32 high, int bits) {
  return static_cast<u32>((static_cast<u64>(high) << 32 | low) >> bits);
}

}  // namespace tx
