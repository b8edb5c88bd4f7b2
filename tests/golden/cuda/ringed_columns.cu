// k: CUDA C++ by TExpr 0.1.0 for cuda-host:sm_90a, from main
//   k_0: grid (261, 1, 1), block 416 threads, shared 39936 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/folds.cuh"
#include "texpr/group.cuh"
#include "texpr/kernel.cuh"
#include "texpr/slots.cuh"
#include "texpr/wanted.cuh"

#line 13 "/texpr/k.cu"
extern "C" __global__ void __launch_bounds__(416)
k_0(const tx::bf16* __restrict__ X_data, tx::bf16* Y_data) {
  const tx::Global<const tx::bf16, tx::Fixed<100003, 1>> X(tx::lasting(X_data), "X");
  const tx::Global<tx::bf16, tx::Fixed<100003, 1>> Y(Y_data, "Y");
  TX_DYN_SMEM(smem);
  const tx::Shared<tx::bf16, tx::Fixed<6656, 416, 1>> X_ring(smem + 0, 19968, "X_ring");
  const int lane = tx::lane();
  const int warp = tx::warp();
  const int j_strip = 384 * tx::block_x();
  const int j = 32 * warp + lane + j_strip;
  tx::Reg<tx::f32, 1> s("s");
  // main:1: kernel k(X: bf16[M, N], Y: bf16[M, N]) { par N j { new s: f32; s = 0.0; seq M i { s += X[i, j]; Y...
#line 1 "/texpr/main"
  if (j < 100003 && j < j_strip + 409) s(0) = 0.0f;
  tx::f32 s_before = 0.0f;
#line 1
  if (j < 100003 && j < j_strip + 409) s_before = s(0);
  const int ring_thread = 32 * warp + lane;
  const int ring_row = ring_thread / 52;
  const int ring_chunk = ring_thread % 52;
  TX_UNROLL for (int i_tile = 0; i_tile < 3; ++i_tile) {
    TX_UNROLL for (int copied = 0; copied < 2; ++copied) {
#line 1
      tx::cp_async_or_none<8>(X_ring.at(i_tile * 6656 + (ring_row + 8 * copied) * 416 + 8 * ring_chunk), X, (16 * i_tile + ring_row + 8 * copied) * 100003 + j_strip + 8 * ring_chunk - 3 * ring_row % 8, tx::Wanted<8>(0 - (8 * ring_chunk - 3 * ring_row % 8), tx::min(tx::min(100003 - j_strip, 409), 409 * (257 - (16 * i_tile + ring_row + 8 * copied))) - (8 * ring_chunk - 3 * ring_row % 8)));
    }
    tx::cp_async_close();
  }
  tx::cp_async_wait<2>();
  // X_ring is written before it is read
  // X_ring is written before it is written again
#line 1
  tx::sync_block(0);
  for (int i_tile_2 = 0; i_tile_2 < 17; ++i_tile_2) {
    tx::Reg<tx::f32, 16> s_terms("s_terms");
    TX_UNROLL for (int i_round = 0; i_round < 16; ++i_round) {
#line 1
      s_terms(i_round) = 0.0f;
    }
    if (j < 100003 && j < j_strip + 409) {
      TX_UNROLL for (int i_round_2 = 0; i_round_2 < 16; ++i_round_2) {
#line 1
        s_terms(i_round_2) = tx::cast<tx::f32>(X_ring(i_tile_2 % 3, i_round_2, 3 * i_round_2 % 8 + j - j_strip));
      }
    }
#line 1
    const tx::f32 s_tile = tx::fold<tx::Sum<tx::f32>, 16>([&](int each) { return s_terms(each); });
    tx::f32 s_now = s_before;
    if (j < 100003 && j < j_strip + 409) {
      TX_UNROLL for (int i_round_1 = 0; i_round_1 < 16; ++i_round_1) {
#line 1
        s_now += s_terms(i_round_1);
#line 1
        X_ring(i_tile_2 % 3, i_round_1, 3 * i_round_1 % 8 + j - j_strip) = tx::cast<tx::bf16>(s_now);
      }
    }
    s_before += s_tile;
    tx::cp_async_wait<1>();
    tx::Reg<tx::bf16, 8> Y_run("Y_run");
    // X_ring is read before it is written
    // X_ring is read before it is written in the next i_tile
    // X_ring is written before it is read
    // X_ring is written before it is read in the next i_tile
    // X_ring is written before it is written again
    // X_ring is written before it is written again in the next i_tile
#line 1
    tx::sync_block(1);
    TX_UNROLL for (int copied_2 = 0; copied_2 < 2; ++copied_2) {
      if (16 * i_tile_2 + ring_row + 8 * copied_2 < 257) {
        if (0 < j_strip && 409 < 100003 - j_strip) {
          if (13 * (ring_row + 8 * copied_2) % 16 <= 8 * ring_chunk - 3 * ring_row % 8 && 8 * ring_chunk - 3 * ring_row % 8 + 8 <= 13 * (ring_row + 8 * copied_2) % 16 + 384) {
#line 1
            tx::put(Y_run, 0, tx::load<8>(X_ring, tx::apart(6656 * (i_tile_2 % 3) + 416 * ring_row + 8 * ring_chunk, 3328 * copied_2)));
#line 1
            tx::store(Y, (16 * i_tile_2 + ring_row + 8 * copied_2) * 100003 + j_strip + 8 * ring_chunk - 3 * ring_row % 8, tx::take<8>(Y_run, 0));
          }
        } else {
#line 1
          tx::put(Y_run, 0, tx::load<8>(X_ring, tx::apart(6656 * (i_tile_2 % 3) + 416 * ring_row + 8 * ring_chunk, 3328 * copied_2)));
#line 1
          tx::store_wanted(Y, (16 * i_tile_2 + ring_row + 8 * copied_2) * 100003 + j_strip + 8 * ring_chunk - 3 * ring_row % 8, tx::take<8>(Y_run, 0), tx::Wanted<8>(tx::min(13 * (ring_row + 8 * copied_2) % 16, j_strip) - (8 * ring_chunk - 3 * ring_row % 8), tx::min(100003 - j_strip, 13 * (ring_row + 8 * copied_2) % 16 + 384 + 25 * tx::min(1, tx::max(0, 410 - (100003 - j_strip)))) - (8 * ring_chunk - 3 * ring_row % 8)));
        }
      }
    }
    if (i_tile_2 + 3 < 17) {
      TX_UNROLL for (int copied_3 = 0; copied_3 < 2; ++copied_3) {
#line 1
        tx::cp_async_or_none<8>(X_ring.at((i_tile_2 + 3) % 3 * 6656 + (ring_row + 8 * copied_3) * 416 + 8 * ring_chunk), X, (16 * (i_tile_2 + 3) + ring_row + 8 * copied_3) * 100003 + j_strip + 8 * ring_chunk - 3 * ring_row % 8, tx::Wanted<8>(0 - (8 * ring_chunk - 3 * ring_row % 8), tx::min(tx::min(100003 - j_strip, 409), 409 * (257 - (16 * (i_tile_2 + 3) + ring_row + 8 * copied_3))) - (8 * ring_chunk - 3 * ring_row % 8)));
      }
    }
    tx::cp_async_close();
  }
  tx::cp_async_wait<0>();
}
TX_EXPORT_AS(k_0, tx::Launched());
