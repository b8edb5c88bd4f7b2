#line 2 "/texpr/include/texpr/vector.cuh"
// Neighbouring elements in one access of 2, 4, 8 or 16 bytes, with a hint for the caches.
//
// Arrays of any alignment are read in aligned chunks of 16 bytes: `load_chunk` where the chunks are counted from an
// aligned address, `load_funnel` where they are not (two aligned chunks, shifted together). Both are told which
// elements are wanted. The rest of a chunk that holds a wanted element is read and discarded; no other chunk is
// touched, so an access never leaves the pages of its array.
#pragma once
#include "texpr/here.cuh"
#include "texpr/kernel.cuh"

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

  T element[kCount];

  TX_FN Value<T> get(int i) const { return decode(element[i]); }
  TX_FN void set(int i, Value<T> value) { element[i] = encode<T>(value); }
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
  } else {                                                                                                            \
    static_assert(sizeof(w) == 2, "this hint is for accesses of 2 bytes and more");                                   \
    asm("ld.global.nc" hint ".u16 %0, [%1];" : "=h"(w) : "l"(p));                                                     \
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
  } else {
    static_assert(sizeof(Word) == 2, "this hint is for accesses of 2 bytes and more");
    asm volatile("st.global.L1::no_allocate.u16 [%0], %1;" ::"l"(p), "h"(w) : "memory");
  }
}

// Elements index .. index + kCount - 1; the address of the first is a multiple of the bytes of them all.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load(const Memory& from, Index index, Here = Here::now()) {
  static_assert(!Memory::kShared || kCache == Cache::kPlain, "hints are for global memory");
  using Word = typename AccessWord<VectorOf<Memory, kCount>::kBytes>::type;
  const Word word = load_word<kCache>(reinterpret_cast<const Word*>(from.address(index)));
  VectorOf<Memory, kCount> v;
  __builtin_memcpy(&v, &word, sizeof v);
  return v;
}

template <Cache kCache = Cache::kPlain, int kCount, class Memory, class Index>
TX_FN void store(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v, Here = Here::now()) {
  static_assert(!Memory::kShared || kCache == Cache::kPlain, "hints are for global memory");
  using Word = typename AccessWord<sizeof v>::type;
  Word word;
  __builtin_memcpy(&word, &v, sizeof v);
  store_word<kCache>(reinterpret_cast<Word*>(to.address(index)), word);
}

// `load` of a chunk of which only the elements in [begin, end) are wanted, at least one: the others have any value.
template <int kCount, Cache kCache, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_part(const Memory& from, Index index, Index, Index, Here) {
  return load<kCount, kCache>(from, index);
}

// The low word of (high, low) shifted right by fewer than 32 bits.
TX_FN u32 funnel_word(u32 low, u32 high, int bits) { return __funnelshift_r(low, high, bits); }

}  // namespace tx
#endif

namespace tx {

// Elements index .. index + kCount - 1 of which those in [begin, end) are wanted: the others have any value, and where
// none is wanted nothing is read. The first one's address is aligned, also where the element lies before the array.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_chunk(const Memory& from, Index index, Index begin, Index end,
                                          Here here = Here::now()) {
  VectorOf<Memory, kCount> v = {};
  if (begin < end && index < end && index + kCount > begin)
    v = load_part<kCount, kCache>(from, index, begin, end, here);
  return v;
}

// Writes those of the elements index .. index + kCount - 1 that lie in [begin, end), one by one where some do not:
// another block may write the others.
template <Cache kCache = Cache::kPlain, int kCount, class Memory, class Index>
TX_FN void store_chunk(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v, Index begin,
                       Index end, Here here = Here::now()) {
  if (index >= begin && index + kCount <= end) {
    store<kCache>(to, index, v, here);
  } else {
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (index + i >= begin && index + i < end) store(to, index + i, VectorOf<Memory, 1>{{v.element[i]}}, here);
    }
  }
}

// The 16 bytes that begin `bytes` (0 to 15) after the first of two neighbouring chunks.
template <class Chunk>
TX_FN Chunk funnel_shift(Chunk low, Chunk high, int bytes) {
  static_assert(sizeof(Chunk) == 16, "chunks are of 16 bytes");
  u32 w[8];
  __builtin_memcpy(w, &low, 16);
  __builtin_memcpy(w + 4, &high, 16);
  TX_UNROLL
  for (int i = 0; i < 6; ++i) w[i] = (bytes & 8) != 0 ? w[i + 2] : w[i];
  TX_UNROLL
  for (int i = 0; i < 5; ++i) w[i] = (bytes & 4) != 0 ? w[i + 1] : w[i];
  if constexpr (sizeof(low.element[0]) < 4) {
    TX_UNROLL
    for (int i = 0; i < 4; ++i) w[i] = funnel_word(w[i], w[i + 1], (bytes & 3) * 8);
  }
  Chunk out;
  __builtin_memcpy(&out, w, 16);
  return out;
}

// Elements index .. index + kCount - 1, 16 bytes at any address; those in [begin, end) are wanted, as in load_chunk.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_funnel(const Memory& from, Index index, Index begin, Index end,
                                           Here here = Here::now()) {
  constexpr int kSize = sizeof(typename Memory::Element);
  const int past = static_cast<int>(reinterpret_cast<u64>(from.address(index)) & 15);  // the bytes since its chunk began
  const Index first = index - past / kSize, next = first + kCount;
  if (begin < index) begin = index;
  if (end > index + kCount) end = index + kCount;
  const VectorOf<Memory, kCount> low = load_chunk<kCount, kCache>(from, first, begin, end, here);
  const VectorOf<Memory, kCount> high = load_chunk<kCount, kCache>(from, next, begin, end, here);
  return funnel_shift(low, high, past);
}

// The same where all are wanted. At an aligned address the chunk behind is not touched.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_funnel(const Memory& from, Index index, Here here = Here::now()) {
  constexpr int kSize = sizeof(typename Memory::Element);
  const int past = static_cast<int>(reinterpret_cast<u64>(from.address(index)) & 15);
  const Index first = index - past / kSize, end = index + kCount;
  const Index last = past == 0 ? first : first + kCount;  // no branch: the same chunk again
  const VectorOf<Memory, kCount> low = load_part<kCount, kCache>(from, first, index, end, here);
  const VectorOf<Memory, kCount> high = load_part<kCount, kCache>(from, last, index, end, here);
  return funnel_shift(low, high, past);
}

}  // namespace tx
