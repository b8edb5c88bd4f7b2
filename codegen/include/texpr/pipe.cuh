#line 2 "/texpr/include/texpr/pipe.cuh"
// Pipes: rings of slots that producers fill and consumers read, a turn after the other. Turn t uses slot t mod kStages.
// A pipe has two mbarriers for each slot: `full` ends a phase when a turn's data is there, `empty` when all its readers
// are done. The text is the same on the CPU, whose mbarriers check the phases.
//
//   Pipe<4, PipeKind::kTransaction> ab(smem + kBarriers, "ab");          in every thread
//   if (thread() == 0) { ab.init(1, 2); fence_barrier_init(); }  sync_block(0);
//   producer: for (…; ab.advance()) { ab.acquire(); load_box(…, ab.full(), …); ab.commit(bytes); }
//   consumer: for (…; ab.advance()) { ab.wait(); … ab.release(); }
#pragma once
#include "texpr/group.cuh"
#include "texpr/mbarrier.cuh"

namespace tx {

enum class PipeKind {
  kCpAsync,      // every thread copies for itself, in groups; barriers of the block free the slots
  kTransaction,  // bulk copies fill a slot, and the mbarrier counts their bytes
  kArrive,       // threads fill a slot, by stores or by cp.async, and arrive
};

template <int kStages, PipeKind kKind, Scope kScope = Scope::kBlock>
class Pipe {
  static_assert(kStages >= 1, "a pipe has at least one slot");
  static_assert(kKind != PipeKind::kTransaction || kArch >= 900,
                "a pipe of bulk copies: sm_90 or newer is needed; use PipeKind::kCpAsync or kArrive");
  static_assert(kScope != Scope::kCluster || kArch >= 900, "a pipe of a cluster: sm_90 or newer is needed");
  // What threads write for other blocks is published and acquired; what copies bring is ordered by the copy itself.
  static constexpr Scope kData = kKind == PipeKind::kArrive ? kScope : Scope::kBlock;

 public:
  static constexpr int kBytes = 16 * kStages;  // of shared memory, on a multiple of 8
  int stage = 0;                               // the slot of this turn

  TX_FN Pipe(u8* barriers, const char* name) : barriers_(barriers), name_(name) {}

  // By one thread: how many arrivals fill a slot, and how many free it. fence_barrier_init and a barrier come after it.
  TX_FN void init(int producers, int consumers, Here here = Here::now()) const {
    for (int k = 0; k < kStages; ++k) {
      full_at(k).init(producers, here);
      empty_at(k).init(consumers, here);
    }
  }
  // By one thread, when nobody uses the pipe any more: its shared memory can be used for other data.
  TX_FN void invalidate(Here here = Here::now()) const {
    for (int k = 0; k < kStages; ++k) {
      full_at(k).invalidate(here);
      empty_at(k).invalidate(here);
    }
  }

  // Until the slot is free: the turn kStages before this one was read.
  TX_FN void acquire(Here here = Here::now()) const { empty_at(stage).template wait<Scope::kBlock>(lap_ - 1, here); }

  // This thread's part of the turn is written.
  TX_FN void commit(Here here = Here::now()) const {
    static_assert(kKind == PipeKind::kArrive, "commit() is of PipeKind::kArrive; a pipe of bulk copies expects bytes");
    full_at(stage).template arrive<kData>(lap_, here);
  }
  // The same for the slot of another block of the cluster, into whose memory this thread wrote.
  TX_FN void commit_to(int rank, Here here = Here::now()) const {
    static_assert(kKind == PipeKind::kArrive && kScope == Scope::kCluster,
                  "commit_to(rank) is of PipeKind::kArrive with Scope::kCluster");
    full_at(stage).template arrive_remote<kData>(rank, lap_, here);
  }
  // This thread's part of the turn is written once the cp.async that it has started are done.
  TX_FN void commit_copies(Here here = Here::now()) const {
    static_assert(kKind == PipeKind::kArrive, "commit_copies() is of PipeKind::kArrive");
    full_at(stage).arrive_after_copies(lap_, here);
  }
  // The copies of this turn, started or yet to be, bring so many bytes into this block.
  TX_FN void commit(int bytes, Here here = Here::now()) const {
    static_assert(kKind == PipeKind::kTransaction, "commit(bytes) is of PipeKind::kTransaction");
    full_at(stage).expect(bytes, lap_, here);
  }
  // What the copies of this turn complete on.
  TX_FN Mbarrier full() const { return full_at(stage); }

  // Until the data of this turn is there.
  TX_FN void wait(Here here = Here::now()) const { full_at(stage).template wait<kData>(lap_, here); }

  // The slot has been read; the second form tells the producer in another block.
  TX_FN void release(Here here = Here::now()) const { release_after<0>(here); }
  TX_FN void release_to(int rank, Here here = Here::now()) const { release_after_to<0>(rank, here); }
  // The same for the slot of kBehind turns ago, if there was one: so many groups of products may still read theirs.
  template <int kBehind>
  TX_FN void release_after(Here here = Here::now()) const {
    const int slot = behind<kBehind>(), lap = slot > stage ? lap_ - 1 : lap_;
    if (lap >= 0) empty_at(slot).template arrive<Scope::kBlock>(lap, here);
  }
  template <int kBehind>
  TX_FN void release_after_to(int rank, Here here = Here::now()) const {
    static_assert(kScope == Scope::kCluster, "a release to another rank is of Scope::kCluster");
    const int slot = behind<kBehind>(), lap = slot > stage ? lap_ - 1 : lap_;
    if (lap >= 0) empty_at(slot).template arrive_remote<Scope::kBlock>(rank, lap, here);
  }

  // Before turn 0, which `advance` begins.
  TX_FN void before_first() {
    stage = kStages - 1;
    lap_ = -1;
  }
  // The next turn.
  TX_FN void advance() {
    if (++stage == kStages) {
      stage = 0;
      ++lap_;
    }
  }

 private:
  template <int kBehind>
  TX_FN int behind() const {
    static_assert(kBehind >= 0 && kBehind < kStages, "fewer turns than there are slots can be left unread");
    return stage >= kBehind ? stage - kBehind : stage - kBehind + kStages;
  }
  TX_FN Mbarrier full_at(int slot) const { return Mbarrier(barriers_, slot, name_, "full"); }
  TX_FN Mbarrier empty_at(int slot) const { return Mbarrier(barriers_ + 8 * kStages, slot, name_, "empty"); }

  u8* barriers_;
  const char* name_;
  int lap_ = 0;  // turns so far / kStages: the phase of this turn
};

// Every thread waits for its own copies only: a barrier after `wait` shows a slot to the block, and one before the next
// copies into it frees it. There is no mbarrier.
template <int kStages>
class Pipe<kStages, PipeKind::kCpAsync, Scope::kBlock> {
  static_assert(kStages >= 1, "a pipe has at least one slot");

 public:
  int stage = 0;

  // The copies since the last commit are this turn's.
  TX_FN void commit(Here here = Here::now()) const { cp_async_close(here); }
  // Until this thread's copies are there, but for the last kBehind turns that it committed.
  template <int kBehind>
  TX_FN void wait(Here here = Here::now()) const {
    static_assert(kBehind < kStages, "fewer turns than there are slots can be on the way");
    cp_async_wait<kBehind>(here);
  }
  TX_FN void advance() { stage = stage + 1 == kStages ? 0 : stage + 1; }
};

}  // namespace tx
