// matmul: CUDA C++ by TExpr 0.1.0 for cuda:sm_90a, from matmul.tex
//   matmul_0: grid (2, 12, 1), block 128 threads, shared 0 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/kernel.cuh"

#line 9 "/texpr/matmul.cu"
extern "C" __global__ void __launch_bounds__(128)
matmul_0(
    const tx::f16* __restrict__ A_data,
    const tx::f16* __restrict__ B_data,
    tx::f32* __restrict__ C_data) {
  const tx::Global<const tx::f16, tx::Fixed<24, 1>> A(A_data, "A");
  const tx::Global<const tx::f16, tx::Fixed<40, 1>> B(B_data, "B");
  const tx::Global<tx::f32, tx::Fixed<40, 1>> C(C_data, "C");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = 4 * tx::block_y() + warp;
  const int j = 32 * tx::block_x() + lane;
  // matmul.tex:3: C[i, j] = sum K k { A[i, k] * B[k, j] }
  if (j < 40) {
#line 3 "/texpr/matmul.tex"
    C(i, j) = 0.0f;
    for (int k = 0; k < 24; ++k) {
#line 3
      C(i, j) = tx::fma(tx::cast<tx::f32>(A(i, k)), tx::cast<tx::f32>(B(k, j)), C(i, j));
    }
  }
}
TX_EXPORT(matmul_0);
