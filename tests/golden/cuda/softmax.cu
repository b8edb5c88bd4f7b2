// softmax: CUDA C++ by TExpr 0.1.0 for cuda:sm_90a, from softmax.tex
//   softmax_0: grid (M, 1, 1), block 256 threads, shared 96 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/kernel.cuh"
#include "texpr/registers.cuh"

#line 10 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(256)
softmax_0(const tx::f32* __restrict__ X_data, tx::f32* Y_data, tx::i64 N) {
  const tx::Global<const tx::f32, tx::Strides<2>> X(X_data, {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts(smem + 0, 8, "m_parts");
  const tx::Shared<tx::f64> s_parts(smem + 32, 8, "s_parts");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::f32 m_part = -tx::f32_infinity();
  for (tx::i64 k_serial = 0; k_serial < (N + 255) / 256; ++k_serial) {
    const tx::i64 k = 256 * k_serial + 32 * warp + lane;
#line 5 "/texpr/softmax.tex"
    if (k < N) m_part = tx::max(m_part, X(i, k));
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
  const int in_warp = lane;
  const int slot = warp;
#line 5
  if (in_warp == 0) m_parts(slot) = m_part;
#line 5
  tx::sync_block(0);  // m_parts is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 8>([&](int each_warp) { return m_parts(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s = 0.0;
  tx::f64 s_part = 0.0;
  for (tx::i64 k_1_serial_chunk = 0; k_1_serial_chunk < ((N + 255) / 256 + 4095) / 4096; ++k_1_serial_chunk) {
    tx::f32 s_chunk = 0.0f;
    for (int k_1_serial_step = 0; k_1_serial_step < tx::min(tx::i64(4096), (N + 255) / 256 - 4096 * k_1_serial_chunk); ++k_1_serial_step) {
      const tx::i64 k_1 = 1048576 * k_1_serial_chunk + 256 * k_1_serial_step + 32 * warp + lane;
#line 6
      if (k_1 < N) s_chunk += tx::exp(X(i, k_1) - m);
    }
    s_part += tx::cast<tx::f64>(s_chunk);
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f64>>(s_part);
#line 6
  if (in_warp == 0) s_parts(slot) = s_part;
#line 6
  tx::sync_block(1);  // s_parts is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f64>, 8>([&](int each_warp_1) { return s_parts(each_warp_1); });
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  for (tx::i64 j_serial = 0; j_serial < (N + 255) / 256; ++j_serial) {
    const tx::i64 j = 256 * j_serial + 32 * warp + lane;
#line 8
    if (j < N) Y(i, j) = tx::exp(X(i, j) - m) / tx::cast<tx::f32>(s);
  }
}
TX_EXPORT(softmax_0);
