#line 2 "/texpr/include/texpr/host/parts.hpp"
// parts.cuh on the CPU.
#pragma once
#include "texpr/host/mbarrier.hpp"

namespace tx {

namespace host {

TX_ONCE Meeting& part_meeting(Runner& me, int id, int threads, Site site) {
  Meeting& meeting = me.block->parts[id];
  if (threads < 32 || threads % 32 != 0 || threads > machine.threads) {
    refuse(TX_HOST_DIVERGENCE, site, "barrier %d is of %d threads; it takes whole warps of the block's %d", id, threads,
           machine.threads);
  }
  if (meeting.arrived > 0 && meeting.expected != threads) {
    refuse(TX_HOST_DIVERGENCE, site, "barrier %d is of %d threads for thread %d and of %d for thread %d", id, threads,
           me.index, meeting.expected, meeting.thread);
  }
  meeting.number = id;
  meeting.expected = threads;
  return meeting;
}

}  // namespace host

template <int kId>
inline void sync_part(int threads, Here here = Here::now()) {
  static_assert(kId >= 1 && kId <= 15, "parts have the barriers 1 to 15");
  host::Runner& me = host::self(here);
  host::pause(me);
  host::meet(host::part_meeting(me, kId, threads, here), me, threads, "part", here);
}
template <int kFirst>
inline void sync_warpgroup(Here here = Here::now()) {
  constexpr int kThreads = 128;
  host::Runner& me = host::self(here);
  host::pause(me);
  host::meet(host::part_meeting(me, kFirst + warpgroup(), kThreads, here), me, kThreads, "warpgroup", here);
}
template <int kId>
inline bool sync_any_part(int threads, bool mine, Here here = Here::now()) {
  host::Runner& me = host::self(here);
  me.any = mine ? kId : 0;
  sync_part<kId>(threads, here);
  bool some = false;
  for (const host::Runner& runner : me.block->runners) some = some || runner.any == kId;
  sync_part<kId>(threads, here);
  return some;
}
template <int kId>
inline void arrive_part(int threads, Here here = Here::now()) {
  static_assert(kId >= 1 && kId <= 15, "parts have the barriers 1 to 15");
  host::Runner& me = host::self(here);
  host::pause(me);
  host::arrive_at(host::part_meeting(me, kId, threads, here), me, threads, here);
}

template <int kCount>
inline void give_registers() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 to 256 registers, in steps of 8");
}
template <int kCount>
inline void take_registers() {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0, "24 to 256 registers, in steps of 8");
}

}  // namespace tx
