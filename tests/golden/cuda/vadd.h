/* vadd: what a launcher in C or C++ needs, by TExpr 0.1.0.
 * There is nothing to link: load the cubin with the CUDA driver (cuModuleLoadData), take each kernel by its
 * symbol and launch it (cuLaunchKernel) with its block, its bytes of shared memory and its grid.
 *
 * Arrays are device pointers, aligned as given, and share no memory unless they are only read; f16, bf16 and
 * f8 are bit patterns.
 *   A: f32[N], read, 16 bytes
 *   B: f32[N], read, 16 bytes
 *   C: f32[N], written, 16 bytes
 *
 * The launches, one after the other on one stream; one whose grid is empty is left out:
 *   vadd_0(const float *A, const float *B, float *C, int64_t N)
 */
#ifndef TEXPR_vadd_H
#define TEXPR_vadd_H
#include <stdint.h>

#ifndef TEXPR_INDEX
#define TEXPR_INDEX
static inline int64_t texpr_floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); } /* b > 0 */
static inline int64_t texpr_mod(int64_t a, int64_t b) { return a - texpr_floordiv(a, b) * b; }
static inline int64_t texpr_ceildiv(int64_t a, int64_t b) { return -texpr_floordiv(-a, b); }
static inline int64_t texpr_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t texpr_max(int64_t a, int64_t b) { return a < b ? b : a; }
#endif

#define TEXPR_vadd_0_SYMBOL "vadd_0"
#define TEXPR_vadd_0_BLOCK 256
#define TEXPR_vadd_0_SHARED_BYTES 0
static inline void texpr_vadd_0_grid(int64_t N, int64_t grid[3]) {
  grid[0] = texpr_ceildiv(N, 256);
  grid[1] = 1;
  grid[2] = 1;
}

#endif
