// argmax: CUDA C++ by TExpr 0.1.0 for cuda-host:sm_90a, from main
//   argmax_0: grid (4096, 1, 1), block 32 threads, shared 0 bytes
// Indices count elements. Memory is touched through tx:: accessors only, which are plain pointers here and
// checked ones when the same text runs on the CPU.

#include "texpr/folds.cuh"
#include "texpr/kernel.cuh"

#line 10 "/texpr/argmax.cu"
extern "C" __global__ void __launch_bounds__(32)
argmax_0(const tx::f32* __restrict__ X_data, tx::i64* __restrict__ I_v_data) {
  const tx::Global<const tx::f32, tx::Fixed<1024, 1>> X(X_data, "X");
  const tx::Global<tx::i64> I_v(I_v_data, "I");
  const int lane = tx::lane();
  const int i = tx::block_x();
  // main:4: top = -inf
  tx::f32 top_v = -tx::f32_infinity();
  // main:5: I[i] = 0
#line 5 "/texpr/main"
  if (tx::thread() == 0) I_v(i) = 0ll;
  tx::Reg<tx::f32, 32> X_row("X_row");
  const int row = 4 * lane;
  TX_UNROLL for (int row_part = 0; row_part < 8; ++row_part) {
#line 6
    tx::put(X_row, 4 * row_part, tx::load<4>(X, i * 1024 + row + 128 * row_part));
  }
  // main:7: if X[i, j] > top {
  tx::f32 top_part = -tx::f32_infinity();
  tx::i32 at_part = -1;
  TX_UNROLL for (int j_serial = 0; j_serial < 8; ++j_serial) {
    const int j_first = 128 * j_serial + 4 * lane;
    TX_UNROLL for (int j_vector = 0; j_vector < 4; ++j_vector) {
      const int j = j_vector + j_first;
#line 7
      const bool condition = X_row(4 * j_serial + j_vector) > top_part;
      if (condition) {
#line 7
        top_part = X_row(4 * j_serial + j_vector);
        at_part = j;
      }
    }
  }
#line 7
  const auto S2_lanes = tx::reduce_lanes<tx::FirstGreatest<tx::f32>>(tx::FirstGreatest<tx::f32>::Partial{top_part, at_part});
  top_part = S2_lanes.value;
  at_part = S2_lanes.index;
  const bool condition = at_part >= 0 ? top_part > top_v : false;
  if (condition) {
    // main:8: top = X[i, j]
    top_v = top_part;
    // main:9: I[i] = j
#line 9
    if (tx::thread() == 0) I_v(i) = tx::cast<tx::i64>(at_part);
  }
}
TX_EXPORT(argmax_0);
