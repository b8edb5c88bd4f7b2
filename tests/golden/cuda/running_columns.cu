// k: CUDA C++ by TExpr 0.1.0 for cuda-host:sm_90a, from main
//   k_0: grid (8192, 1, 1), block 256 threads, shared 2564 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/folds.cuh"
#include "texpr/kernel.cuh"
#include "texpr/look_back.cuh"

#line 11 "/texpr/k.cu"
extern "C" __global__ void __launch_bounds__(256)
k_0(
    const tx::f32* __restrict__ X_data,
    tx::f32* Y_data,
    tx::f64* s_folds_data,
    tx::u32* turns_data,
    tx::u32* s_flags_data) {
  const tx::Global<const tx::f32, tx::Fixed<4096, 1>> X(tx::lasting(X_data), "X");
  const tx::Global<tx::f32, tx::Fixed<4096, 1>> Y(Y_data, "Y");
  const tx::Global<tx::f64> s_folds(s_folds_data, "s_folds");
  const tx::Global<tx::u32> turns(turns_data, "turns");
  const tx::Global<tx::u32> s_flags(s_flags_data, "s_flags");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32, tx::Fixed<256, 32, 1>> s_slots(smem + 0, 512, "s_slots");
  const tx::Shared<tx::f64> s_hand(smem + 2048, 64, "s_hand");
  const tx::Shared<tx::i32> turns_turn(smem + 2560, 1, "turns");
  const int lane = tx::lane();
  const int warp = tx::warp();
  if (tx::thread() == 0) turns_turn.store(0, tx::take_turn(turns, 0, 8192));
  tx::sync_block(0);
  const int block = turns_turn.load(0);
  const int j_first = 64 * (block % 64) + 2 * lane;
  const int member = warp;
  const int unit = warp;
  const int group = lane;
  const int j_tile = block % 64;
  const int part = block / 64;
  tx::Reg<tx::f64, 2> s_before("s_before");
  // main:1: kernel k(X: f32[M, N], Y: f32[M, N]) { par N j { new s: f32; s = 0.0; seq M i { s += X[i, j]; Y[i...
  TX_UNROLL for (int element = 0; element < 2; ++element) {
    const tx::f64 s = 0.0;
#line 1 "/texpr/main"
    s_before(element) = s;
  }
  const int i_first = 256 * part + 32 * member;
  tx::Reg<tx::f32, 64> X_run("X_run");
  tx::Reg<tx::f32, 64> Y_run("Y_run");
  TX_UNROLL for (int i_round = 0; i_round < 32; ++i_round) {
    const int i = i_round + i_first;
#line 1
    tx::put(X_run, i_round * 2, tx::load<2>(X, i * 4096 + j_first));
  }
  tx::Reg<tx::f32, 64> s_terms("s_terms");
  TX_UNROLL for (int i_round_1 = 0; i_round_1 < 32; ++i_round_1) {
    TX_UNROLL for (int j_vector_1 = 0; j_vector_1 < 2; ++j_vector_1) {
#line 1
      s_terms(i_round_1 * 2 + j_vector_1) = X_run(i_round_1 * 2 + j_vector_1);
    }
  }
  tx::Reg<tx::f32, 2> s_part("s_part");
  TX_UNROLL for (int chunk = 0; chunk < 2; ++chunk) {
#line 1
    s_part(chunk) = tx::fold<tx::Sum<tx::f32>, 32>([&](int each) { return s_terms(each * 2 + chunk); });
#line 1
    s_slots(chunk, unit, group) = s_part(chunk);
  }
  tx::Reg<tx::f32, 2> s_start("s_start");
  tx::Reg<tx::f32, 2> s_tile("s_tile");
#line 1
  tx::sync_block(1);  // s_slots is written before it is read
  TX_UNROLL for (int chunk_1 = 0; chunk_1 < 2; ++chunk_1) {
#line 1
    s_tile(chunk_1) = 0.0f;
    TX_UNROLL for (int each_unit = 0; each_unit < 8; ++each_unit) {
#line 1
      if (unit == each_unit) s_start(chunk_1) = s_tile(chunk_1);
#line 1
      s_tile(chunk_1) += s_slots(chunk_1, each_unit, group);
    }
  }
  tx::Reg<tx::f64, 2> s_whole("s_whole");
  TX_UNROLL for (int element_1 = 0; element_1 < 2; ++element_1) {
#line 1
    s_whole(element_1) = tx::cast<tx::f64>(s_tile(element_1));
  }
#line 1
  tx::look_back<tx::Sum<tx::f64>, 64, 2, 256>(s_flags, j_tile * 128, part, s_folds, j_tile * 128 * 128, s_hand, 2 * group, unit == 0, 2,
      [&](int element_2) { return s_whole(element_2); }, [&](int element_2) { return s_before(element_2); },
      [&](int element_2, tx::f64 given) { s_before(element_2) = given; });
  tx::Reg<tx::f32, 2> s_high("s_high");
  TX_UNROLL for (int element_3 = 0; element_3 < 2; ++element_3) {
#line 1
    s_high(element_3) = tx::cast<tx::f32>(s_before(element_3));
  }
  tx::Reg<tx::f32, 2> s_rest("s_rest");
  TX_UNROLL for (int element_4 = 0; element_4 < 2; ++element_4) {
#line 1
    s_rest(element_4) = tx::abs(s_high(element_4)) < tx::f32_infinity() ? tx::cast<tx::f32>(s_before(element_4) - tx::cast<tx::f64>(s_high(element_4))) : 0.0f;
  }
  tx::Reg<tx::f32, 2> s_now("s_now");
  TX_UNROLL for (int chunk_2 = 0; chunk_2 < 2; ++chunk_2) {
#line 1
    s_now(chunk_2) = s_rest(chunk_2);
#line 1
    s_now(chunk_2) += s_start(chunk_2);
  }
  TX_UNROLL for (int i_round_2 = 0; i_round_2 < 32; ++i_round_2) {
    const int i_3 = i_round_2 + i_first;
    TX_UNROLL for (int j_vector_2 = 0; j_vector_2 < 2; ++j_vector_2) {
#line 1
      s_now(j_vector_2) += s_terms(i_round_2 * 2 + j_vector_2);
#line 1
      Y_run(i_round_2 * 2 + j_vector_2) = s_high(j_vector_2) + s_now(j_vector_2);
    }
#line 1
    tx::store(Y, i_3 * 4096 + j_first, tx::take<2>(Y_run, i_round_2 * 2));
  }
}
TX_EXPORT_AS(k_0, tx::Launched().flags());
