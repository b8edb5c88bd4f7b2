#line 2 "/texpr/include/texpr/tma.cuh"
// Bulk copies by the copy engine (TMA): boxes of a tensor that a tensor map describes, and runs of bytes. One thread
// starts them. Loads complete on an mbarrier, which counts their bytes (those of a whole box, also at an edge, where
// the rest becomes zero); stores are in a group. Coordinates are in the program's order: the contiguous dimension last.
// The last one, in bytes, is a multiple of 16, and none is negative in a store: else it is an illegal instruction. Loads
// may begin before the array.
#pragma once
#include "texpr/mbarrier.cuh"
#if defined(TX_HOST)
#include "texpr/host/tma.hpp"
#else

namespace tx {

// A parameter `const __grid_constant__ tx::TensorMap`.
struct alignas(64) TensorMap {
  u64 words[16];
};

// Coordinate k from the end of a box's corner, 0 where there is none.
template <int kRank>
TX_FN int from_last(const int (&at)[kRank], int k) {
  static_assert(kRank <= 5, "a tensor map has 1 to 5 dimensions");
  return k < kRank ? at[kRank - 1 - k] : 0;
}

TX_FN u64 map_address(const TensorMap& map) { return reinterpret_cast<u64>(&map); }

// As for the array itself (dependent.cuh).
TX_FN void settled(const TensorMap&, Here = Here::now()) {}

template <int kOn = kArch>
TX_FN void prefetch_map(const TensorMap& map) {
  static_assert(kOn >= 900, "tensor maps: sm_90 or newer is needed");
  asm volatile("prefetch.tensormap [%0];" ::"l"(map_address(map)) : "memory");
}

#define TX_BOX_AT_1 "{%3}"
#define TX_BOX_AT_2 "{%3, %4}"
#define TX_BOX_AT_3 "{%3, %4, %5}"
#define TX_BOX_AT_4 "{%3, %4, %5, %6}"
#define TX_BOX_AT_5 "{%3, %4, %5, %6, %7}"
#define TX_BOX_CORNER \
  "r"(from_last(at, 0)), "r"(from_last(at, 1)), "r"(from_last(at, 2)), "r"(from_last(at, 3)), "r"(from_last(at, 4))
#define TX_BOX_LOAD(rank)                                                                             \
  if constexpr (kRank == rank) {                                                                      \
    asm volatile("cp.async.bulk.tensor." #rank                                                        \
                 "d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, " TX_BOX_AT_##rank \
                 "], [%2];" ::"r"(shared_address(to)),                                                \
                 "l"(map_address(map)), "r"(full.address()), TX_BOX_CORNER                            \
                 : "memory");                                                                         \
  }
#define TX_BOX_MULTICAST(rank)                                                                                  \
  if constexpr (kRank == rank) {                                                                                \
    asm volatile(                                                                                               \
        "cp.async.bulk.tensor." #rank                                                                           \
        "d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, " TX_BOX_AT_##rank \
        "], [%2], %8;" ::"r"(shared_address(to)),                                                               \
        "l"(map_address(map)), "r"(full.address()), TX_BOX_CORNER, "h"(static_cast<u16>(ranks))                 \
        : "memory");                                                                                            \
  }
#define TX_BOX_STORE(rank)                                                                              \
  if constexpr (kRank == rank) {                                                                        \
    asm volatile("cp.async.bulk.tensor." #rank "d.global.shared::cta.bulk_group [%1, " TX_BOX_AT_##rank \
                 "], [%0];" ::"r"(shared_address(from)),                                                \
                 "l"(map_address(map)), "r"(0), TX_BOX_CORNER                                           \
                 : "memory");                                                                           \
  }

// Starts the load of the box whose corner is `at`.
template <class T, int kRank>
TX_FN void load_box(T* to, const TensorMap& map, Mbarrier full, const int (&at)[kRank], Here = Here::now()) {
  static_assert(kArch >= 900 || kRank == 0, "boxes of tensor maps: sm_90 or newer is needed; use cp_async");
  TX_BOX_LOAD(1)
  TX_BOX_LOAD(2)
  TX_BOX_LOAD(3)
  TX_BOX_LOAD(4)
  TX_BOX_LOAD(5)
}
// The same into this place of every block whose rank is a bit of `ranks`; each counts the bytes at its own mbarrier.
template <class T, int kRank>
TX_FN void load_box_to(u32 ranks, T* to, const TensorMap& map, Mbarrier full, const int (&at)[kRank],
                       Here = Here::now()) {
  static_assert(kArch >= 900 || kRank == 0, "boxes of tensor maps: sm_90 or newer is needed; use cp_async");
  static_assert(kHasMulticast || kRank == 0, "boxes for several blocks: sm_90 or sm_100 is needed; use load_box");
  TX_BOX_MULTICAST(1)
  TX_BOX_MULTICAST(2)
  TX_BOX_MULTICAST(3)
  TX_BOX_MULTICAST(4)
  TX_BOX_MULTICAST(5)
}
// Starts the store of a box, in this thread's open group of bulk stores.
template <class T, int kRank>
TX_FN void store_box(const TensorMap& map, T* from, const int (&at)[kRank], Here = Here::now()) {
  static_assert(kArch >= 900 || kRank == 0, "boxes of tensor maps: sm_90 or newer is needed");
  TX_BOX_STORE(1)
  TX_BOX_STORE(2)
  TX_BOX_STORE(3)
  TX_BOX_STORE(4)
  TX_BOX_STORE(5)
}

#undef TX_BOX_AT_1
#undef TX_BOX_AT_2
#undef TX_BOX_AT_3
#undef TX_BOX_AT_4
#undef TX_BOX_AT_5
#undef TX_BOX_CORNER
#undef TX_BOX_LOAD
#undef TX_BOX_MULTICAST
#undef TX_BOX_STORE

// Runs of bytes: both sides and the length are multiples of 16.
template <int kOn = kArch, class T, class S>
TX_FN void load_bulk(T* to, S* from, int bytes, Mbarrier full, Here = Here::now()) {
  static_assert(kOn >= 900, "bulk copies: sm_90 or newer is needed; use cp_async");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(full.address())
               : "memory");
}
template <int kOn = kArch, class T, class S>
TX_FN void store_bulk(T* to, S* from, int bytes, Here = Here::now()) {
  static_assert(kOn >= 900, "bulk copies: sm_90 or newer is needed");
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}

}  // namespace tx
#endif
