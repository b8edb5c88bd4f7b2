// What the device would do something undefined for, one case a launch: the CPU refuses it. `broken` is the case.
#if defined(TX_HOST)
#include "texpr/cluster.cuh"
#include "texpr/flags.cuh"
#include "texpr/parts.cuh"
#include "texpr/pipe.cuh"
#include "texpr/tma.cuh"

extern "C" __global__ void misuse(const float* a, float* o, int broken) {
  TX_DYN_SMEM(smem);
  const tx::Global<const float> A(a, "A");
  const tx::Global<float> O(o, "O");
  const tx::Global<tx::u32> W(reinterpret_cast<tx::u32*>(o), "W");
  const tx::Shared<float> tile(smem, 32, "tile");
  const tx::Mbarrier full(smem + 256, 0, "ab", "full");
  if (tx::thread() == 0 && broken != 4) {
    full.init(1);
    tx::fence_barrier_init();
  }
  tx::sync_block(0);
  if (tx::thread() >= 32) {
    if (broken == 7) tx::sync_part<1>(32);
    if (broken == 6) tx::sync_part<1>(64);
  }
  if (tx::thread() != 0) return;
  switch (broken) {
    case 0:
      return tx::load_bulk(tile.at(0), A.at(0), 24, full);
    case 1:
      return tx::load_bulk(tile.at(1), A.at(0), 16, full);
    case 2:
      return tx::load_bulk(tile.at(28), A.at(0), 32, full);
    case 3:
      return full.expect(0, 0);
    case 4:
      return full.init(0);
    case 5:
      return tx::sync_part<1>(48);
    case 6:
      return tx::sync_part<1>(32);
    case 7:
      return tx::cp_async<4>(O.at(0), A.at(0));
    case 8:
      return static_cast<void>(tx::remote(tile, 1));
    case 9:
      return tx::cp_async<16>(tile.at(0), A.at(0), 17);
    case 10:
      return static_cast<void>(tx::take_turn(W, 0, 1));
    case 11:
      return tx::sync_grid(W, 0);
    case 12:
      return tile.store(0, tx::Shared<float>(smem + 256, 1, "raw").load(0));
    case 13:
      return full.arrive<tx::Scope::kBlock>(1);
    case 14:
      return tx::remote(tile, 0).store(32, 1.0f);
    case 15:
      return tx::store_bulk(O.at(0), A.at(0), 16);
    default:
      return;
  }
}
TX_EXPORT_AS(misuse, tx::Launched());
#endif
