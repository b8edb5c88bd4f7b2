#line 2 "/texpr/include/texpr/mbarrier.cuh"
// An mbarrier: 8 bytes of shared memory that count arrivals and bytes of copies. A phase is over when all its arrivals
// came and as many bytes as were expected; then the next phase begins. Phases are numbered from 0; phase -1 is over
// from the start. The device compares parities, the host twin the numbers themselves.
#pragma once
#include "texpr/here.cuh"
#if defined(TX_HOST)
#include "texpr/host/mbarrier.hpp"
#else
#include "texpr/memory.cuh"

namespace tx {

// The address of the same place in the shared memory of another block of the cluster.
template <int kOn = kArch>
TX_FN u32 remote_address(u32 address, int rank) {
  static_assert(kOn >= 900, "clusters: sm_90 or newer is needed");
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

class Mbarrier {
 public:
  // The one in place `slot` of those that begin at `base`; its name and side are for reports of the host twin.
  TX_FN Mbarrier(u8* base, int slot, const char*, const char*) : address_(shared_address(base) + 8 * slot) {}

  TX_FN u32 address() const { return address_; }

  TX_FN void init(int arrivals, Here = Here::now()) const {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address_), "r"(arrivals) : "memory");
  }
  TX_FN void invalidate(Here = Here::now()) const {
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(address_) : "memory");
  }

  // One arrival. What this thread did before is seen by those who wait; with kCluster, by threads of other blocks too.
  template <Scope kSeenBy>
  TX_FN void arrive(int, Here = Here::now()) const {
    if constexpr (kSeenBy == Scope::kCluster) {
      static_assert(kSeenBy != Scope::kCluster || kArch >= 900, "clusters: sm_90 or newer is needed");
      asm volatile("mbarrier.arrive.release.cluster.shared::cta.b64 _, [%0];" ::"r"(address_) : "memory");
    } else {
      asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address_) : "memory");
    }
  }
  // The same at the barrier in this place of another block. kBlock says no more than that reads that have given their
  // values are over, which frees a slot; kCluster publishes writes, and costs a fence of the whole device.
  template <Scope kSeenBy, int kOn = kArch>
  TX_FN void arrive_remote(int rank, int, Here = Here::now()) const {
    static_assert(kOn >= 900, "an arrival at another block's mbarrier: sm_90 or newer is needed");
    const u32 there = remote_address(address_, rank);
    if constexpr (kSeenBy == Scope::kCluster) {
      asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
    } else {
      asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
    }
  }
  // One arrival, and so many bytes more that copies will bring in this phase.
  template <int kOn = kArch>
  TX_FN void expect(int bytes, int, Here = Here::now()) const {
    static_assert(kOn >= 900, "an mbarrier that counts bytes: sm_90 or newer is needed");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_), "r"(bytes) : "memory");
  }
  // One arrival, made once every cp.async that this thread has started is done.
  TX_FN void arrive_after_copies(int, Here = Here::now()) const {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address_) : "memory");
  }

  // Until that phase is over. kCluster sees what threads of other blocks wrote.
  template <Scope kSees>
  TX_FN void wait(int phase, Here = Here::now()) const {
    const u32 parity = static_cast<u32>(phase) & 1;
    if constexpr (kSees == Scope::kCluster) {
      static_assert(kSees != Scope::kCluster || kArch >= 900, "clusters: sm_90 or newer is needed");
      asm volatile(
          "{\n.reg .pred over;\nAGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n"
          "@!over bra AGAIN;\n}" ::"r"(address_),
          "r"(parity)
          : "memory");
    } else if constexpr (kSees == Scope::kBlock && kArch >= 900) {
      asm volatile(
          "{\n.reg .pred over;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
          "@!over bra AGAIN;\n}" ::"r"(address_),
          "r"(parity)
          : "memory");
    } else {
      asm volatile(
          "{\n.reg .pred over;\nAGAIN: mbarrier.test_wait.parity.shared.b64 over, [%0], %1;\n"
          "@!over bra AGAIN;\n}" ::"r"(address_),
          "r"(parity)
          : "memory");
    }
  }

 private:
  u32 address_;
};

// After init, before the first synchronisation: the barriers of this thread hold for copies and for other blocks too.
template <int kOn = kArch>
TX_FN void fence_barrier_init(Here = Here::now()) {
  static_assert(kOn >= 900,
                "barriers of copies and clusters: sm_90 or newer is needed; within a block of sm_80 "
                "sync_block is enough");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

}  // namespace tx
#endif
