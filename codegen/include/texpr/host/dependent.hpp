#line 2 "/texpr/include/texpr/host/dependent.hpp"
// dependent.cuh on the CPU: the launch before is over, but a thread may not know it.
#pragma once
#include "texpr/host/mbarrier.hpp"

namespace tx {

TX_ONCE void after_launch(Here here = Here::now()) { host::self(here).known.raise(host::kOver, 0, 1); }

namespace host {

TX_ONCE void settle(const void* data, Site site) {
  self(site);
  for (Region& array : arrays) array.settled = array.settled || array.first == data;
}

}  // namespace host

template <class T, class Where, int kAlign>
inline void settled(const Global<T, Where, kAlign>& array, Here here = Here::now()) {
  host::settle(array.address(0), here);
}

TX_ONCE void trigger_next(Here here = Here::now()) { host::self(here); }

}  // namespace tx
