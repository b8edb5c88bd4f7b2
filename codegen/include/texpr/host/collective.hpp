#line 2 "/texpr/include/texpr/host/collective.hpp"
// Instructions that the threads of a warp or a warpgroup run together. Each thread brings its operands and waits; the
// last one to come runs the instruction for all. It orders no memory: what one thread wrote before it, another may not
// read after it without a barrier.
#pragma once
#include "texpr/host/memory.hpp"

namespace tx::host {

constexpr int kMaxTogether = 128;

// Those of one warp or warpgroup who have come to an instruction.
struct Gathering {
  const char* instruction;
  Site site;
  int count;
  void* operands[kMaxTogether];
};

inline Gathering gatherings[kMaxTeams];

// All threads of the warp (32) or warpgroup (128) of the present one call this at one place of the text, each with its
// own operands. `perform(operands)` runs once, on the array of pointers to all of them in the order of threads.
template <class Operands, class Perform>
inline void gather(int threads, const char* instruction, Operands& mine, Perform perform, Site site) {
  if (machine.company != nullptr) {
    const auto run = [](const void* what, void* const* all) {
      (*static_cast<const Perform*>(what))(reinterpret_cast<Operands* const*>(all));
    };
    return machine.company->gather({threads, instruction, &mine, run, &perform}, site);
  }
  const int self = machine.current, first = self / threads * threads;
  const int number = team(threads, first);
  Gathering& gathering = gatherings[number];
  Thread& thread = machine.thread[self];
  thread.together = instruction;
  thread.site = site;
  if (first + threads > machine.threads) {
    char text[200];
    std::snprintf(text, sizeof text, "%s is run by %d threads together, and the block ends before", instruction,
                  threads);
    found(TX_HOST_DIVERGENCE, site, text);
    give_up();
  }
  if (machine.together_serial[number] != machine.serial) gathering.count = 0;  // what a failed block left behind
  machine.together_serial[number] = machine.serial;
  if (gathering.count == 0) {
    gathering.instruction = instruction;
    gathering.site = site;
  } else if (gathering.instruction != instruction || gathering.site.file != site.file ||
             gathering.site.line != site.line) {
    int other = first;
    while (machine.thread[other].wait != Wait::kTogether) ++other;
    thread.wait = Wait::kTogether;
    found_divergence(self, other);
    give_up();
  }
  gathering.operands[self - first] = &mine;
  if (++gathering.count < threads) {
    thread.wait = Wait::kTogether;
    leave_to_scheduler();
    return;
  }
  gathering.count = 0;
  Operands* all[kMaxTogether];
  for (int i = 0; i < threads; ++i) {
    all[i] = static_cast<Operands*>(gathering.operands[i]);
    machine.thread[first + i].wait = Wait::kRunning;
  }
  perform(all);
  machine.current = self;  // accesses to memory were made in the name of others
}

}  // namespace tx::host
