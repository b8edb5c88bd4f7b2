/* matmul: what a launcher in C or C++ needs, by TExpr 0.1.0.
 * There is nothing to link: load the cubin with the CUDA driver (cuModuleLoadData), take each kernel by its
 * symbol and launch it (cuLaunchKernel) with its block, its bytes of shared memory and its grid.
 *
 * Arrays are device pointers, aligned as given, and share no memory unless they are only read; f16, bf16 and
 * f8 are bit patterns.
 *   A: f16[48, 24], read, 16 bytes
 *   B: f16[24, 40], read, 16 bytes
 *   C: f32[48, 40], written, 16 bytes
 *
 * The launches, one after the other on one stream; one whose grid is empty is left out:
 *   matmul_0(const uint16_t *A, const uint16_t *B, float *C)
 */
#ifndef TEXPR_matmul_H
#define TEXPR_matmul_H
#include <stdint.h>

#define TEXPR_matmul_0_SYMBOL "matmul_0"
#define TEXPR_matmul_0_BLOCK 128
#define TEXPR_matmul_0_SHARED_BYTES 0
static inline void texpr_matmul_0_grid(int64_t grid[3]) {
  grid[0] = 2;
  grid[1] = 12;
  grid[2] = 1;
}

#endif
