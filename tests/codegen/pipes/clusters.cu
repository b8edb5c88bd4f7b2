// Blocks of a cluster: a ring that bulk copies fill in two blocks at once, accesses to one another's shared memory, and
// boxes of tensor maps.
#include "texpr/cluster.cuh"
#include "texpr/lanes.cuh"
#include "texpr/pipe.cuh"
#include "texpr/tma.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 1200
// Two blocks: each loads half of every turn's 64 words into both. The consumer of each tells both producers.
template <int kStages>
TX_FN void multicast(tx::u8* smem, const tx::TensorMap& A, float* o, int broken) {
  constexpr int kTurns = 9;
  const tx::Global<float> O(o, "O");
  const tx::Shared<float> tile(smem, 64 * kStages, "tile");
  tx::Pipe<kStages, tx::PipeKind::kTransaction, tx::Scope::kCluster> ab(smem + 256 * kStages, "ab");
  const int rank = tx::cluster_rank();
  if (tx::thread() == 0) {
    tx::prefetch_map(A);
    OP(INIT) ab.init(1, 2);
    OP(FENCE) tx::fence_barrier_init();
  }
  OP(ARRIVE) tx::cluster_arrive_relaxed();
  OP(FIRST) tx::cluster_wait();
  if (tx::thread() == 0) {
    for (int k = 0; k < kTurns; ++k, ab.advance()) {
      OP(ACQUIRE) ab.acquire();
      OP(COMMIT) ab.commit(128 * (times(broken, BYTES) + 1));
      tx::load_box_to(3, tile.at(ab.stage * 64 + rank * 32), A, ab.full(), {k, rank * 32});
      MOVED(ACQUIRE) ab.acquire();
    }
    OP(DRAIN) {
      for (int k = 0; k < kStages; ++k, ab.advance()) ab.acquire();
    }
  } else if (tx::warp() == 1) {
    for (int k = 0; k < kTurns; ++k, ab.advance()) {
      OP(WAIT) ab.wait();
      const float x = tile.load(ab.stage * 64 + tx::lane()), y = tile.load(ab.stage * 64 + 32 + tx::lane());
      MOVED(WAIT) ab.wait();
      OP(SHOW) tx::sync_warp(0);  // all lanes have read
      if (tx::lane() < 2) {
        OP(RELEASE) ab.release_to(tx::lane());
      }
      MOVED(SHOW) tx::sync_warp(1);
      O.store((rank * kTurns + k) * 64 + tx::lane(), 2.0f * x);
      O.store((rank * kTurns + k) * 64 + 32 + tx::lane(), 2.0f * y);
    }
  }
}

#define MULTICAST(stages)                                                                 \
  extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64)              \
      multicast_##stages(const __grid_constant__ tx::TensorMap A, float* o, int broken) { \
    TX_DYN_SMEM(smem);                                                                    \
    multicast<stages>(smem, A, o, broken);                                                \
  }                                                                                       \
  TX_EXPORT_AS(multicast_##stages, tx::Launched().cluster(2))
MULTICAST(1);
MULTICAST(2);
MULTICAST(3);
MULTICAST(4);
#endif

// Each block tells its greatest element to all of its cluster, and reads a word of the next one.
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(32) peers(const float* a, float* o, int broken) {
  TX_DYN_SMEM(smem);
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  const tx::Shared<float> all(smem, 4, "all"), own(smem + 16, 1, "own");
  const int rank = tx::cluster_rank(), size = tx::cluster_size();
  OP(ARRIVE) tx::cluster_arrive_relaxed();
  float m = A.load(tx::block_x() * 32 + tx::lane());
  for (int mask = 16; mask > 0; mask /= 2) m = tx::max(m, tx::shuffle_xor(m, mask));
  OP(FIRST) tx::cluster_wait();
  if (tx::thread() == 0) own.store(0, m);
  MOVED(SHOW) tx::cluster_arrive();
  if (tx::thread() < size) tx::remote(all, tx::thread()).store(rank, m);
  OP(SHOW) tx::cluster_arrive();
  OP(WAIT) tx::cluster_wait();
  float sum = tx::remote(own, (rank + 1) % size).load(0);
  MOVED(WAIT) tx::cluster_wait();
  for (int r = 0; r < size; ++r) sum = sum + all.load(r);
  MOVED(LEAVE) tx::cluster_arrive();
  OP(LEAVE) {
    tx::cluster_arrive();
    tx::cluster_wait();
  }
  if (tx::thread() == 0) O.store(moved(broken, STORE) ? rank : tx::block_x(), sum);
}
TX_EXPORT_AS(peers, tx::Launched().cluster(4));

// Each block sends 32 words to the next one by stores that an mbarrier there counts.
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(32)
    neighbours(const float* a, float* o, int broken) {
  TX_DYN_SMEM(smem);
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  const tx::Shared<float> box(smem, 32, "box");
  const tx::Mbarrier full(smem + 128, 0, "box", "full");
  const int next = (tx::cluster_rank() + 1) % tx::cluster_size();
  if (tx::thread() == 0) {
    OP(INIT) full.init(1);
    OP(FENCE) tx::fence_barrier_init();
    OP(COMMIT) full.expect(64 * (times(broken, BYTES) + 1), 0);
  }
  OP(ARRIVE) tx::cluster_arrive_relaxed();
  OP(FIRST) tx::cluster_wait();
  const float x = A.load(tx::block_x() * 32 + tx::lane());
  OP(STORE) tx::remote(box, next).store_async(tx::lane(), x, full, next);
  OP(WAIT) full.wait<tx::Scope::kBlock>(0);
  O.store(tx::block_x() * 32 + tx::lane(), 2.0f * box.load((tx::lane() + 1) % 32));
}
TX_EXPORT_AS(neighbours, tx::Launched().cluster(4));

// Each block writes 32 words to the next one by stores, and tells it. Moved, the operations say it to their block only.
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(32)
    letters(const float* a, float* o, int broken) {
  TX_DYN_SMEM(smem);
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  const tx::Shared<float> box(smem, 32, "box");
  const tx::Mbarrier full(smem + 128, 0, "box", "full");
  const int next = (tx::cluster_rank() + 1) % tx::cluster_size();
  if (tx::thread() == 0) {
    full.init(1);
    tx::fence_barrier_init();
  }
  tx::cluster_arrive_relaxed();
  tx::cluster_wait();
  tx::remote(box, next).store(tx::lane(), A.load(tx::block_x() * 32 + tx::lane()));
  OP(SHOW) tx::sync_warp(0);
  if (tx::lane() == 0) {
    OP(PUBLISH) full.arrive_remote<tx::Scope::kCluster>(next, 0);
    MOVED(PUBLISH) full.arrive_remote<tx::Scope::kBlock>(next, 0);
  }
  OP(WAIT) full.wait<tx::Scope::kCluster>(0);
  MOVED(WAIT) full.wait<tx::Scope::kBlock>(0);
  O.store(tx::block_x() * 32 + tx::lane(), 2.0f * box.load((tx::lane() + 1) % 32));
}
TX_EXPORT_AS(letters, tx::Launched().cluster(4));

// A ring between two blocks: the first warp of each fills slots of the other, the second reads those of its own.
template <int kStages>
TX_FN void across(tx::u8* smem, const float* a, float* o, int broken) {
  constexpr int kTurns = 9;
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  const tx::Shared<float> tile(smem, 32 * kStages, "tile");
  tx::Pipe<kStages, tx::PipeKind::kArrive, tx::Scope::kCluster> ab(smem + 128 * kStages, "ab");
  const int other = 1 - tx::cluster_rank();
  if (tx::thread() == 0) {
    OP(INIT) ab.init(32, 32);
    OP(FENCE) tx::fence_barrier_init();
  }
  OP(ARRIVE) tx::cluster_arrive_relaxed();
  OP(FIRST) tx::cluster_wait();
  if (tx::warp() == 0) {
    for (int k = 0; k < kTurns; ++k, ab.advance()) {
      OP(ACQUIRE) ab.acquire();
      MOVED(COMMIT) ab.commit_to(other);
      tx::remote(tile, other).store(ab.stage * 32 + tx::lane(), A.load((other * kTurns + k) * 32 + tx::lane()));
      MOVED(ACQUIRE) ab.acquire();
      OP(COMMIT) ab.commit_to(other);
    }
    OP(DRAIN) {
      for (int k = 0; k < kStages; ++k, ab.advance()) ab.acquire();
    }
  } else {
    for (int k = 0; k < kTurns; ++k, ab.advance()) {
      MOVED(RELEASE) ab.release_to(other);
      OP(WAIT) ab.wait();
      const float x = tile.load(ab.stage * 32 + (tx::lane() + 2) % 32);
      MOVED(WAIT) ab.wait();
      OP(RELEASE) ab.release_to(other);
      O.store(((1 - other) * kTurns + k) * 32 + tx::lane(), 2.0f * x);
    }
  }
}

#define ACROSS(stages)                                                       \
  extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64) \
      across_##stages(const float* a, float* o, int broken) {                \
    TX_DYN_SMEM(smem);                                                       \
    across<stages>(smem, a, o, broken);                                      \
  }                                                                          \
  TX_EXPORT_AS(across_##stages, tx::Launched().cluster(2))
ACROSS(1);
ACROSS(2);
ACROSS(3);
ACROSS(4);

// A box, loaded with one swizzle and stored with another or the same, elsewhere; its corner may be outside.
extern "C" __global__ void __launch_bounds__(32)
    boxes(const __grid_constant__ tx::TensorMap A, const __grid_constant__ tx::TensorMap O, int bytes, int row,
          int column, int to_row, int to_column, int broken) {
  TX_DYN_SMEM(smem);
  const tx::Shared<float> tile(smem, 256, "tile");
  tx::Pipe<1, tx::PipeKind::kTransaction> ab(smem + 1024, "ab");
  if (tx::thread() != 0) return;
  OP(INIT) ab.init(1, 1);
  OP(FENCE) tx::fence_barrier_init();
  OP(COMMIT) ab.commit(bytes / 2 * (times(broken, BYTES) + 1));
  tx::load_box(tile.at(0), A, ab.full(), {row, column});
  OP(WAIT) ab.wait();
  OP(STORE) tx::store_box(O, tile.at(0), {to_row, to_column});
  OP(CLOSE) tx::bulk_close();
  OP(READ) tx::bulk_wait_read<0>();
}
TX_EXPORT_AS(boxes, tx::Launched());
#endif
