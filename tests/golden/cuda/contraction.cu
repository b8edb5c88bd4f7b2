// k: CUDA C++ by TExpr 0.1.0 for cuda:sm_90a, from main
//   k_0: grid (16, 16, 1), block 256 threads, shared 33280 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/kernel.cuh"
#include "texpr/registers.cuh"

#line 10 "/texpr/k.cu"
extern "C" __global__ void __launch_bounds__(256, 2)
k_0(const tx::f32* __restrict__ A_data, const tx::f32* __restrict__ B_data, tx::f32* C_data) {
  const tx::Global<const tx::f32, tx::Fixed<2048, 1>> A(A_data, "A");
  const tx::Global<const tx::f32, tx::Fixed<2048, 1>> B(B_data, "B");
  const tx::Global<tx::f32, tx::Fixed<2048, 1>> C(C_data, "C");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::f32, tx::Fixed<2112, 132, 1>> A_tile(smem + 0, 4220, "A_tile");
  const tx::Shared<tx::f32, tx::Fixed<2048, 128, 1>> B_tile(smem + 16896, 4096, "B_tile");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int i_tile = 128 * tx::block_y();
  const int j_tile = 128 * tx::block_x();
  const int j_at = 32 * (warp % 2) + 4 * (lane % 8);
  const int i_at = 16 * (warp / 2) + 4 * (lane / 8);
  const int A_i_at = 8 * warp + lane / 4;
  const int A_k_at = 4 * (lane % 4);
  const int B_j_at = 4 * lane;
  const int B_k_at = warp;
  tx::Reg<tx::f32, 8> A_next("A_next");
  tx::Reg<tx::f32, 16> A_part("A_part");
  tx::Reg<tx::f32, 8> B_next("B_next");
  tx::Reg<tx::f32, 16> B_part("B_part");
  TX_UNROLL for (int i_round = 0; i_round < 2; ++i_round) {
#line 1 "/texpr/main"
    tx::put(A_next, i_round * 4, tx::load<4>(A, (i_tile + A_i_at + 64 * i_round) * 2048 + A_k_at));
  }
  TX_UNROLL for (int k_round = 0; k_round < 2; ++k_round) {
#line 1
    tx::put(B_next, k_round * 4, tx::load<4>(B, (B_k_at + 8 * k_round) * 2048 + j_tile + B_j_at));
  }
  tx::Reg<tx::f32, 64> C_sum("C_sum");
  TX_UNROLL for (int i_own = 0; i_own < 8; ++i_own) {
    // main:1: kernel k(A: f32[M, K], B: f32[K, N], C: f32[M, N]) { par M i, N j { C[i, j] = sum K k { A[i, k] *...
    TX_UNROLL for (int j_own = 0; j_own < 8; ++j_own) {
#line 1
      C_sum(i_own * 8 + j_own) = 0.0f;
    }
  }
  TX_UNROLL for (int i_none = 0; i_none < 8; ++i_none) {
#line 1
    A_part(i_none) = 0.0f;
  }
  TX_UNROLL for (int j_none = 0; j_none < 8; ++j_none) {
#line 1
    B_part(j_none) = 0.0f;
  }
  TX_UNROLL_BY(1) for (int k_step = 0; k_step < 128; ++k_step) {
    TX_UNROLL for (int i_round_2 = 0; i_round_2 < 2; ++i_round_2) {
      TX_UNROLL for (int k_element = 0; k_element < 4; ++k_element) {
#line 1
        A_tile(k_step % 2, A_k_at + k_element, A_i_at + 64 * i_round_2) = A_next(i_round_2 * 4 + k_element);
      }
    }
    TX_UNROLL for (int k_round_2 = 0; k_round_2 < 2; ++k_round_2) {
#line 1
      tx::store(B_tile, k_step % 2 * 2048 + (B_k_at + 8 * k_round_2) * 128 + B_j_at, tx::take<4>(B_next, k_round_2 * 4));
    }
    if (k_step + 1 < 128) {
      TX_UNROLL for (int i_round_3 = 0; i_round_3 < 2; ++i_round_3) {
#line 1
        tx::put(A_next, i_round_3 * 4, tx::load<4>(A, (i_tile + A_i_at + 64 * i_round_3) * 2048 + 16 * (k_step + 1) + A_k_at));
      }
      TX_UNROLL for (int k_round_3 = 0; k_round_3 < 2; ++k_round_3) {
#line 1
        tx::put(B_next, k_round_3 * 4, tx::load<4>(B, (16 * (k_step + 1) + B_k_at + 8 * k_round_3) * 2048 + j_tile + B_j_at));
      }
    }
    // A_tile is written before it is read
    // A_tile is written before it is read in the next k_step
    // A_tile is read before it is written in the next k_step
    // B_tile is written before it is read
    // B_tile is written before it is read in the next k_step
    // B_tile is read before it is written in the next k_step
#line 1
    tx::sync_block(0);
    TX_UNROLL_BY(1) for (int k_deep = 0; k_deep < 8; ++k_deep) {
      TX_UNROLL for (int j_square = 0; j_square < 2; ++j_square) {
#line 1
        tx::put(B_part, 8 + 4 * j_square, tx::load<4>(B_tile, tx::apart(2048 * (k_step % 2) + 256 * k_deep + j_at, 64 * j_square)));
      }
      TX_UNROLL for (int i_square = 0; i_square < 2; ++i_square) {
#line 1
        tx::put(A_part, 8 + 4 * i_square, tx::load<4>(A_tile, tx::apart(2112 * (k_step % 2) + 264 * k_deep + i_at, 64 * i_square)));
      }
      TX_UNROLL for (int i_own_2 = 0; i_own_2 < 8; ++i_own_2) {
        TX_UNROLL for (int j_own_2 = 0; j_own_2 < 8; ++j_own_2) {
#line 1
          C_sum(i_own_2 * 8 + j_own_2) = tx::fma(A_part(i_own_2), B_part(j_own_2), C_sum(i_own_2 * 8 + j_own_2));
        }
      }
      TX_UNROLL for (int j_square_1 = 0; j_square_1 < 2; ++j_square_1) {
#line 1
        tx::put(B_part, 4 * j_square_1, tx::load<4>(B_tile, tx::apart(2048 * (k_step % 2) + 256 * k_deep + j_at, 64 * j_square_1 + 128)));
      }
      TX_UNROLL for (int i_square_1 = 0; i_square_1 < 2; ++i_square_1) {
#line 1
        tx::put(A_part, 4 * i_square_1, tx::load<4>(A_tile, tx::apart(2112 * (k_step % 2) + 264 * k_deep + i_at, 64 * i_square_1 + 132)));
      }
      TX_UNROLL for (int i_own_3 = 0; i_own_3 < 8; ++i_own_3) {
        TX_UNROLL for (int j_own_3 = 0; j_own_3 < 8; ++j_own_3) {
#line 1
          C_sum(i_own_3 * 8 + j_own_3) = tx::fma(A_part(8 + i_own_3), B_part(8 + j_own_3), C_sum(i_own_3 * 8 + j_own_3));
        }
      }
    }
  }
  TX_UNROLL for (int i_own_4 = 0; i_own_4 < 8; ++i_own_4) {
    TX_UNROLL for (int j_own_4 = 0; j_own_4 < 8; ++j_own_4) {
#line 1
      C_sum(i_own_4 * 8 + j_own_4) = tx::fma(A_part(i_own_4), B_part(j_own_4), C_sum(i_own_4 * 8 + j_own_4));
    }
  }
  TX_UNROLL for (int i_square_2 = 0; i_square_2 < 2; ++i_square_2) {
    TX_UNROLL for (int i_row = 0; i_row < 4; ++i_row) {
      TX_UNROLL for (int j_square_2 = 0; j_square_2 < 2; ++j_square_2) {
        tx::Reg<tx::f32, 4> C_run("C_run");
        TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
#line 1
          C_run(j_vector) = C_sum((4 * i_square_2 + i_row) * 8 + 4 * j_square_2 + j_vector);
        }
#line 1
        tx::store(C, tx::apart(2048 * i_tile + 2048 * i_at + j_tile + j_at, 2048 * i_row + 131072 * i_square_2 + 64 * j_square_2), tx::take<4>(C_run, 0));
      }
    }
  }
}
TX_EXPORT(k_0);
