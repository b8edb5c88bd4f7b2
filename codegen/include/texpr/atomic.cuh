#line 2 "/texpr/include/texpr/atomic.cuh"
// Indivisible updates, relaxed and of device scope, in global and shared memory. The machine's instruction where it
// means the same, else a compare-and-swap loop on the smallest word (16 bits at least) that holds the element.
#pragma once
#include "texpr/update.cuh"
#if defined(TX_HOST)
#include "texpr/host/memory.hpp"
#else

namespace tx {

TX_FN u16 compare_and_swap(u16* p, u16 expected, u16 desired) { return atomicCAS(p, expected, desired); }
TX_FN u32 compare_and_swap(u32* p, u32 expected, u32 desired) { return atomicCAS(p, expected, desired); }
TX_FN u64 compare_and_swap(u64* p, u64 expected, u64 desired) { return atomicCAS(p, expected, desired); }

// Applies `change` to the word at p until no other thread came between.
template <class Word, class Change>
TX_FN void swap_until_stable(Word* p, Change change) {
  Word seen = *static_cast<const volatile Word*>(p);
  while (true) {
    const Word found = compare_and_swap(p, seen, change(seen));
    if (found == seen) return;
    seen = found;
  }
}

template <int kBytes>
struct WordOf {
  using type = u16;
};
template <>
struct WordOf<4> {
  using type = u32;
};
template <>
struct WordOf<8> {
  using type = u64;
};

template <class T>
TX_FN T unpack(typename WordOf<sizeof(T)>::type word, int shift) {
  T x;
  if constexpr (sizeof(T) == 1) {
    const u8 byte = static_cast<u8>(word >> shift);
    TX_COPY(&x, &byte, 1);
  } else {
    TX_COPY(&x, &word, sizeof(T));
  }
  return x;
}

template <class T>
TX_FN typename WordOf<sizeof(T)>::type repack(typename WordOf<sizeof(T)>::type word, T x, int shift) {
  if constexpr (sizeof(T) == 1) {
    u8 byte;
    TX_COPY(&byte, &x, 1);
    return static_cast<u16>((word & ~(0xff << shift)) | byte << shift);
  } else {
    TX_COPY(&word, &x, sizeof(T));
    return word;
  }
}

template <class Op, class T, class V>
TX_FN void atomic_update(T* p, V value) {
  constexpr bool plain = same<T, V>;
  if constexpr (plain && same<Op, Add> && (same<T, f32> || same<T, f64> || same<T, i32> || same<T, u32>)) {
    atomicAdd(p, value);
  } else if constexpr (plain && same<Op, Add> && same<T, i64>) {
    atomicAdd(reinterpret_cast<u64*>(p), static_cast<u64>(value));
  } else if constexpr (plain && same<Op, Max> && (same<T, i32> || same<T, u32> || same<T, i64>)) {
    atomicMax(p, value);
  } else if constexpr (plain && same<Op, Min> && (same<T, i32> || same<T, u32> || same<T, i64>)) {
    atomicMin(p, value);
  } else {
    using Word = typename WordOf<sizeof(T)>::type;
    const u64 address = reinterpret_cast<u64>(p);
    const u64 misplaced = sizeof(T) == 1 ? address & 1 : 0;  // a byte in the upper half of its word
    Word* const word = reinterpret_cast<Word*>(reinterpret_cast<u8*>(p) - misplaced);
    const int shift = static_cast<int>(misplaced) * 8;
    swap_until_stable(word,
                      [=](Word seen) { return repack<T>(seen, combine<Op>(unpack<T>(seen, shift), value), shift); });
  }
}

// An indivisible update.
template <class Op, class T, class V>
TX_FN void atomic(T& element, V value) {
  atomic_update<Op>(&element, value);
}

}  // namespace tx
#endif
