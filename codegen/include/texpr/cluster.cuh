#line 2 "/texpr/include/texpr/cluster.cuh"
// Blocks of a cluster: their ranks, their barrier, and access to one another's shared memory. A block must be known to
// run before its memory is touched, and must not end before that is over: the cluster's barrier says both.
#pragma once
#include "texpr/mbarrier.cuh"
#if defined(TX_HOST)
#include "texpr/host/cluster.hpp"
#else
#include "texpr/memory.cuh"

namespace tx {

template <int kOn = kArch>
TX_FN int cluster_rank() {
  static_assert(kOn >= 900, "clusters: sm_90 or newer is needed");
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
template <int kOn = kArch>
TX_FN int cluster_size() {
  static_assert(kOn >= 900, "clusters: sm_90 or newer is needed");
  u32 size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return static_cast<int>(size);
}

// The barrier of all threads of the cluster, in two halves. Arriving publishes what was written; the relaxed form only
// says that this block runs and, after fence_barrier_init, that its mbarriers are there (the other one costs a fence of
// the whole device).
template <int kOn = kArch>
TX_FN void cluster_arrive(Here = Here::now()) {
  static_assert(kOn >= 900, "clusters: sm_90 or newer is needed");
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
template <int kOn = kArch>
TX_FN void cluster_arrive_relaxed(Here = Here::now()) {
  static_assert(kOn >= 900, "clusters: sm_90 or newer is needed");
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
template <int kOn = kArch>
TX_FN void cluster_wait(Here = Here::now()) {
  static_assert(kOn >= 900, "clusters: sm_90 or newer is needed");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// A shared tensor of another block of the cluster.
template <class T>
class Remote {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "remote accesses are of elements of 4 or 8 bytes");

 public:
  TX_FN explicit Remote(u32 address) : address_(address) {}

  TX_FN Value<T> load(int index, Here = Here::now()) const {
    T element;
    if constexpr (sizeof(T) == 4) {
      u32 bits;
      asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(bits) : "r"(at(index)) : "memory");
      TX_COPY(&element, &bits, sizeof element);
    } else {
      u64 bits;
      asm volatile("ld.shared::cluster.b64 %0, [%1];" : "=l"(bits) : "r"(at(index)) : "memory");
      TX_COPY(&element, &bits, sizeof element);
    }
    return decode(element);
  }
  TX_FN void store(int index, Value<T> value, Here = Here::now()) const {
    const T element = encode<T>(value);
    if constexpr (sizeof(T) == 4) {
      u32 bits;
      TX_COPY(&bits, &element, sizeof bits);
      asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(at(index)), "r"(bits) : "memory");
    } else {
      u64 bits;
      TX_COPY(&bits, &element, sizeof bits);
      asm volatile("st.shared::cluster.b64 [%0], %1;" ::"r"(at(index)), "l"(bits) : "memory");
    }
  }
  // Starts a store whose bytes the mbarrier in this place of the other block counts.
  TX_FN void store_async(int index, Value<T> value, Mbarrier full, int rank, Here = Here::now()) const {
    const T element = encode<T>(value);
    const u32 there = remote_address(full.address(), rank);
    if constexpr (sizeof(T) == 4) {
      u32 bits;
      TX_COPY(&bits, &element, sizeof bits);
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at(index)),
                   "r"(bits), "r"(there)
                   : "memory");
    } else {
      u64 bits;
      TX_COPY(&bits, &element, sizeof bits);
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(at(index)),
                   "l"(bits), "r"(there)
                   : "memory");
    }
  }
  // The same of neighbours, 1, 2 or 4 of 4 bytes; 16 bytes on a multiple of 16.
  template <int kCount>
  TX_FN void send_async(int index, const T (&from)[kCount], Mbarrier full, int rank, Here = Here::now()) const {
    static_assert(sizeof(T) == 4 && (kCount == 1 || kCount == 2 || kCount == 4), "4, 8 or 16 bytes at once");
    const u32 there = remote_address(full.address(), rank);
    u32 bits[kCount];
    TX_COPY(bits, from, sizeof bits);
    if constexpr (kCount == 1) {
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at(index)),
                   "r"(bits[0]), "r"(there)
                   : "memory");
    } else if constexpr (kCount == 2) {
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(at(index)),
          "r"(bits[0]), "r"(bits[1]), "r"(there)
          : "memory");
    } else {
      asm volatile(
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(at(index)),
          "r"(bits[0]), "r"(bits[1]), "r"(bits[2]), "r"(bits[3]), "r"(there)
          : "memory");
    }
  }

 private:
  TX_FN u32 at(int index) const { return address_ + static_cast<u32>(index) * sizeof(T); }
  u32 address_;
};

template <class T, class Where>
TX_FN Remote<T> remote(const Shared<T, Where>& tensor, int rank) {
  return Remote<T>(remote_address(shared_address(tensor.at(0)), rank));
}

}  // namespace tx
#endif

namespace tx {

// Starts the store of an element into the blocks of these ranks, a bit for each, whose mbarriers in this place count
// it.
template <int kRanks, class T, class Where>
TX_FN void store_to(const Shared<T, Where>& tensor, int index, Value<T> value, Mbarrier full, Here here = Here::now()) {
  TX_UNROLL
  for (int rank = 0; rank < 16; ++rank) {
    if ((kRanks >> rank & 1) != 0) remote(tensor, rank).store_async(index, value, full, rank, here);
  }
}

// Starts the store of neighbours into the block of one rank, whose mbarrier in this place counts them.
template <int kCount, class T, class Where>
TX_FN void send_to(const Shared<T, Where>& tensor, int index, const T (&from)[kCount], Mbarrier full, int rank,
                   Here here = Here::now()) {
  remote(tensor, rank).send_async(index, from, full, rank, here);
}

}  // namespace tx
