// k: CUDA C++ by TExpr 0.1.0 for cuda-host:sm_90a, from main
//   k_0: grid (32768, 1, 1), block 256 threads, shared 128 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/folds.cuh"
#include "texpr/kernel.cuh"

#line 10 "/texpr/k.cu"
extern "C" __global__ void __launch_bounds__(256)
k_0(const tx::f32* __restrict__ X_data, tx::f32* Y_data) {
  const tx::Global<const tx::f32, tx::Fixed<4096, 1>> X(tx::lasting(X_data), "X");
  const tx::Global<tx::f32, tx::Fixed<4096, 1>> Y(Y_data, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32, tx::Fixed<8, 1, 1>> s_slots(smem + 0, 32, "s_slots");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i = tx::block_x();
  const int member = 32 * warp + lane;
  const int in_lanes = lane;
  const int unit = warp;
  // main:1: kernel k(X: f32[M, N], Y: f32[M, N]) { par M i { new s: f32; s = 0.0; seq N j { s += X[i, j]; Y[i...
  const tx::f32 s_before = 0.0f;
  const int j_first = 4 * member;
  tx::Reg<tx::f32, 16> X_run("X_run");
  tx::Reg<tx::f32, 16> Y_run("Y_run");
  TX_UNROLL for (int j_ahead = 0; j_ahead < 4; ++j_ahead) {
#line 1 "/texpr/main"
    tx::put(X_run, j_ahead * 4, tx::load<4>(X, i * 4096 + j_first + 1024 * j_ahead));
  }
  tx::Reg<tx::f32, 16> s_terms("s_terms");
  TX_UNROLL for (int j_round_1 = 0; j_round_1 < 4; ++j_round_1) {
    TX_UNROLL for (int j_vector_1 = 0; j_vector_1 < 4; ++j_vector_1) {
#line 1
      s_terms(j_round_1 * 4 + j_vector_1) = X_run(j_round_1 * 4 + j_vector_1);
    }
  }
  tx::Reg<tx::f32, 4> s_part("s_part");
  tx::Reg<tx::f32, 4> s_lanes("s_lanes");
  TX_UNROLL for (int chunk = 0; chunk < 4; ++chunk) {
#line 1
    s_part(chunk) = tx::fold<tx::Sum<tx::f32>, 4>([&](int each) { return s_terms(chunk * 4 + each); });
#line 1
    s_lanes(chunk) = tx::before_lanes<tx::Sum<tx::f32>>(s_part(chunk));
#line 1
    s_part(chunk) += s_lanes(chunk);
#line 1
    if (in_lanes == 31) s_slots(chunk, unit, 0) = s_part(chunk);
  }
  tx::Reg<tx::f32, 4> s_start("s_start");
  tx::f32 s_tile = 0.0f;
#line 1
  tx::sync_block(0);  // s_slots is written before it is read
  TX_UNROLL for (int chunk_1 = 0; chunk_1 < 4; ++chunk_1) {
    TX_UNROLL for (int each_unit = 0; each_unit < 8; ++each_unit) {
#line 1
      if (unit == each_unit) s_start(chunk_1) = s_tile;
#line 1
      s_tile += s_slots(chunk_1, each_unit, 0);
    }
  }
  TX_UNROLL for (int j_round_2 = 0; j_round_2 < 4; ++j_round_2) {
    tx::f32 s_now = s_before;
#line 1
    s_now += s_start(j_round_2);
#line 1
    s_now += s_lanes(j_round_2);
    const int j_first_3 = 1024 * j_round_2 + j_first;
    TX_UNROLL for (int j_vector_2 = 0; j_vector_2 < 4; ++j_vector_2) {
#line 1
      s_now += s_terms(j_round_2 * 4 + j_vector_2);
#line 1
      Y_run(j_round_2 * 4 + j_vector_2) = s_now;
    }
#line 1
    tx::store(Y, i * 4096 + j_first_3, tx::take<4>(Y_run, j_round_2 * 4));
  }
}
TX_EXPORT(k_0);
