#line 2 "/texpr/include/texpr/ring.cuh"
// A pipe with the turns that a thread has come to, as emitted kernels use it: each acquire begins the next turn to be
// written, each wait the next one to be read, so that no loop counts them.
//
//   Ring<4, PipeKind::kTransaction> ab(smem + kBarriers, "ab");          in every thread
//   producer: for (…) { ab.acquire(); load_box(tile.at(ab.fill() * …), …, ab.full(), …); ab.commit(bytes); }
//   consumer: for (…) { ab.wait(); … tile.load(ab.read() * …) … ab.release(); }
#pragma once
#include "texpr/pipe.cuh"

namespace tx {

template <int kStages, PipeKind kKind, Scope kScope = Scope::kBlock>
class Ring {
 public:
  using End = Pipe<kStages, kKind, kScope>;
  static constexpr int kBytes = End::kBytes;

  TX_FN Ring(u8* barriers, const char* name) : writer_(barriers, name), reader_(barriers, name) {
    writer_.before_first();
    reader_.before_first();
  }
  TX_FN void init(int commits, int releases, Here here = Here::now()) const { writer_.init(commits, releases, here); }

  // The slots of the turn acquired last, and of the turn waited for last.
  TX_FN int fill() const { return writer_.stage; }
  TX_FN int read() const { return reader_.stage; }

  TX_FN void acquire(Here here = Here::now()) {
    writer_.advance();
    writer_.acquire(here);
  }
  // The same where other synchronisation says that the slot is free.
  TX_FN void acquire_free() { writer_.advance(); }
  // Until all turns that were acquired are free: nothing of other threads or blocks is on its way to this pipe.
  TX_FN void drain(Here here = Here::now()) {
    for (int k = 0; k < kStages; ++k) acquire(here);
  }
  TX_FN void commit(Here here = Here::now()) const { writer_.commit(here); }
  TX_FN void commit(int bytes, Here here = Here::now()) const { writer_.commit(bytes, here); }
  TX_FN void commit_to(int rank, Here here = Here::now()) const { writer_.commit_to(rank, here); }
  TX_FN void commit_copies(Here here = Here::now()) const { writer_.commit_copies(here); }
  // What the copies of this turn complete on.
  TX_FN Mbarrier full() const { return writer_.full(); }

  TX_FN void wait(Here here = Here::now()) {
    reader_.advance();
    reader_.wait(here);
  }
  // The next turn to be read is others': it is neither waited for nor released.
  TX_FN void skip() { reader_.advance(); }
  template <int kBehind = 0>
  TX_FN void release(Here here = Here::now()) const {
    reader_.template release_after<kBehind>(here);
  }
  template <int kBehind = 0>
  TX_FN void release_to(int rank, Here here = Here::now()) const {
    reader_.template release_after_to<kBehind>(rank, here);
  }

 private:
  End writer_, reader_;
};

}  // namespace tx
