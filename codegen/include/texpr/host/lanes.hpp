#line 2 "/texpr/include/texpr/host/lanes.hpp"
// The shuffles of lanes.cuh on a CPU: the last lane of the warp to come hands out the values.
#pragma once
#include "texpr/host/collective.hpp"

namespace tx {

namespace host {

template <class T>
inline T exchange(const char* instruction, T value, int source, Site site) {
  struct Operands {
    T value, result;
    int source;
  };
  const int lanes = machine.threads < 32 ? machine.threads : 32;
  Operands mine{value, value, source & 31};
  const auto perform = [=](Operands* const* all) {
    for (int i = 0; i < lanes; ++i) {
      if (all[i]->source < lanes) {
        all[i]->result = all[all[i]->source]->value;
      } else {
        char text[100];
        std::snprintf(text, sizeof text, "lane %d asks lane %d, and the block ends before", i, all[i]->source);
        found(TX_HOST_DIVERGENCE, site, text);
      }
    }
  };
  gather(lanes, instruction, mine, perform, site);
  return mine.result;
}

}  // namespace host

template <class T>
inline T shuffle(T value, int source, Here here = Here::now()) {
  return host::exchange("shuffle", value, source, here);
}
template <class T>
inline T shuffle_xor(T value, int mask, Here here = Here::now()) {
  return host::exchange("shuffle_xor", value, lane() ^ mask, here);
}
template <int kLanes = 32, class T>
inline T shuffle_up(T value, int distance, Here here = Here::now()) {
  return host::exchange("shuffle_up", value, lane() % kLanes >= distance ? lane() - distance : lane(), here);
}

}  // namespace tx
