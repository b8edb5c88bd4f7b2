// Between the blocks of a launch: a scan by look-back, a sum that the last block ends, and the barrier of a grid.
// `words` are counters and flags, zero before and after.
#include "texpr/flags.cuh"

// Running sums of 64 words a block: a block awaits what the one before it published. Flags are reset by who awaited.
extern "C" __global__ void __launch_bounds__(64)
    look_back(const float* a, float* o, float* sums, unsigned* words, int blocks, int broken) {
  TX_DYN_SMEM(smem);
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O"), S(sums, "S");
  const tx::Global<tx::u32> W(words, "W");
  const tx::Shared<int> mine(smem, 1, "mine");
  const tx::Shared<float> before(smem + 16, 1, "before");
  if (tx::thread() == 0) {
    OP(TURN) mine.store(0, tx::take_turn(W, 0, blocks));
  }
  MOVED(TURN) {
    if (tx::thread() == 0) mine.store(0, tx::block_x());
  }
  tx::sync_block(0);
  const int turn = mine.load(0);
  if (tx::thread() == 0) {
    float sum = 0.0f;
    for (int i = 0; i < 64; ++i) sum = sum + A.load(turn * 64 + i);
    float prefix = 0.0f;
    if (turn > 0) {
      OP(AWAIT) tx::await(W, turn);
      prefix = S.load(turn - 1);
      MOVED(AWAIT) tx::await(W, turn);
      OP(RESET) W.store(turn, 0);
    }
    MOVED(PUBLISH) tx::publish(W, turn + 1, 1);
    S.store(turn, prefix + sum);
    if (turn + 1 < blocks) {
      OP(PUBLISH) tx::publish(W, turn + 1, 1);
    }
    before.store(0, prefix);
  }
  tx::sync_block(1);
  float running = before.load(0);
  for (int i = 0; i <= tx::thread(); ++i) running = running + A.load(turn * 64 + i);
  O.store(turn * 64 + tx::thread(), running);
}
TX_EXPORT_AS(look_back, tx::Launched().restoring());

// Sums over all blocks in a fixed order, by the block that comes last.
extern "C" __global__ void __launch_bounds__(64)
    ticket_sum(const float* a, float* o, float* sums, unsigned* words, int blocks, int broken) {
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O"), S(sums, "S");
  const tx::Global<tx::u32> W(words, "W");
  bool is_last = false;
  MOVED(LAST) {
    if (tx::thread() == 0) is_last = tx::last(W, 0, blocks);
  }
  S.store(tx::block_x() * 64 + tx::thread(), A.load(tx::block_x() * 64 + tx::thread()));
  OP(SHOW) tx::sync_block(0);
  if (tx::thread() == 0) {
    OP(LAST) is_last = tx::last(W, 0, blocks);
  }
  MOVED(SHOW) tx::sync_block(0);
  if (times(broken, WAIT) == 0 || tx::sync_any(1, is_last)) {
    float sum = 0.0f;
    for (int b = 0; b < blocks; ++b) sum = sum + S.load(b * 64 + tx::thread());
    O.store(tx::thread(), sum);
  }
}
TX_EXPORT_AS(ticket_sum, tx::Launched().restoring());

// Every block reads what the next one wrote, twice.
extern "C" __global__ void __launch_bounds__(64)
    grid_steps(const float* a, float* o, float* sums, unsigned* words, int blocks, int broken) {
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O"), S(sums, "S");
  const tx::Global<tx::u32> W(words, "W");
  const int own = tx::block_x() * 64 + tx::thread(), next = (tx::block_x() + 1) % blocks * 64 + tx::thread();
  S.store(own, A.load(own));
  OP(GRID) tx::sync_grid(W, 0);
  const float x = S.load(next);
  OP(FREE) tx::sync_grid(W, 0);
  S.store(own, 2.0f * x);
  OP(SHOW) tx::sync_grid(W, 0);
  O.store(own, S.load(next));
}
TX_EXPORT_AS(grid_steps, tx::Launched().cooperative());
