// vadd: CUDA C++ by TExpr 0.1.0 for cuda:sm_90a, from vadd.tex
//   vadd_0: grid (ceildiv(N, 256), 1, 1), block 256 threads, shared 0 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/kernel.cuh"

#line 9 "/texpr/vadd.cu"
extern "C" __global__ void __launch_bounds__(256)
vadd_0(
    const tx::f32* __restrict__ A_data,
    const tx::f32* __restrict__ B_data,
    tx::f32* __restrict__ C_data,
    tx::i64 N) {
  const tx::Global<const tx::f32> A(A_data, "A");
  const tx::Global<const tx::f32> B(B_data, "B");
  const tx::Global<tx::f32> C(C_data, "C");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const tx::i64 i = tx::i64(256) * tx::block_x() + 32 * warp + lane;
  // vadd.tex:3: C[i] = A[i] + B[i]
#line 3 "/texpr/vadd.tex"
  if (i < N) C(i) = A(i) + B(i);
}
TX_EXPORT(vadd_0);
