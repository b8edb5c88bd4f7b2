#line 2 "/texpr/include/texpr/dependent.cuh"
// Launches that overlap their predecessor's end (programmatic dependent launch).
#pragma once
#include "texpr/here.cuh"
#if defined(TX_HOST)
#include "texpr/host/dependent.hpp"
#else
#include "texpr/memory.cuh"

namespace tx {

// Until the launch before this one is over, and all that it wrote is seen. Every thread that touches global memory
// which that launch touches runs it, or passes a barrier with one that did.
template <int kOn = kArch>
TX_FN void after_launch(Here = Here::now()) {
  static_assert(kOn >= 900, "dependent launches: sm_90 or newer is needed");
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The launch before this one does not write that array, as was proved: it may be read before `after_launch`.
template <class T, class Where, int kAlign>
TX_FN void settled(const Global<T, Where, kAlign>&, Here = Here::now()) {}

// The next launch may begin once all blocks came here or ended; it orders no memory.
template <int kOn = kArch>
TX_FN void trigger_next(Here = Here::now()) {
  static_assert(kOn >= 900, "dependent launches: sm_90 or newer is needed");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace tx
#endif
