#line 2 "/texpr/include/texpr/slots.cuh"
// What a thread brings by cp.async to slots of its own in shared memory: aligned chunks of an array of which some
// elements are wanted, as in vector.cuh.
#pragma once
#include "texpr/group.cuh"
#include "texpr/wanted.cuh"

namespace tx {

// Starts a copy of elements index .. index + kCount - 1, 16 bytes at an aligned address: the slot has those that are
// wanted, and anything in place of the others. None behind the last wanted one is read. Where none is wanted the
// address may lie outside the array, and the slot becomes zeros (`or_none`), or stays as it is.
#if defined(TX_HOST)
template <int kCount, class T, class Memory>
inline void cp_async_or_none(host::Spot<T> to, const Memory& from, i64 index, Wanted<kCount> wanted,
                             Here here = Here::now()) {
  constexpr i64 kSize = sizeof(typename Memory::Element);
  static_assert(kCount * kSize == 16, "slots are of 16 bytes");
  host::Runner& me = host::self(here);
  u8* const target = host::own_shared(to, here);
  const host::Actor actor{host::agent_of(me.copies.agent), ++me.copies.started, &me, host::Proxy::kCopy, here};
  host::touch_spot(to, 16, 16, host::Mode::kWrite, actor);
  host::Copy* const copy = new host::Copy{&me, here, &me.copies, me.copies.started};
  if (wanted.any()) {
    const i64 before = wanted.first() * kSize, bytes = (wanted.last() - wanted.first()) * kSize;
    const auto source = from.maybe(index + wanted.first());
    host::check_alignment(from.address(index), 16, from.name(), index, here);
    host::touch_spot(source, bytes, static_cast<int>(kSize), host::Mode::kRead, actor);
    copy->pieces.push_back({target + before, reinterpret_cast<const u8*>(source.data), static_cast<u32>(bytes)});
  } else {
    copy->pieces.push_back({target, nullptr, 16});
  }
  host::crew.copies.push_back(copy);
}
#else
template <int kCount, class T, class Memory, class Index>
TX_FN void cp_async_or_none(T* to, const Memory& from, Index index, Wanted<kCount> wanted, Here here = Here::now()) {
  constexpr int kSize = sizeof(typename Memory::Element);
  static_assert(kCount * kSize == 16, "slots are of 16 bytes");
  cp_async<16>(to, from.address(index), wanted.any() ? wanted.last() * kSize : 0, here);
}
#endif
template <int kCount, class Slot, class Memory, class Index>
TX_FN void cp_async_wanted(Slot to, const Memory& from, Index index, Wanted<kCount> wanted, Here here = Here::now()) {
  if (wanted.any()) cp_async_or_none(to, from, index, wanted, here);
}

}  // namespace tx
