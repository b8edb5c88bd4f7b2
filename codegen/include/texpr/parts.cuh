#line 2 "/texpr/include/texpr/parts.cuh"
// Concurrent parts of a block, such as a producer warp and groups of consumers: barriers of some of its threads, and
// registers that one part hands to another.
#pragma once
#include "texpr/here.cuh"
#if defined(TX_HOST)
#include "texpr/host/parts.hpp"
#else
#include "texpr/sync.cuh"

namespace tx {

// Barrier kId (0 is sync_block's) of `threads` threads, whole warps: until so many have come. Those who need not wait
// only arrive.
template <int kId>
TX_FN void sync_part(int threads, Here = Here::now()) {
  static_assert(kId >= 1 && kId <= 15, "parts have the barriers 1 to 15");
  asm volatile("barrier.sync %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}
template <int kId>
TX_FN void arrive_part(int threads, Here = Here::now()) {
  static_assert(kId >= 1 && kId <= 15, "parts have the barriers 1 to 15");
  asm volatile("barrier.arrive %0, %1;" ::"n"(kId), "r"(threads) : "memory");
}
// By all warps of a warpgroup: each of those of a block has a barrier of its own, from kFirst on.
template <int kFirst>
TX_FN void sync_warpgroup(Here = Here::now()) {
  static_assert(kFirst >= 1 && kFirst <= 15, "parts have the barriers 1 to 15");
  asm volatile("barrier.sync %0, 128;" ::"r"(kFirst + warpgroup()) : "memory");
}
// The same for all who come, told whether `mine` was true for one of them.
template <int kId>
TX_FN bool sync_any_part(int threads, bool mine, Here = Here::now()) {
  static_assert(kId >= 1 && kId <= 15, "parts have the barriers 1 to 15");
  int any;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.s32 p, %1, 0; barrier.red.or.pred q, %2, %3, p; selp.s32 %0, 1, 0, q; }"
      : "=r"(any)
      : "r"(static_cast<int>(mine)), "n"(kId), "r"(threads)
      : "memory");
  return any != 0;
}

// By all warps of a warpgroup: from now on kCount registers a thread, fewer or more than before. Taking waits until
// others have given.
template <int kCount, bool kHas = kHasRegisterSharing>
TX_FN void give_registers(Here = Here::now()) {
  static_assert(kHas, "setmaxnreg: an architecture with the suffix a or f is needed, such as sm_90a");
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 to 256 registers, in steps of 8");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount, bool kHas = kHasRegisterSharing>
TX_FN void take_registers(Here = Here::now()) {
  static_assert(kHas, "setmaxnreg: an architecture with the suffix a or f is needed, such as sm_90a");
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 to 256 registers, in steps of 8");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace tx
#endif
