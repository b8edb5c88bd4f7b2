// reverse: CUDA C++ by TExpr 0.1.0 for cuda:sm_90a, from reverse.tex
//   reverse_0: grid (4, 1, 1), block 64 threads, shared 256 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/kernel.cuh"

#line 9 "/texpr/reverse.cu"
extern "C" __global__ void __launch_bounds__(64)
reverse_0(const tx::f32* __restrict__ A_data, tx::f32* C_data) {
  const tx::Global<const tx::f32, tx::Fixed<64, 1>> A(A_data, "A");
  const tx::Global<tx::f32, tx::Fixed<64, 1>> C(C_data, "C");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> tile(smem + 0, 64, "tile");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int b = tx::block_x();
  const int i = 32 * warp + lane;
  // reverse.tex:4: par 64 i #block { tile[i] = A[b, i] }
#line 4 "/texpr/reverse.tex"
  tile(i) = A(b, i);
  tx::sync_block(0);  // tile is written (line 4) before it is read (line 5)
  const int j = 32 * warp + lane;
  // reverse.tex:5: par 64 j #block { C[b, j] = tile[63 - j] }
#line 5
  C(b, j) = tile(63 - j);
}
TX_EXPORT(reverse_0);
