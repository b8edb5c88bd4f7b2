#line 2 "/texpr/include/texpr/sync.cuh"
// Where a thread stands in its launch, and the barriers. Blocks are one-dimensional.
#pragma once
#include "texpr/types.cuh"

#define TX_DYN_SMEM(name) extern __shared__ __align__(1024) tx::u8 name[]
#define TX_EXPORT(symbol) static_assert(true, "")
#define TX_EXPORT_AS(symbol, launch) static_assert(true, "")  // of a kernel with more than barriers: host/launch.hpp

namespace tx {

TX_FN int thread() { return static_cast<int>(threadIdx.x); }
TX_FN int lane() { return static_cast<int>(threadIdx.x % 32); }
TX_FN int warp() { return static_cast<int>(threadIdx.x / 32); }
TX_FN int warpgroup() { return static_cast<int>(threadIdx.x / 128); }
TX_FN int block_x() { return static_cast<int>(blockIdx.x); }
TX_FN int block_y() { return static_cast<int>(blockIdx.y); }
TX_FN int block_z() { return static_cast<int>(blockIdx.z); }

// All threads of the block, or of the warp, arrive before any goes on. The number is that of the barrier in the text.
TX_FN void sync_block(int) { __syncthreads(); }
TX_FN void sync_warp(int) { __syncwarp(); }

}  // namespace tx
