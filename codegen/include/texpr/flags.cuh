#line 2 "/texpr/include/texpr/flags.cuh"
// Between the blocks of a launch: turns, flags, the last one, the barrier of a grid. Counters are words of global
// memory that begin as zero and are zero again when all have come, so that a workspace is cleared once and restored by
// its kernels. Each function is called by one thread of a block; barriers of the block stand around it.
#pragma once
#include "texpr/here.cuh"
#if defined(TX_HOST)
#include "texpr/host/flags.hpp"
#else
#include "texpr/memory.cuh"

namespace tx {

// The number of this block in the order in which blocks started; `turns` of them are given out. Only turns below one's
// own may be awaited: their blocks run already.
TX_FN int take_turn(const Global<u32>& counters, i64 at, int turns, Here = Here::now()) {
  u32 turn;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(turn)
               : "l"(counters.at(at)), "r"(turns - 1)
               : "memory");
  return static_cast<int>(turn);
}

// Sets a flag; who awaits it sees what this thread, and before a barrier its block, has written.
TX_FN void publish(const Global<u32>& flags, i64 at, u32 state, Here = Here::now()) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flags.at(at)), "r"(state) : "memory");
}
// Until the flag is not zero; gives its state.
TX_FN u32 await(const Global<u32>& flags, i64 at, Here = Here::now()) {
  u32 state;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(state) : "l"(flags.at(at)) : "memory");
  } while (state == 0);
  return state;
}

// Counts this block: true for the last one of n, which sees what all of them wrote. One that is alone is not counted.
TX_FN bool last(const Global<u32>& counters, i64 at, int n, Here = Here::now()) {
  if (n == 1) return true;
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counters.at(at)), "r"(n - 1)
               : "memory");
  return before == static_cast<u32>(n - 1);
}
// A barrier of the block that tells every thread whether `mine` was true for one of them.
TX_FN bool sync_any(int, bool mine) { return __syncthreads_or(mine) != 0; }

// The barrier of all blocks of a cooperative launch, called by every thread. The top bit of the counter turns over each
// time; the bits below are zero again.
TX_FN void sync_grid(const Global<u32>& counters, i64 at, Here = Here::now()) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const u32 blocks = gridDim.x * gridDim.y * gridDim.z;
    const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    u32 before, now;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counters.at(at)), "r"(first ? 0x80000000u - (blocks - 1) : 1u)
                 : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counters.at(at)) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
  }
  __syncthreads();
}

}  // namespace tx
#endif
