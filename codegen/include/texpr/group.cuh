#line 2 "/texpr/include/texpr/group.cuh"
// What one thread starts and waits for in groups: cp.async, bulk stores, products of wgmma. `close` ends a group;
// `wait<n>` is over when at most the last n closed groups of this thread are on the way. It orders this thread only: a
// barrier shows others what has arrived.
#pragma once
#include "texpr/here.cuh"

namespace tx {

// Of an access of kBytes, how many are read where so many are wanted from its first on.
template <int kBytes, class Index>
TX_FN int bytes_of(Index wanted) {
  return wanted < 0 ? 0 : wanted < kBytes ? static_cast<int>(wanted) : kBytes;
}

}  // namespace tx

#if defined(TX_HOST)
#include "texpr/host/group.hpp"
#else
#include "texpr/mbarrier.cuh"
#include "texpr/memory.cuh"

namespace tx {

// Starts a copy of kBytes from global to shared memory; of the source only the first `valid` bytes are read, the rest
// of the target becomes zero. Both sides lie on multiples of kBytes.
template <int kBytes, class T, class S>
TX_FN void cp_async(T* to, S* from, int valid = kBytes, Here = Here::now()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(kBytes),
                 "r"(valid)
                 : "memory");
  }
}
TX_FN void cp_async_close(Here = Here::now()) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kBehind>
TX_FN void cp_async_wait(Here = Here::now()) {
  asm volatile("cp.async.wait_group %0;" ::"n"(kBehind) : "memory");
}

// Groups of bulk stores: until their sources are read and may be overwritten, or until all is written.
template <int kOn = kArch>
TX_FN void bulk_close(Here = Here::now()) {
  static_assert(kOn >= 900, "bulk copies: sm_90 or newer is needed");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int kBehind, int kOn = kArch>
TX_FN void bulk_wait_read(Here = Here::now()) {
  static_assert(kOn >= 900, "bulk copies: sm_90 or newer is needed");
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBehind) : "memory");
}
template <int kBehind, int kOn = kArch>
TX_FN void bulk_wait(Here = Here::now()) {
  static_assert(kOn >= 900, "bulk copies: sm_90 or newer is needed");
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kBehind) : "memory");
}

// What this thread wrote with stores so far is seen by bulk copies and wgmma that are started after the next barrier
// (or by this thread itself): every thread that wrote runs it.
template <int kOn = kArch>
TX_FN void fence_async_shared(Here = Here::now()) {
  static_assert(kOn >= 900, "bulk copies and wgmma: sm_90 or newer is needed");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
template <int kOn = kArch>
TX_FN void fence_async_global(Here = Here::now()) {
  static_assert(kOn >= 900, "bulk copies: sm_90 or newer is needed");
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Products of wgmma, by all threads of a warpgroup. The fence stands before the first product, and wherever registers
// of products were touched.
template <bool kHas = kHasWgmma>
TX_FN void wgmma_fence(Here = Here::now()) {
  static_assert(kHas, "wgmma: only sm_90a has it");
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <bool kHas = kHasWgmma>
TX_FN void wgmma_close(Here = Here::now()) {
  static_assert(kHas, "wgmma: only sm_90a has it");
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kBehind, bool kHas = kHasWgmma>
TX_FN void wgmma_wait(Here = Here::now()) {
  static_assert(kHas, "wgmma: only sm_90a has it");
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kBehind) : "memory");
}

}  // namespace tx
#endif
