// k: CUDA C++ by TExpr 0.1.0 for cuda-host:sm_90a, from main
//   k_0: grid (32, 8, 1), block 512 threads, shared 40960 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/flags.cuh"
#include "texpr/folds.cuh"
#include "texpr/kernel.cuh"

#line 11 "/texpr/k.cu"
extern "C" __global__ void __launch_bounds__(512, 2)
k_0(
    const tx::bf16* __restrict__ X_data,
    tx::f32* V_data,
    tx::i64* A_data,
    tx::f32* best_blocks_data,
    tx::i32* at_blocks_data,
    tx::u32* tickets_data) {
  const tx::Global<const tx::bf16, tx::Fixed<4096, 1>> X(tx::passing(X_data), "X");
  const tx::Global<tx::f32> V(V_data, "V");
  const tx::Global<tx::i64> A(A_data, "A");
  const tx::Global<tx::f32, tx::Fixed<1024, 128, 1>> best_blocks(best_blocks_data, "best_blocks");
  const tx::Global<tx::i32, tx::Fixed<1024, 128, 1>> at_blocks(at_blocks_data, "at_blocks");
  const tx::Global<tx::u32> tickets(tickets_data, "tickets");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32, tx::Fixed<160, 20, 1>> best_parts(smem + 0, 5120, "best_parts");
  const tx::Shared<tx::i32, tx::Fixed<160, 20, 1>> at_parts(smem + 20480, 5120, "at_parts");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int team = 2 * warp + lane / 16;
  const int j_first = 128 * tx::block_x() + 8 * (lane % 16);
  const int part = tx::block_y();
  const int j_tile = tx::block_x();
  tx::Reg<tx::bf16, 8> best_narrow("best_narrow");
  tx::Reg<tx::i16, 8> at_narrow("at_narrow");
  // main:7: seq M i { if f32(X[i, j]) > best { best = X[i, j]; at = i } }
  TX_UNROLL for (int element = 0; element < 8; ++element) {
#line 7 "/texpr/main"
    best_narrow(element) = tx::bf16{0xff80};
#line 7
    at_narrow(element) = tx::i16(-1);
  }
  for (int i_serial = 0; i_serial < 32; ++i_serial) {
    const int i_first = 128 * tx::block_y() + 1024 * i_serial + team;
    tx::Reg<tx::bf16, 32> X_run("X_run");
    TX_UNROLL for (int j_ahead = 0; j_ahead < 4; ++j_ahead) {
#line 7
      tx::put(X_run, 8 * j_ahead, tx::load<8>(X, (i_first + 32 * j_ahead) * 4096 + j_first));
    }
    TX_UNROLL for (int i_round = 0; i_round < 4; ++i_round) {
#line 7
      tx::pick<tx::FirstGreatest<tx::bf16>>(best_narrow, at_narrow, X_run, 8 * i_round, (32 * i_round + i_first) / 32);
    }
  }
  tx::Reg<tx::f32, 8> best_part("best_part");
  tx::Reg<tx::i32, 8> at_part("at_part");
  TX_UNROLL for (int element_1 = 0; element_1 < 8; ++element_1) {
#line 7
    best_part(element_1) = tx::cast<tx::f32>(best_narrow(element_1));
#line 7
    at_part(element_1) = tx::cast<tx::i32>(at_narrow(element_1)) >= 0 ? tx::wrap_add(tx::wrap_mul(tx::cast<tx::i32>(at_narrow(element_1)), 32), team) : -1;
  }
  const int at_1 = lane % 16;
  const int member = 2 * warp + lane / 16;
  TX_UNROLL for (int element_2 = 0; element_2 < 8; ++element_2) {
#line 7
    best_parts(member, element_2, at_1) = best_part(element_2);
#line 7
    at_parts(member, element_2, at_1) = at_part(element_2);
  }
  // best_parts is written before it is combined
  // at_parts is written before it is combined
#line 7
  tx::sync_block(0);
  const int column = 32 * warp + lane;
  const int j = 128 * tx::block_x() + column;
  if (column < 128) {
#line 7
    const auto S2_column = tx::fold<tx::FirstGreatest<tx::f32>, 32>([&](int each) { return tx::FirstGreatest<tx::f32>::Partial{best_parts(each, column % 8, column / 8), at_parts(each, column % 8, column / 8)}; });
    const tx::f32 best_column = S2_column.value;
    const tx::i32 at_column = S2_column.index;
#line 7
    best_blocks(j_tile, part, column) = best_column;
#line 7
    at_blocks(j_tile, part, column) = at_column;
  }
  tx::sync_block(1);
  if (tx::sync_any(2, tx::thread() == 0 && tx::last(tickets, j_tile, 8))) {
    if (column < 128) {
      tx::f32 best_total = -tx::f32_infinity();
      tx::i32 at_total = -1;
      TX_UNROLL for (int parts_turn = 0; parts_turn < 1; ++parts_turn) {
        tx::Reg<tx::f32, 8> best_left("best_left");
        tx::Reg<tx::i32, 8> at_left("at_left");
        TX_UNROLL for (int each_part = 0; each_part < 8; ++each_part) {
#line 7
          best_left(each_part) = best_blocks(j_tile, each_part, column);
#line 7
          at_left(each_part) = at_blocks(j_tile, each_part, column);
        }
        TX_UNROLL for (int each_part_2 = 0; each_part_2 < 8; ++each_part_2) {
#line 7
          const bool condition = best_left(each_part_2) > best_total || (best_left(each_part_2) == best_total && at_left(each_part_2) < at_total);
          if (condition) {
#line 7
            best_total = best_left(each_part_2);
#line 7
            at_total = at_left(each_part_2);
          }
        }
      }
      // main:5: best = -inf
      tx::f32 best = -tx::f32_infinity();
      // main:6: at = -7
      tx::i64 at = -7ll;
      // main:7: seq M i { if f32(X[i, j]) > best { best = X[i, j]; at = i } }
      const bool condition = at_total >= 0 ? best_total > best : false;
      if (condition) {
        best = best_total;
        at = tx::cast<tx::i64>(at_total);
      }
      // main:8: V[j] = best
#line 8
      V(j) = best;
      // main:9: A[j] = at
#line 9
      A(j) = at;
    }
  }
}
TX_EXPORT_AS(k_0, tx::Launched().restoring());
