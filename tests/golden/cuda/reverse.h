/* reverse: what a launcher in C or C++ needs, by TExpr 0.1.0.
 * There is nothing to link: load the cubin with the CUDA driver (cuModuleLoadData), take each kernel by its
 * symbol and launch it (cuLaunchKernel) with its block, its bytes of shared memory and its grid.
 *
 * Arrays are device pointers, aligned as given, and share no memory unless they are only read; f16, bf16 and
 * f8 are bit patterns.
 *   A: f32[4, 64], read, 16 bytes
 *   C: f32[4, 64], written, 16 bytes
 *
 * The launches, one after the other on one stream; one whose grid is empty is left out:
 *   reverse_0(const float *A, float *C)
 */
#ifndef TEXPR_reverse_H
#define TEXPR_reverse_H
#include <stdint.h>

#define TEXPR_reverse_0_SYMBOL "reverse_0"
#define TEXPR_reverse_0_BLOCK 64
#define TEXPR_reverse_0_SHARED_BYTES 256
static inline void texpr_reverse_0_grid(int64_t grid[3]) {
  grid[0] = 4;
  grid[1] = 1;
  grid[2] = 1;
}

#endif
