#line 2 "/texpr/include/texpr/here.cuh"
// What a synchronisation needs to know of its surroundings: the architecture that is compiled for and, on the CPU, the
// line that called.
#pragma once
#if defined(TX_HOST)
#include "texpr/host/report.hpp"
#else
#include "texpr/types.cuh"
#endif

namespace tx {

#if defined(TX_HOST)
using Here = host::Site;
#else
struct Here {
  static TX_FN constexpr Here now() { return {}; }
};
#endif

#if defined(__CUDA_ARCH__)
constexpr int kArch = __CUDA_ARCH__;
#else
constexpr int kArch = 9999;  // no device code is made in this pass
#endif

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool kHasWgmma = true;
#else
constexpr bool kHasWgmma = false;
#endif

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_SPECIFIC__) || \
    defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
constexpr bool kHasRegisterSharing = true;
#else
constexpr bool kHasRegisterSharing = false;
#endif

constexpr bool kHasMulticast =
    kArch < 1200 || kArch == 9999;  // fast on sm_90 and sm_100; sm_120 has one block a cluster

// Whose threads a synchronisation orders.
enum class Scope { kBlock, kCluster };

}  // namespace tx
