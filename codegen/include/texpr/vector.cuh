#line 2 "/texpr/include/texpr/vector.cuh"
// Neighbouring elements in one access of 2, 4, 8 or 16 bytes, with a hint for the caches.
#pragma once
#include "texpr/here.cuh"
#include "texpr/kernel.cuh"
#include "texpr/packed.cuh"

namespace tx {

enum class Cache {
  kPlain,
  kStream,      // touched once: first to be evicted (.cs)
  kBypass,      // not in L1: another block wrote it, or will read it (.cg)
  kReadOnly,    // never written while the kernel runs (.nc)
  kNoAllocate,  // no line of L1 is given to it; a load is also read-only
  kKeep,        // a small operand that every block reads: last to be evicted from L1; a load, and read-only
};

// Elements of one access.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  static constexpr int kBytes = sizeof(T) * kCount;
  static_assert(kBytes == 1 || kBytes == 2 || kBytes == 4 || kBytes == 8 || kBytes == 16,
                "an access is of 1, 2, 4, 8 or 16 bytes");

  Packed<T, kCount> packed;

  TX_FN Value<T> get(int i) const { return decode(packed.get(i)); }
  TX_FN void set(int i, Value<T> value) { packed.set(i, encode<T>(value)); }
  TX_FN Vector<T, 1> one(int i) const { return {packed.template part<1>(i)}; }
};

template <class Memory, int kCount>
using VectorOf = Vector<typename Memory::Element, kCount>;

}  // namespace tx

#if defined(TX_HOST)
#include "texpr/host/vector.hpp"
#else
namespace tx {

template <int kBytes>
struct AccessWord {
  using type = u8;
};
template <>
struct AccessWord<2> {
  using type = u16;
};
template <>
struct AccessWord<4> {
  using type = u32;
};
template <>
struct AccessWord<8> {
  using type = uint2;
};
template <>
struct AccessWord<16> {
  using type = uint4;
};

#define TX_LOAD_WORD(hint, p, w)                                                                                      \
  if constexpr (sizeof(w) == 16) {                                                                                    \
    asm("ld.global.nc" hint ".v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(p)); \
  } else if constexpr (sizeof(w) == 8) {                                                                              \
    asm("ld.global.nc" hint ".v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "l"(p));                               \
  } else if constexpr (sizeof(w) == 4) {                                                                              \
    asm("ld.global.nc" hint ".u32 %0, [%1];" : "=r"(w) : "l"(p));                                                     \
  } else if constexpr (sizeof(w) == 2) {                                                                              \
    asm("ld.global.nc" hint ".u16 %0, [%1];" : "=h"(w) : "l"(p));                                                     \
  } else {                                                                                                            \
    u32 byte;                                                                                                         \
    asm("ld.global.nc" hint ".u8 %0, [%1];" : "=r"(byte) : "l"(p));                                                   \
    w = static_cast<u8>(byte);                                                                                        \
  }

template <Cache kCache, class Word>
TX_FN Word load_word(const Word* p) {
  if constexpr (kCache == Cache::kPlain) {
    return *p;
  } else if constexpr (kCache == Cache::kStream) {
    return __ldcs(p);
  } else if constexpr (kCache == Cache::kBypass) {
    return __ldcg(p);
  } else if constexpr (kCache == Cache::kReadOnly) {
    return __ldg(p);
  } else {
    Word w;
    if constexpr (kCache == Cache::kNoAllocate) {
      TX_LOAD_WORD(".L1::no_allocate", p, w)
    } else {
      TX_LOAD_WORD(".L1::evict_last", p, w)
    }
    return w;
  }
}
#undef TX_LOAD_WORD

template <Cache kCache, class Word>
TX_FN void store_word(Word* p, Word w) {
  static_assert(kCache != Cache::kReadOnly && kCache != Cache::kKeep, "this hint is for loads");
  if constexpr (kCache == Cache::kPlain) {
    *p = w;
  } else if constexpr (kCache == Cache::kStream) {
    __stcs(p, w);
  } else if constexpr (kCache == Cache::kBypass) {
    __stcg(p, w);
  } else if constexpr (sizeof(Word) == 16) {
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(w.x), "r"(w.y), "r"(w.z),
                 "r"(w.w)
                 : "memory");
  } else if constexpr (sizeof(Word) == 8) {
    asm volatile("st.global.L1::no_allocate.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(w.x), "r"(w.y) : "memory");
  } else if constexpr (sizeof(Word) == 4) {
    asm volatile("st.global.L1::no_allocate.u32 [%0], %1;" ::"l"(p), "r"(w) : "memory");
  } else if constexpr (sizeof(Word) == 2) {
    asm volatile("st.global.L1::no_allocate.u16 [%0], %1;" ::"l"(p), "h"(w) : "memory");
  } else {
    asm volatile("st.global.L1::no_allocate.u8 [%0], %1;" ::"l"(p), "r"(u32{w}) : "memory");
  }
}

// Elements index .. index + kCount - 1; the address of the first is a multiple of the bytes of them all.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load(const Memory& from, Index index, Here = Here::now()) {
  static_assert(!Memory::kShared || kCache == Cache::kPlain, "hints are for global memory");
  using Word = typename AccessWord<VectorOf<Memory, kCount>::kBytes>::type;
  const Word word = load_word<kCache>(reinterpret_cast<const Word*>(from.address(index)));
  VectorOf<Memory, kCount> v;
  TX_COPY(&v, &word, sizeof v);
  return v;
}

template <Cache kCache = Cache::kPlain, int kCount, class Memory, class Index>
TX_FN void store(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v, Here = Here::now()) {
  static_assert(!Memory::kShared || kCache == Cache::kPlain, "hints are for global memory");
  using Word = typename AccessWord<sizeof v>::type;
  Word word;
  TX_COPY(&word, &v, sizeof v);
  store_word<kCache>(reinterpret_cast<Word*>(to.address(index)), word);
}

// The elements one by one, kApart from each other, the first one at `index`.
template <int kApart, int kCount, class Memory, class Index>
TX_FN void store_apart(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v, Here = Here::now()) {
  using Word = typename AccessWord<sizeof(typename Memory::Element)>::type;
  Word* const first = reinterpret_cast<Word*>(to.address(index));
  TX_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const auto one = v.one(i);
    TX_COPY(&first[i * kApart], &one, sizeof one);
  }
}

// `load` of a chunk of which only the elements index + first .. index + last - 1 are wanted, at least one: the others
// have any value.
template <int kCount, Cache kCache, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_part(const Memory& from, Index index, int, int, Here) {
  return load<kCount, kCache>(from, index);
}
// The same of a chunk that lies in its array, where none may be wanted.
template <int kCount, Cache kCache, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_any(const Memory& from, Index index, int, int, Here) {
  return load<kCount, kCache>(from, index);
}

// The bytes from the last multiple of 16 in memory to an element. Of its number only what it has beyond a multiple of a
// chunk: for chunks apart by whole ones that is one value, which compilers find so, and not in addresses.
template <class Memory, class Index>
TX_FN int bytes_past(const Memory& from, Index index) {
  constexpr u32 kSize = sizeof(typename Memory::Element);
  u32 first = 0;
  if constexpr (Memory::kShared) {
    first = shared_address(from.address(0));
  } else if constexpr (!Memory::kBeginsChunk) {
    first = static_cast<u32>(reinterpret_cast<u64>(from.address(0)));
  }
  return static_cast<int>((first + (static_cast<u32>(index) & (16 / kSize - 1)) * kSize) & 15);
}

// The low word of (high, low) shifted right by fewer than 32 bits.
TX_FN u32 funnel_word(u32 low, u32 high, int bits) { return __funnelshift_r(low, high, bits); }

}  // namespace tx
#endif
