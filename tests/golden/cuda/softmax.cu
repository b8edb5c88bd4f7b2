// softmax: CUDA C++ by TExpr 0.1.0 for cuda:sm_90a, from softmax.tex
//   texpr_softmax_0_case0: grid (ceildiv(M, 256), 1, 1), block 256 threads, shared 0 bytes
//   texpr_softmax_0_case1: grid (ceildiv(M, 256), 1, 1), block 256 threads, shared 0 bytes
//   texpr_softmax_0_case2: grid (ceildiv(M, 8), 1, 1), block 256 threads, shared 0 bytes
//   texpr_softmax_0_case3: grid (ceildiv(M, 4), 1, 1), block 128 threads, shared 0 bytes
//   texpr_softmax_0_case4: grid (M, 1, 1), block 32 threads, shared 0 bytes
//   texpr_softmax_0_case5: grid (M, 1, 1), block 32 threads, shared 0 bytes
//   texpr_softmax_0_case6: grid (M, 1, 1), block 32 threads, shared 0 bytes
//   texpr_softmax_0_case7: grid (M, 1, 1), block 256 threads, shared 64 bytes
//   texpr_softmax_0_case8: grid (M, 1, 1), block 128 threads, shared 32 bytes
//   texpr_softmax_0_case9: grid (M, 1, 1), block 160 threads, shared 52 bytes
//   texpr_softmax_0_case10: grid (M, 1, 1), block 512 threads, shared 128 bytes
//   texpr_softmax_0_case11: grid (M, 1, 1), block 224 threads, shared 60 bytes
//   texpr_softmax_0_case12: grid (M, 1, 1), block 288 threads, shared 84 bytes
//   texpr_softmax_0_case13: grid (M, 1, 1), block 512 threads, shared 128 bytes
//   texpr_softmax_0_case14: grid (M, 1, 1), block 416 threads, shared 116 bytes
//   texpr_softmax_0_case15: grid (M, 1, 1), block 544 threads, shared 148 bytes
//   texpr_softmax_0_case16: grid (M, 1, 1), block 512 threads, shared 128 bytes
//   texpr_softmax_0_case17: grid (M, 1, 1), block 640 threads, shared 160 bytes
//   texpr_softmax_0_case18: grid (M, 1, 1), block 832 threads, shared 216 bytes
//   texpr_softmax_0_case19: grid (M, 1, 1), block 1024 threads, shared 256 bytes
//   texpr_softmax_0_case20: grid (M, 1, 1), block 896 threads, shared 224 bytes
//   texpr_softmax_0_case21: grid (M, 1, 1), block 928 threads, shared 244 bytes
//   texpr_softmax_0_case22: grid (M, 1, 1), block 256 threads, shared 96 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/folds.cuh"
#include "texpr/kernel.cuh"
#include "texpr/wanted.cuh"

#line 33 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(256)
texpr_softmax_0_case0(const tx::f32* __restrict__ X_data, tx::f32* __restrict__ Y_data, tx::i64 M) {
  const tx::Global<const tx::f32, tx::Strides<2>> X(X_data, {1, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {1, 1}, "Y");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const tx::i64 i = tx::i64(256) * tx::block_x() + 32 * warp + lane;
  if (i < M) {
    // softmax.tex:5: m = maximum N k { X[i, k] }
    tx::f32 m = -tx::f32_infinity();
#line 5 "/texpr/softmax.tex"
    m = tx::max(m, X(i, 0));
    // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
    tx::f32 s = 0.0f;
#line 6
    s += tx::exp(X(i, 0) - m);
    // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
    Y(i, 0) = tx::exp(X(i, 0) - m) / s;
  }
}
TX_EXPORT(texpr_softmax_0_case0);

#line 56 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(256)
texpr_softmax_0_case1(
    const tx::f32* __restrict__ X_data,
    tx::f32* __restrict__ Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(X_data, {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const tx::i64 i = tx::i64(256) * tx::block_x() + 32 * warp + lane;
  if (i < M) {
    // softmax.tex:5: m = maximum N k { X[i, k] }
    tx::f32 m = -tx::f32_infinity();
    for (int k = 0; k < N; ++k) {
#line 5 "/texpr/softmax.tex"
      m = tx::max(m, X(i, k));
    }
    // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
    tx::f32 s = 0.0f;
    for (int k_1 = 0; k_1 < N; ++k_1) {
#line 6
      s += tx::exp(X(i, k_1) - m);
    }
    // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
    for (int j = 0; j < N; ++j) {
#line 8
      Y(i, j) = tx::exp(X(i, j) - m) / s;
    }
  }
}
TX_EXPORT(texpr_softmax_0_case1);

#line 91 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(256)
texpr_softmax_0_case2(
    const tx::f32* __restrict__ X_data,
    tx::f32* __restrict__ Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(X_data, {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const tx::i64 i = tx::i64(8) * tx::block_x() + warp;
  if (i < M) {
    // softmax.tex:5: m = maximum N k { X[i, k] }
    tx::f32 m = -tx::f32_infinity();
    tx::Reg<tx::f32, 1> X_row("X_row");
    const int row = lane;
#line 5 "/texpr/softmax.tex"
    tx::put(X_row, 0, tx::load_wanted<1>(X, i * N + row, tx::Wanted<1>(0, N - row)));
    tx::f32 m_part = -tx::f32_infinity();
    const int k = lane;
#line 5
    if (k < N) m_part = tx::max(m_part, X_row(0));
#line 5
    m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
    m = tx::max(m, m_part);
    // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
    tx::f32 s = 0.0f;
    tx::f32 s_part = 0.0f;
#line 6
    if (k < N) s_part += tx::exp(X_row(0) - m);
#line 6
    s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
    s += s_part;
    const int j = lane;
    // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
#line 8
    if (j < N) Y(i, j) = tx::exp(X_row(0) - m) / s;
  }
}
TX_EXPORT(texpr_softmax_0_case2);

#line 134 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(128)
texpr_softmax_0_case3(
    const tx::f32* __restrict__ X_data,
    tx::f32* __restrict__ Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const tx::i64 i = tx::i64(4) * tx::block_x() + warp;
  if (i < M) {
    // softmax.tex:5: m = maximum N k { X[i, k] }
    tx::f32 m = -tx::f32_infinity();
    tx::Reg<tx::f32, 8> X_row_case3("X_row_case3");
    const int row = 4 * lane;
    TX_UNROLL for (int row_part = 0; row_part < 2; ++row_part) {
#line 5 "/texpr/softmax.tex"
      tx::put(X_row_case3, 4 * row_part, tx::load_wanted<4>(X, i * N + row + 128 * row_part, tx::Wanted<4>(0, N - (row + 128 * row_part)).cut(false, true)));
    }
    tx::f32 m_part = -tx::f32_infinity();
    TX_UNROLL for (int k_serial = 0; k_serial < 2; ++k_serial) {
      const int k_first = 128 * k_serial + 4 * lane;
      if (k_first < N) {
        TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
          m_part = tx::max(m_part, X_row_case3(4 * k_serial + k_vector));
        }
      }
    }
#line 5
    m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
    m = tx::max(m, m_part);
    // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
    tx::f32 s = 0.0f;
    tx::f32 s_part = 0.0f;
    TX_UNROLL for (int k_1_serial = 0; k_1_serial < 2; ++k_1_serial) {
      const int k_first_1 = 128 * k_1_serial + 4 * lane;
      if (k_first_1 < N) {
        TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
          s_part += tx::exp(X_row_case3(4 * k_1_serial + k_vector_1) - m);
        }
      }
    }
#line 6
    s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
    s += s_part;
    // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
    TX_UNROLL for (int j_serial = 0; j_serial < 2; ++j_serial) {
      const int j_first = 128 * j_serial + 4 * lane;
      if (j_first < N) {
        tx::Reg<tx::f32, 4> Y_run("Y_run");
        TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
          Y_run(j_vector) = tx::exp(X_row_case3(4 * j_serial + j_vector) - m) / s;
        }
#line 8
        tx::store(Y, i * N + j_first, tx::take<4>(Y_run, 0));
      }
    }
  }
}
TX_EXPORT(texpr_softmax_0_case3);

#line 201 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(32)
texpr_softmax_0_case4(
    const tx::f32* __restrict__ X_data,
    tx::f32* __restrict__ Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  const int lane = tx::lane();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 16> X_row_case4("X_row_case4");
  const int row = 4 * lane;
  TX_UNROLL for (int row_part = 0; row_part < 4; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case4, 4 * row_part, tx::load_or_none<4>(X, tx::i64(i) * N + row + 128 * row_part, tx::i64(i) * N + row, tx::Wanted<4>(0, N - (row + 128 * row_part)).cut(false, 2 <= row_part)));
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 4; ++k_serial) {
    const int k_first = 128 * k_serial + 4 * lane;
    if (k_serial < 2 || k_first < N) {
      TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
        m_part = tx::max(m_part, X_row_case4(4 * k_serial + k_vector));
      }
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f32 s = 0.0f;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 4; ++k_1_serial) {
    const int k_first_1 = 128 * k_1_serial + 4 * lane;
    if (k_1_serial < 2 || k_first_1 < N) {
      TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
        s_part += tx::exp(X_row_case4(4 * k_1_serial + k_vector_1) - m);
      }
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 4; ++j_serial) {
    const int j_first = 128 * j_serial + 4 * lane;
    if (j_serial < 2 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case4(4 * j_serial + j_vector) - m) / s;
      }
#line 8
      tx::store(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case4);

#line 265 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(32)
texpr_softmax_0_case5(
    const tx::f32* __restrict__ X_data,
    tx::f32* __restrict__ Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  const int lane = tx::lane();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 32> X_row_case5("X_row_case5");
  const int row = 4 * lane;
  TX_UNROLL for (int row_part = 0; row_part < 8; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case5, 4 * row_part, tx::load_or_none<4>(X, tx::i64(i) * N + row + 128 * row_part, tx::i64(i) * N + row, tx::Wanted<4>(0, N - (row + 128 * row_part)).cut(false, 4 <= row_part)));
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 8; ++k_serial) {
    const int k_first = 128 * k_serial + 4 * lane;
    if (k_serial < 4 || k_first < N) {
      TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
        m_part = tx::max(m_part, X_row_case5(4 * k_serial + k_vector));
      }
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f32 s = 0.0f;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 8; ++k_1_serial) {
    const int k_first_1 = 128 * k_1_serial + 4 * lane;
    if (k_1_serial < 4 || k_first_1 < N) {
      TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
        s_part += tx::exp(X_row_case5(4 * k_1_serial + k_vector_1) - m);
      }
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 8; ++j_serial) {
    const int j_first = 128 * j_serial + 4 * lane;
    if (j_serial < 4 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case5(4 * j_serial + j_vector) - m) / s;
      }
#line 8
      tx::store(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case5);

#line 329 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(32)
texpr_softmax_0_case6(
    const tx::f32* __restrict__ X_data,
    tx::f32* __restrict__ Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  const int lane = tx::lane();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 20> X_row_case6("X_row_case6");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 5; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case6, 4 * row_part, tx::load_inside<4>(X, tx::i64(i) * N + row + 128 * row_part, tx::Wanted<4>(0 - row, N - row, 128 * row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 5; ++row_part_2) {
#line 5
    tx::fill(X_row_case6, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 128 * row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 5; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case6(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f32 s = 0.0f;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 5; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case6(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 5; ++j_serial) {
    const int j_first = 128 * j_serial + 4 * lane + (-1) * lead;
    if (j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case6(4 * j_serial + j_vector) - m) / s;
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case6);

#line 392 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(256)
texpr_softmax_0_case7(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts(smem + 0, 8, "m_parts");
  const tx::Shared<tx::f32> s_parts(smem + 32, 8, "s_parts");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 8> X_row_case7("X_row_case7");
  const int row = 128 * warp + 4 * lane;
  TX_UNROLL for (int row_part = 0; row_part < 2; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case7, 4 * row_part, tx::load_or_none<4>(X, tx::i64(i) * N + row + 1024 * row_part, tx::i64(i) * N + row, tx::Wanted<4>(0, N - (row + 1024 * row_part)).cut(false, 1 <= row_part)));
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 2; ++k_serial) {
    const int k_first = 1024 * k_serial + 128 * warp + 4 * lane;
    if (k_serial < 1 || k_first < N) {
      TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
        m_part = tx::max(m_part, X_row_case7(4 * k_serial + k_vector));
      }
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 8>([&](int each_warp) { return m_parts(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f32 s = 0.0f;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 2; ++k_1_serial) {
    const int k_first_1 = 1024 * k_1_serial + 128 * warp + 4 * lane;
    if (k_1_serial < 1 || k_first_1 < N) {
      TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
        s_part += tx::exp(X_row_case7(4 * k_1_serial + k_vector_1) - m);
      }
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 8>([&](int each_warp_1) { return s_parts(each_warp_1); });
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 2; ++j_serial) {
    const int j_first = 1024 * j_serial + 128 * warp + 4 * lane;
    if (j_serial < 1 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case7(4 * j_serial + j_vector) - m) / s;
      }
#line 8
      tx::store(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case7);

#line 472 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(128)
texpr_softmax_0_case8(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case8(smem + 0, 4, "m_parts_case8");
  const tx::Shared<tx::f32> s_parts_case8(smem + 16, 4, "s_parts_case8");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 16> X_row_case8("X_row_case8");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 4; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case8, 4 * row_part, tx::load_inside<4>(X, tx::i64(i) * N + row + 512 * row_part, tx::Wanted<4>(0 - row, N - row, 512 * row_part).cut(row_part < 1, 1 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 4; ++row_part_2) {
#line 5
    tx::fill(X_row_case8, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 512 * row_part_2).cut(row_part_2 < 1, 1 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 4; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case8(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case8(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case8 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 4>([&](int each_warp) { return m_parts_case8(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f32 s = 0.0f;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 4; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case8(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case8(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case8 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 4>([&](int each_warp_1) { return s_parts_case8(each_warp_1); });
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 4; ++j_serial) {
    const int j_first = 512 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 1 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case8(4 * j_serial + j_vector) - m) / s;
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 1 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case8);

#line 551 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(160)
texpr_softmax_0_case9(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case9(smem + 0, 5, "m_parts_case9");
  const tx::Shared<tx::f32> s_parts_case9(smem + 32, 5, "s_parts_case9");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 16> X_row_case9("X_row_case9");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 4; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case9, 4 * row_part, tx::load_inside_or_sure<4>(X, tx::i64(i) * N + row + 640 * row_part, tx::i64(i) * N + row + 640, tx::Wanted<4>(0 - row, N - row, 640 * row_part).cut(row_part < 1, 2 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 4; ++row_part_2) {
#line 5
    tx::fill(X_row_case9, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 640 * row_part_2).cut(row_part_2 < 1, 2 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 4; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case9(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case9(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case9 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 5>([&](int each_warp) { return m_parts_case9(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f32 s = 0.0f;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 4; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case9(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case9(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case9 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 5>([&](int each_warp_1) { return s_parts_case9(each_warp_1); });
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 4; ++j_serial) {
    const int j_first = 640 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 2 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case9(4 * j_serial + j_vector) - m) / s;
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 2 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case9);

#line 630 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(512)
texpr_softmax_0_case10(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case10(smem + 0, 16, "m_parts_case10");
  const tx::Shared<tx::f32> s_parts_case10(smem + 64, 16, "s_parts_case10");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 8> X_row_case10("X_row_case10");
  const int row = 128 * warp + 4 * lane;
  TX_UNROLL for (int row_part = 0; row_part < 2; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case10, 4 * row_part, tx::load_or_none<4>(X, tx::i64(i) * N + row + 2048 * row_part, tx::i64(i) * N + row, tx::Wanted<4>(0, N - (row + 2048 * row_part)).cut(false, 1 <= row_part)));
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 2; ++k_serial) {
    const int k_first = 2048 * k_serial + 128 * warp + 4 * lane;
    if (k_serial < 1 || k_first < N) {
      TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
        m_part = tx::max(m_part, X_row_case10(4 * k_serial + k_vector));
      }
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case10(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case10 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 16>([&](int each_warp) { return m_parts_case10(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f32 s = 0.0f;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 2; ++k_1_serial) {
    const int k_first_1 = 2048 * k_1_serial + 128 * warp + 4 * lane;
    if (k_1_serial < 1 || k_first_1 < N) {
      TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
        s_part += tx::exp(X_row_case10(4 * k_1_serial + k_vector_1) - m);
      }
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case10(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case10 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 16>([&](int each_warp_1) { return s_parts_case10(each_warp_1); });
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 2; ++j_serial) {
    const int j_first = 2048 * j_serial + 128 * warp + 4 * lane;
    if (j_serial < 1 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case10(4 * j_serial + j_vector) - m) / s;
      }
#line 8
      tx::store(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case10);

#line 710 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(224)
texpr_softmax_0_case11(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case11(smem + 0, 7, "m_parts_case11");
  const tx::Shared<tx::f32> s_parts_case11(smem + 32, 7, "s_parts_case11");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 16> X_row_case11("X_row_case11");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 4; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case11, 4 * row_part, tx::load_inside_or_sure<4>(X, tx::i64(i) * N + row + 896 * row_part, tx::i64(i) * N + row + 896, tx::Wanted<4>(0 - row, N - row, 896 * row_part).cut(row_part < 1, 2 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 4; ++row_part_2) {
#line 5
    tx::fill(X_row_case11, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 896 * row_part_2).cut(row_part_2 < 1, 2 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 4; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case11(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case11(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case11 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 7>([&](int each_warp) { return m_parts_case11(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f32 s = 0.0f;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 4; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case11(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case11(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case11 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 7>([&](int each_warp_1) { return s_parts_case11(each_warp_1); });
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 4; ++j_serial) {
    const int j_first = 896 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 2 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case11(4 * j_serial + j_vector) - m) / s;
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 2 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case11);

#line 789 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(288)
texpr_softmax_0_case12(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case12(smem + 0, 9, "m_parts_case12");
  const tx::Shared<tx::f32> s_parts_case12(smem + 48, 9, "s_parts_case12");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 16> X_row_case12("X_row_case12");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 4; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case12, 4 * row_part, tx::load_inside_or_sure<4>(X, tx::i64(i) * N + row + 1152 * row_part, tx::i64(i) * N + row + 1152, tx::Wanted<4>(0 - row, N - row, 1152 * row_part).cut(row_part < 1, 2 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 4; ++row_part_2) {
#line 5
    tx::fill(X_row_case12, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 1152 * row_part_2).cut(row_part_2 < 1, 2 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 4; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case12(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case12(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case12 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 9>([&](int each_warp) { return m_parts_case12(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f32 s = 0.0f;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 4; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case12(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case12(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case12 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 9>([&](int each_warp_1) { return s_parts_case12(each_warp_1); });
  s += s_part;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 4; ++j_serial) {
    const int j_first = 1152 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 2 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case12(4 * j_serial + j_vector) - m) / s;
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 2 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case12);

#line 868 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(512)
texpr_softmax_0_case13(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case13(smem + 0, 16, "m_parts_case13");
  const tx::Shared<tx::f32> s_parts_case13(smem + 64, 16, "s_parts_case13");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 16> X_row_case13("X_row_case13");
  const int row = 128 * warp + 4 * lane;
  TX_UNROLL for (int row_part = 0; row_part < 4; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case13, 4 * row_part, tx::load_or_none<4>(X, tx::i64(i) * N + row + 2048 * row_part, tx::i64(i) * N + row, tx::Wanted<4>(0, N - (row + 2048 * row_part)).cut(false, 2 <= row_part)));
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 4; ++k_serial) {
    const int k_first = 2048 * k_serial + 128 * warp + 4 * lane;
    if (k_serial < 2 || k_first < N) {
      TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
        m_part = tx::max(m_part, X_row_case13(4 * k_serial + k_vector));
      }
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case13(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case13 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 16>([&](int each_warp) { return m_parts_case13(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case13 = 0.0;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 4; ++k_1_serial) {
    const int k_first_1 = 2048 * k_1_serial + 128 * warp + 4 * lane;
    if (k_1_serial < 2 || k_first_1 < N) {
      TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
        s_part += tx::exp(X_row_case13(4 * k_1_serial + k_vector_1) - m);
      }
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case13(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case13 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 16>([&](int each_warp_1) { return s_parts_case13(each_warp_1); });
  s_case13 += tx::cast<tx::f64>(s_part);
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 4; ++j_serial) {
    const int j_first = 2048 * j_serial + 128 * warp + 4 * lane;
    if (j_serial < 2 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case13(4 * j_serial + j_vector) - m) / tx::cast<tx::f32>(s_case13);
      }
#line 8
      tx::store(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case13);

#line 948 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(416)
texpr_softmax_0_case14(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case14(smem + 0, 13, "m_parts_case14");
  const tx::Shared<tx::f32> s_parts_case14(smem + 64, 13, "s_parts_case14");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 16> X_row_case14("X_row_case14");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 4; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case14, 4 * row_part, tx::load_inside_or_sure<4>(X, tx::i64(i) * N + row + 1664 * row_part, tx::i64(i) * N + row + 1664, tx::Wanted<4>(0 - row, N - row, 1664 * row_part).cut(row_part < 1, 2 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 4; ++row_part_2) {
#line 5
    tx::fill(X_row_case14, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 1664 * row_part_2).cut(row_part_2 < 1, 2 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 4; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case14(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case14(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case14 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 13>([&](int each_warp) { return m_parts_case14(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case14 = 0.0;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 4; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case14(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case14(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case14 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 13>([&](int each_warp_1) { return s_parts_case14(each_warp_1); });
  s_case14 += tx::cast<tx::f64>(s_part);
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 4; ++j_serial) {
    const int j_first = 1664 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 2 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case14(4 * j_serial + j_vector) - m) / tx::cast<tx::f32>(s_case14);
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 2 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case14);

#line 1027 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(544)
texpr_softmax_0_case15(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case15(smem + 0, 17, "m_parts_case15");
  const tx::Shared<tx::f32> s_parts_case15(smem + 80, 17, "s_parts_case15");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 16> X_row_case15("X_row_case15");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 4; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case15, 4 * row_part, tx::load_inside_or_sure<4>(X, tx::i64(i) * N + row + 2176 * row_part, tx::i64(i) * N + row + 2176, tx::Wanted<4>(0 - row, N - row, 2176 * row_part).cut(row_part < 1, 2 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 4; ++row_part_2) {
#line 5
    tx::fill(X_row_case15, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 2176 * row_part_2).cut(row_part_2 < 1, 2 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 4; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case15(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case15(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case15 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 17>([&](int each_warp) { return m_parts_case15(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case15 = 0.0;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 4; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case15(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case15(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case15 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 17>([&](int each_warp_1) { return s_parts_case15(each_warp_1); });
  s_case15 += tx::cast<tx::f64>(s_part);
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 4; ++j_serial) {
    const int j_first = 2176 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 2 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case15(4 * j_serial + j_vector) - m) / tx::cast<tx::f32>(s_case15);
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 2 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case15);

#line 1106 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(512, 2)
texpr_softmax_0_case16(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case16(smem + 0, 16, "m_parts_case16");
  const tx::Shared<tx::f32> s_parts_case16(smem + 64, 16, "s_parts_case16");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 32> X_row_case16("X_row_case16");
  const int row = 128 * warp + 4 * lane;
  TX_UNROLL for (int row_part = 0; row_part < 8; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case16, 4 * row_part, tx::load_or_none<4>(X, tx::i64(i) * N + row + 2048 * row_part, tx::i64(i) * N + row, tx::Wanted<4>(0, N - (row + 2048 * row_part)).cut(false, 4 <= row_part)));
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 8; ++k_serial) {
    const int k_first = 2048 * k_serial + 128 * warp + 4 * lane;
    if (k_first < N) {
      TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
        m_part = tx::max(m_part, X_row_case16(4 * k_serial + k_vector));
      }
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case16(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case16 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 16>([&](int each_warp) { return m_parts_case16(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case16 = 0.0;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 8; ++k_1_serial) {
    const int k_first_1 = 2048 * k_1_serial + 128 * warp + 4 * lane;
    if (k_first_1 < N) {
      TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
        s_part += tx::exp(X_row_case16(4 * k_1_serial + k_vector_1) - m);
      }
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case16(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case16 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 16>([&](int each_warp_1) { return s_parts_case16(each_warp_1); });
  s_case16 += tx::cast<tx::f64>(s_part);
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 8; ++j_serial) {
    const int j_first = 2048 * j_serial + 128 * warp + 4 * lane;
    if (j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case16(4 * j_serial + j_vector) - m) / tx::cast<tx::f32>(s_case16);
      }
#line 8
      tx::store(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case16);

#line 1186 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(640)
texpr_softmax_0_case17(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case17(smem + 0, 20, "m_parts_case17");
  const tx::Shared<tx::f32> s_parts_case17(smem + 80, 20, "s_parts_case17");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 20> X_row_case17("X_row_case17");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 5; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case17, 4 * row_part, tx::load_inside_or_sure<4>(X, tx::i64(i) * N + row + 2560 * row_part, tx::i64(i) * N + row + 2560, tx::Wanted<4>(0 - row, N - row, 2560 * row_part).cut(row_part < 1, 3 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 5; ++row_part_2) {
#line 5
    tx::fill(X_row_case17, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 2560 * row_part_2).cut(row_part_2 < 1, 3 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 5; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case17(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case17(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case17 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 20>([&](int each_warp) { return m_parts_case17(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case17 = 0.0;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 5; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case17(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case17(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case17 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 20>([&](int each_warp_1) { return s_parts_case17(each_warp_1); });
  s_case17 += tx::cast<tx::f64>(s_part);
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 5; ++j_serial) {
    const int j_first = 2560 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 3 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case17(4 * j_serial + j_vector) - m) / tx::cast<tx::f32>(s_case17);
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 3 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case17);

#line 1265 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(832)
texpr_softmax_0_case18(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case18(smem + 0, 26, "m_parts_case18");
  const tx::Shared<tx::f32> s_parts_case18(smem + 112, 26, "s_parts_case18");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 20> X_row_case18("X_row_case18");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 5; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case18, 4 * row_part, tx::load_inside_or_sure<4>(X, tx::i64(i) * N + row + 3328 * row_part, tx::i64(i) * N + row + 3328, tx::Wanted<4>(0 - row, N - row, 3328 * row_part).cut(row_part < 1, 3 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 5; ++row_part_2) {
#line 5
    tx::fill(X_row_case18, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 3328 * row_part_2).cut(row_part_2 < 1, 3 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 5; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case18(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case18(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case18 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 26>([&](int each_warp) { return m_parts_case18(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case18 = 0.0;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 5; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case18(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case18(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case18 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 26>([&](int each_warp_1) { return s_parts_case18(each_warp_1); });
  s_case18 += tx::cast<tx::f64>(s_part);
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 5; ++j_serial) {
    const int j_first = 3328 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 3 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case18(4 * j_serial + j_vector) - m) / tx::cast<tx::f32>(s_case18);
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 3 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case18);

#line 1344 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(1024)
texpr_softmax_0_case19(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case19(smem + 0, 32, "m_parts_case19");
  const tx::Shared<tx::f32> s_parts_case19(smem + 128, 32, "s_parts_case19");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 32> X_row_case19("X_row_case19");
  const int row = 128 * warp + 4 * lane;
  TX_UNROLL for (int row_part = 0; row_part < 8; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case19, 4 * row_part, tx::load_or_none<4>(X, tx::i64(i) * N + row + 4096 * row_part, tx::i64(i) * N + row, tx::Wanted<4>(0, N - (row + 4096 * row_part)).cut(false, 4 <= row_part)));
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 8; ++k_serial) {
    const int k_first = 4096 * k_serial + 128 * warp + 4 * lane;
    if (k_serial < 4 || k_first < N) {
      TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
        m_part = tx::max(m_part, X_row_case19(4 * k_serial + k_vector));
      }
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case19(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case19 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 32>([&](int each_warp) { return m_parts_case19(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case19 = 0.0;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 8; ++k_1_serial) {
    const int k_first_1 = 4096 * k_1_serial + 128 * warp + 4 * lane;
    if (k_1_serial < 4 || k_first_1 < N) {
      TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
        s_part += tx::exp(X_row_case19(4 * k_1_serial + k_vector_1) - m);
      }
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case19(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case19 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 32>([&](int each_warp_1) { return s_parts_case19(each_warp_1); });
  s_case19 += tx::cast<tx::f64>(s_part);
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 8; ++j_serial) {
    const int j_first = 4096 * j_serial + 128 * warp + 4 * lane;
    if (j_serial < 4 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case19(4 * j_serial + j_vector) - m) / tx::cast<tx::f32>(s_case19);
      }
#line 8
      tx::store(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case19);

#line 1424 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(896)
texpr_softmax_0_case20(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case20(smem + 0, 28, "m_parts_case20");
  const tx::Shared<tx::f32> s_parts_case20(smem + 112, 28, "s_parts_case20");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 28> X_row_case20("X_row_case20");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 7; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case20, 4 * row_part, tx::load_inside<4>(X, tx::i64(i) * N + row + 3584 * row_part, tx::Wanted<4>(0 - row, N - row, 3584 * row_part).cut(row_part < 1, 4 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 7; ++row_part_2) {
#line 5
    tx::fill(X_row_case20, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 3584 * row_part_2).cut(row_part_2 < 1, 4 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 7; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case20(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case20(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case20 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 28>([&](int each_warp) { return m_parts_case20(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case20 = 0.0;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 7; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case20(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case20(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case20 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 28>([&](int each_warp_1) { return s_parts_case20(each_warp_1); });
  s_case20 += tx::cast<tx::f64>(s_part);
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 7; ++j_serial) {
    const int j_first = 3584 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 4 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case20(4 * j_serial + j_vector) - m) / tx::cast<tx::f32>(s_case20);
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 4 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case20);

#line 1503 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(928)
texpr_softmax_0_case21(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::i64 M,
    tx::i64 N_i64) {
  const int N = int(N_i64);
  const tx::Global<const tx::f32, tx::Strides<2>> X(tx::lasting(X_data, M * N * 4 > 50000000), {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case21(smem + 0, 29, "m_parts_case21");
  const tx::Shared<tx::f32> s_parts_case21(smem + 128, 29, "s_parts_case21");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  // softmax.tex:5: m = maximum N k { X[i, k] }
  tx::f32 m = -tx::f32_infinity();
  tx::Reg<tx::f32, 36> X_row_case21("X_row_case21");
  const int lead = tx::lead<128>(X, tx::i64(i) * N);
  const int row = 128 * warp + 4 * lane + (-1) * lead;
  TX_UNROLL for (int row_part = 0; row_part < 9; ++row_part) {
#line 5 "/texpr/softmax.tex"
    tx::put(X_row_case21, 4 * row_part, tx::load_inside<4>(X, tx::i64(i) * N + row + 3712 * row_part, tx::Wanted<4>(0 - row, N - row, 3712 * row_part).cut(row_part < 1, 6 <= row_part), M * N));
  }
  TX_UNROLL for (int row_part_2 = 0; row_part_2 < 9; ++row_part_2) {
#line 5
    tx::fill(X_row_case21, 4 * row_part_2, tx::Wanted<4>(0 - row, N - row, 3712 * row_part_2).cut(row_part_2 < 1, 6 <= row_part_2), -tx::f32_infinity());
  }
  tx::f32 m_part = -tx::f32_infinity();
  TX_UNROLL for (int k_serial = 0; k_serial < 9; ++k_serial) {
    TX_UNROLL for (int k_vector = 0; k_vector < 4; ++k_vector) {
#line 5
      m_part = tx::max(m_part, X_row_case21(4 * k_serial + k_vector));
    }
  }
#line 5
  m_part = tx::reduce_lanes<tx::Greatest<tx::f32>>(m_part);
#line 5
  if (lane == 0) m_parts_case21(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case21 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 29>([&](int each_warp) { return m_parts_case21(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case21 = 0.0;
  tx::f32 s_part = 0.0f;
  TX_UNROLL for (int k_1_serial = 0; k_1_serial < 9; ++k_1_serial) {
    TX_UNROLL for (int k_vector_1 = 0; k_vector_1 < 4; ++k_vector_1) {
#line 6
      s_part += tx::exp(X_row_case21(4 * k_1_serial + k_vector_1) - m);
    }
  }
#line 6
  s_part = tx::reduce_lanes<tx::Sum<tx::f32>>(s_part);
#line 6
  if (lane == 0) s_parts_case21(warp) = s_part;
#line 6
  tx::sync_block(1);  // s_parts_case21 is written before it is combined
#line 6
  s_part = tx::fold<tx::Sum<tx::f32>, 29>([&](int each_warp_1) { return s_parts_case21(each_warp_1); });
  s_case21 += tx::cast<tx::f64>(s_part);
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  TX_UNROLL for (int j_serial = 0; j_serial < 9; ++j_serial) {
    const int j_first = 3712 * j_serial + 128 * warp + 4 * lane + (-1) * lead;
    if (j_serial < 6 || j_first < N) {
      tx::Reg<tx::f32, 4> Y_run("Y_run");
      TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 8
        Y_run(j_vector) = tx::exp(X_row_case21(4 * j_serial + j_vector) - m) / tx::cast<tx::f32>(s_case21);
      }
#line 8
      tx::store_wanted(Y, tx::i64(i) * N + j_first, tx::take<4>(Y_run, 0), tx::Wanted<4>(0 - j_first, N - j_first).cut(j_serial < 1, 6 <= j_serial));
    }
  }
}
TX_EXPORT(texpr_softmax_0_case21);

#line 1582 "/texpr/softmax.cu"
extern "C" __global__ void __launch_bounds__(256)
texpr_softmax_0_case22(const tx::f32* __restrict__ X_data, tx::f32* Y_data, tx::i64 N) {
  const tx::Global<const tx::f32, tx::Strides<2>> X(X_data, {N, 1}, "X");
  const tx::Global<tx::f32, tx::Strides<2>> Y(Y_data, {N, 1}, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32> m_parts_case22(smem + 0, 8, "m_parts_case22");
  const tx::Shared<tx::f64> s_parts_case22(smem + 32, 8, "s_parts_case22");
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
#line 5
  if (lane == 0) m_parts_case22(warp) = m_part;
#line 5
  tx::sync_block(0);  // m_parts_case22 is written before it is combined
#line 5
  m_part = tx::fold<tx::Greatest<tx::f32>, 8>([&](int each_warp) { return m_parts_case22(each_warp); });
  m = tx::max(m, m_part);
  // softmax.tex:6: s = sum N k { exp(X[i, k] - m) }
  tx::f64 s_case22 = 0.0;
  tx::f64 s_part_case22 = 0.0;
  for (tx::i64 k_1_serial_chunk = 0; k_1_serial_chunk < ((N + 255) / 256 + 4095) / 4096; ++k_1_serial_chunk) {
    tx::f32 s_chunk = 0.0f;
    for (int k_1_serial_step = 0; k_1_serial_step < tx::min(tx::i64(4096), (N + 255) / 256 - 4096 * k_1_serial_chunk); ++k_1_serial_step) {
      const tx::i64 k_1 = 1048576 * k_1_serial_chunk + 256 * k_1_serial_step + 32 * warp + lane;
#line 6
      if (k_1 < N) s_chunk += tx::exp(X(i, k_1) - m);
    }
    s_part_case22 += tx::cast<tx::f64>(s_chunk);
  }
#line 6
  s_part_case22 = tx::reduce_lanes<tx::Sum<tx::f64>>(s_part_case22);
#line 6
  if (lane == 0) s_parts_case22(warp) = s_part_case22;
#line 6
  tx::sync_block(1);  // s_parts_case22 is written before it is combined
#line 6
  s_part_case22 = tx::fold<tx::Sum<tx::f64>, 8>([&](int each_warp_1) { return s_parts_case22(each_warp_1); });
  s_case22 += s_part_case22;
  // softmax.tex:8: Y[i, j] = exp(X[i, j] - m) / s
  for (tx::i64 j_serial = 0; j_serial < (N + 255) / 256; ++j_serial) {
    const tx::i64 j = 256 * j_serial + 32 * warp + lane;
#line 8
    if (j < N) Y(i, j) = tx::exp(X(i, j) - m) / tx::cast<tx::f32>(s_case22);
  }
}
TX_EXPORT(texpr_softmax_0_case22);
