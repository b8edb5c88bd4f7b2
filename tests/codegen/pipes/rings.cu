// Rings in a block: a producer warp fills slots, a consumer warp reads them, two lanes further. STEPS turns of 32
// words. operations.cuh says what `broken` does.
#include "texpr/dependent.cuh"
#include "texpr/parts.cuh"
#include "texpr/pipe.cuh"
#include "texpr/tma.cuh"

constexpr int kSteps = 9;

template <int kStages, tx::PipeKind kKind>
struct Ring {
  tx::Global<const float> A;
  tx::Global<float> O;
  tx::Shared<float> tile;
  tx::Pipe<kStages, kKind> ab;
  int broken;

  TX_FN Ring(tx::u8* smem, const float* a, float* o, int b)
      : A(a, "A"), O(o, "O"), tile(smem, 32 * kStages, "tile"), ab(smem + 128 * kStages, "ab"), broken(b) {}

  TX_FN void start(int producers, bool fenced) {
    if (tx::thread() == 0) {
      OP(INIT) ab.init(producers, 32);
      if (fenced) {
        if constexpr (kKind == tx::PipeKind::kTransaction) OP(FENCE) tx::fence_barrier_init();
      }
    }
    OP(FIRST) tx::sync_block(0);
  }
  TX_FN void consume() {
    for (int k = 0; k < kSteps; ++k) {
      MOVED(RELEASE) ab.release();
      OP(WAIT) ab.wait();
      const float x = tile.load(ab.stage * 32 + (tx::lane() + 2) % 32);
      MOVED(WAIT) ab.wait();
      OP(RELEASE) ab.release();
      O.store(k * 32 + tx::lane(), 2.0f * x);
      OP(STEP) ab.advance();
    }
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Bulk copies: two halves of a slot, one arrival that expects the bytes of both.
template <int kStages>
TX_FN void ring_transaction(tx::u8* smem, const float* a, float* o, int broken) {
  Ring<kStages, tx::PipeKind::kTransaction> ring(smem, a, o, broken);
  auto& ab = ring.ab;
  ring.start(1, true);
  if (tx::warp() == 1) return ring.consume();
  if (tx::lane() != 0) return;
  for (int k = 0; k < kSteps; ++k, ab.advance()) {
    OP(ACQUIRE) ab.acquire();
    MOVED(COMMIT) ab.commit(128);
    for (int half = 0; half < 2; ++half) {
      tx::load_bulk(ring.tile.at(ab.stage * 32 + half * 16), ring.A.at(k * 32 + half * 16), 64, ab.full());
    }
    MOVED(ACQUIRE) ab.acquire();
    OP(COMMIT) ab.commit(64 * (times(broken, BYTES) + 1));
  }
}
#endif

// Stores of the threads of a warp.
template <int kStages>
TX_FN void ring_arrive(tx::u8* smem, const float* a, float* o, int broken) {
  Ring<kStages, tx::PipeKind::kArrive> ring(smem, a, o, broken);
  auto& ab = ring.ab;
  ring.start(32, false);
  if (tx::warp() == 1) return ring.consume();
  for (int k = 0; k < kSteps; ++k, ab.advance()) {
    OP(ACQUIRE) ab.acquire();
    MOVED(COMMIT) ab.commit();
    ring.tile.store(ab.stage * 32 + tx::lane(), ring.A.load(k * 32 + tx::lane()));
    MOVED(ACQUIRE) ab.acquire();
    OP(COMMIT) ab.commit();
  }
}

// The memory of a ring's mbarriers is used again when they have come to their end.
TX_FN void ended(tx::u8* smem, const float* a, float* o, int broken) {
  Ring<2, tx::PipeKind::kArrive> ring(smem, a, o, 0);
  ring.start(32, false);
  if (tx::warp() == 0) {
    for (int k = 0; k < kSteps; ++k, ring.ab.advance()) {
      ring.ab.acquire();
      ring.tile.store(ring.ab.stage * 32 + tx::lane(), ring.A.load(k * 32 + tx::lane()));
      ring.ab.commit();
    }
  } else {
    ring.consume();
  }
  MOVED(END) {
    if (tx::thread() == 0) ring.ab.invalidate();
  }
  OP(FREE) tx::sync_block(1);
  if (tx::thread() == 0) {
    OP(END) ring.ab.invalidate();
  }
  OP(SHOW) tx::sync_block(2);
  const tx::Shared<float> again(smem + 256, 8, "again");
  if (tx::thread() == 3) {
    again.store(7, ring.A.load(5));
    ring.O.store(3, 2.0f * again.load(7));
  }
}

// cp.async of the threads of a warp, which arrive when these are done.
template <int kStages>
TX_FN void ring_copies(tx::u8* smem, const float* a, float* o, int broken) {
  Ring<kStages, tx::PipeKind::kArrive> ring(smem, a, o, broken);
  auto& ab = ring.ab;
  ring.start(32, false);
  if (tx::warp() == 1) return ring.consume();
  for (int k = 0; k < kSteps; ++k, ab.advance()) {
    OP(ACQUIRE) ab.acquire();
    MOVED(COMMIT) ab.commit_copies();
    tx::cp_async<4>(ring.tile.at(ab.stage * 32 + tx::lane()), ring.A.at(k * 32 + tx::lane()));
    MOVED(ACQUIRE) ab.acquire();
    OP(COMMIT) ab.commit_copies();
  }
}

// cp.async in groups: both warps copy and read, barriers of the block show and free the slots.
template <int kStages>
TX_FN void ring_groups(tx::u8* smem, const float* a, float* o, int broken) {
  constexpr int kAhead = kStages == 1 ? 0 : kStages - 1;  // turns that are on the way before a step
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  const tx::Shared<float> tile(smem, 64 * kStages, "tile");
  tx::Pipe<kStages, tx::PipeKind::kCpAsync> fill, read;
  for (int k = 0; k < kSteps + kAhead; ++k) {
    if (k >= kAhead && kStages > 1) {
      OP(WAIT) fill.template wait<kStages == 1 ? 0 : kStages - 2>();
    }
    OP(FREE) tx::sync_block(0);
    if (k < kSteps) {
      tx::cp_async<4>(tile.at(fill.stage * 64 + tx::thread()), A.at(k * 64 + tx::thread()));
    }
    OP(COMMIT) fill.commit();  // of nothing, after the last step
    if constexpr (kStages == 1) {
      OP(WAIT) fill.template wait<0>();
      OP(SHOW) tx::sync_block(1);
    }
    fill.advance();
    if (k < kAhead) continue;
    O.store((k - kAhead) * 64 + tx::thread(), 2.0f * tile.load(read.stage * 64 + (tx::thread() + 33) % 64));
    read.advance();
  }
}

// Two parts that hand a slot to and fro by barriers of their own. Those who have read need not wait, but may.
template <bool kBothWait>
TX_FN void parts(tx::u8* smem, const float* a, float* o, int broken) {
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  const tx::Shared<float> tile(smem, 32, "tile");
  if (tx::warp() == 0) {
    for (int k = 0; k < kSteps; ++k) {
      if (k > 0) {
        OP(FREE) tx::sync_part<2>(64);
      }
      MOVED(SHOW) tx::arrive_part<1>(64);
      tile.store(tx::lane(), A.load(k * 32 + tx::lane()));
      OP(SHOW) tx::arrive_part<1>(64);
    }
  } else {
    for (int k = 0; k < kSteps; ++k) {
      OP(WAIT) tx::sync_part<1>(64);
      const float x = tile.load((tx::lane() + 2) % 32);
      MOVED(WAIT) tx::sync_part<1>(64);
      if (k + 1 < kSteps) {
        OP(RELEASE) {
          if constexpr (kBothWait) {
            tx::sync_part<2>(64);
          } else {
            tx::arrive_part<2>(64);
          }
        }
      }
      O.store(k * 32 + tx::lane(), 2.0f * x);
    }
  }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Bulk stores from two slots, each written again when its store has been read.
TX_FN void stores(tx::u8* smem, const float* a, float* o, int broken) {
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  const tx::Shared<float> tile(smem, 2 * 64, "tile");
  for (int k = 0; k < kSteps; ++k) {
    if (tx::thread() == 0) {
      OP(READ) tx::bulk_wait_read<1>();
    }
    OP(FREE) tx::sync_block(0);
    MOVED(FENCE) tx::fence_async_shared();
    tile.store(k % 2 * 64 + tx::thread(), 2.0f * A.load(k * 64 + (tx::thread() + 33) % 64));
    OP(FENCE) tx::fence_async_shared();
    OP(SHOW) tx::sync_block(1);
    if (tx::thread() == 0) {
      tx::store_bulk(O.at(k * 64), tile.at(k % 2 * 64), 256);
      OP(CLOSE) tx::bulk_close();
    }
  }
  if (tx::thread() == 0) {
    OP(WAIT) tx::bulk_wait_read<0>();
  }
}

// A launch that may begin before its predecessor's end.
TX_FN void dependent(tx::u8*, const float* a, float* o, int broken) {
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  tx::trigger_next();
  OP(AFTER) tx::after_launch();
  for (int k = 0; k < kSteps; ++k) O.store(k * 64 + tx::thread(), 2.0f * A.load(k * 64 + (tx::thread() + 33) % 64));
  MOVED(AFTER) tx::after_launch();
}

// The same, where what is read was there before: only the results wait.
TX_FN void settled(tx::u8*, const float* a, float* o, int broken) {
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  OP(SETTLED) tx::settled(A);
  float x[kSteps];
  for (int k = 0; k < kSteps; ++k) x[k] = A.load(k * 64 + (tx::thread() + 33) % 64);
  OP(AFTER) tx::after_launch();
  for (int k = 0; k < kSteps; ++k) O.store(k * 64 + tx::thread(), 2.0f * x[k]);
  MOVED(AFTER) tx::after_launch();
}
#endif

#if defined(TX_HOST)
// Products that are still reading a slot: wgmma of the tensor cores, by what they touch.
template <int kStages>
inline void ring_products(tx::u8* smem, const float* a, float* o, int broken) {
  Ring<kStages, tx::PipeKind::kTransaction> ring(smem, a, o, broken);
  auto& ab = ring.ab;
  ring.start(1, true);
  if (tx::warp() == 1) {
    for (int k = 0; k < kSteps; ++k, ab.advance()) {
      ab.wait();
      tx::wgmma_fence();
      tx::host::product_reads(ring.tile.at(ab.stage * 32), 128, tx::Here::now());
      OP(CLOSE) tx::wgmma_close();
      OP(WAIT) tx::wgmma_wait<kStages == 1 ? 0 : 1>();
      OP(RELEASE) ab.template release_after<kStages == 1 ? 0 : 1>();
      MOVED(RELEASE) ab.release();
      ring.O.store(k * 32 + tx::lane(), 2.0f * ring.A.load(k * 32 + (tx::lane() + 2) % 32));
    }
    tx::wgmma_wait<0>();
  } else if (tx::lane() == 0) {
    for (int k = 0; k < kSteps; ++k, ab.advance()) {
      ab.acquire();
      tx::load_bulk(ring.tile.at(ab.stage * 32), ring.A.at(k * 32), 128, ab.full());
      ab.commit(128);
    }
  }
}
#endif

#define KERNEL(name, call, way)                                                                 \
  extern "C" __global__ void __launch_bounds__(64) name(const float* a, float* o, int broken) { \
    TX_DYN_SMEM(smem);                                                                          \
    call(smem, a, o, broken);                                                                   \
  }                                                                                             \
  TX_EXPORT_AS(name, way)
#define RINGS(kind)                                        \
  KERNEL(ring_##kind##_1, ring_##kind<1>, tx::Launched()); \
  KERNEL(ring_##kind##_2, ring_##kind<2>, tx::Launched()); \
  KERNEL(ring_##kind##_3, ring_##kind<3>, tx::Launched()); \
  KERNEL(ring_##kind##_4, ring_##kind<4>, tx::Launched())

RINGS(arrive);
RINGS(copies);
RINGS(groups);
KERNEL(parts_0, parts<false>, tx::Launched());
KERNEL(parts_1, parts<true>, tx::Launched());
KERNEL(ended_0, ended, tx::Launched());
#if defined(TX_HOST)
KERNEL(alone, ended, tx::host::Alone());
KERNEL(pairs, ended, tx::Launched().cluster(2));
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
RINGS(transaction);
KERNEL(stores_0, stores, tx::Launched());
KERNEL(dependent_0, dependent, tx::Launched().dependent());
KERNEL(settled_0, settled, tx::Launched().dependent());
#endif
#if defined(TX_HOST)
RINGS(products);
#endif
