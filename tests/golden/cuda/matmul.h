/* matmul: the C interface of the kernel, by TExpr 0.1.0.
 * Arrays are device pointers, 16-byte aligned, and do not overlap; f16, bf16 and f8 are bit patterns.
 *   A: f16[48, 24], read
 *   B: f16[24, 40], read
 *   C: f32[48, 40], written
 * `stream` is a CUstream or null. Returns 0, or an error code. */
#ifndef TEXPR_MATMUL_H
#define TEXPR_MATMUL_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
int tx_matmul(const uint16_t *A, const uint16_t *B, float *C, void *stream);
#ifdef __cplusplus
}
#endif
#endif
