/* vadd: the C interface of the kernel, by TExpr 0.1.0.
 * Arrays are device pointers, 16-byte aligned, and do not overlap; f16, bf16 and f8 are bit patterns.
 *   A: f32[N], read
 *   B: f32[N], read
 *   C: f32[N], written
 * `stream` is a CUstream or null. Returns 0, or an error code. */
#ifndef TEXPR_VADD_H
#define TEXPR_VADD_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
int tx_vadd(const float *A, const float *B, float *C, int64_t N, void *stream);
#ifdef __cplusplus
}
#endif
#endif
