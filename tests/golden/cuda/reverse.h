/* reverse: the C interface of the kernel, by TExpr 0.1.0.
 * Arrays are device pointers, 16-byte aligned, and do not overlap; f16, bf16 and f8 are bit patterns.
 *   A: f32[4, 64], read
 *   C: f32[4, 64], written
 * `stream` is a CUstream or null. Returns 0, or an error code. */
#ifndef TEXPR_REVERSE_H
#define TEXPR_REVERSE_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
int tx_reverse(const float *A, float *C, void *stream);
#ifdef __cplusplus
}
#endif
#endif
