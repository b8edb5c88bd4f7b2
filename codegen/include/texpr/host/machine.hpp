#line 2 "/texpr/include/texpr/host/machine.hpp"
// The machine: one block at a time, one fiber for each of its threads, which run in a seeded order from barrier to
// barrier. Nothing is in lock-step: only a barrier orders two threads.
//
// Time is counted per block: `block_epoch` grows when all threads met at a block barrier, `warp_epoch[w]` when warp w
// met at a warp barrier. An access is before the present one iff it was made by the same thread, or in an earlier block
// epoch of the same block, or by the same warp in an earlier warp epoch (race.hpp).
#pragma once
#include <cstdlib>
#include <cstring>

#include "texpr/host/fiber.hpp"
#include "texpr/host/report.hpp"

namespace tx::host {

constexpr int kMaxThreads = 1024;
constexpr int kMaxTensors = 128;

enum class Wait : u8 { kRunning, kBlock, kWarp, kTogether, kDone };

struct Thread {
  Fiber fiber;
  Wait wait;
  int barrier;           // its number, while waiting
  const char* together;  // the instruction that it waits to run with others (collective.hpp)
  Site site;
  u32 fences;  // of wgmma, so far
};

struct Cell;
enum class Mode : u8 { kRead, kWrite, kAtomic };

// An instruction that threads run together (collective.hpp): `perform` takes pointers to the operands of all.
struct Collective {
  int threads;
  const char* instruction;
  void* operands;  // of the present thread
  void (*perform)(const void* what, void* const* all);
  const void* what;
};

// The number of a warp, or of a warpgroup behind those of the warps: a warp may wait while its warpgroup gathers.
TX_ONCE int team(int threads, int first) { return threads == 32 ? first / 32 : kMaxThreads / 32 + first / threads; }
constexpr int kMaxTeams = kMaxThreads / 32 + kMaxThreads / 128;

// What stands in for the barriers and checks of a block that runs alone, when blocks run together (crew.hpp).
struct Company {
  void (*wait)(Wait kind, int barrier, Site site);
  void (*touch)(const void* place, int bytes, Mode mode, Site site, const char* name, i64 index, bool unique);
  void (*gather)(const Collective& mine, Site site);
};

// An array argument of the launch and the shadow of its elements (made when first touched).
struct Tensor {
  const void* data;
  i64 bytes;
  Cell* cells;
};

struct Machine {
  // the launch
  void (*body)(const void*);
  const void* body_data;
  int threads;
  int shared_bytes;
  i64 grid[3];
  Tensor tensors[kMaxTensors];
  int tensor_count;
  tx_host_report* report;
  bool failed;
  // the block
  i64 block;  // linear number in the grid
  int block_at[3];
  u32 serial;  // differs between any two blocks of the process
  u32 block_epoch;
  u32 warp_epoch[kMaxThreads / 32];
  u32 together_serial[kMaxTeams];  // the block whose threads gathered last (collective.hpp)
  u8* shared;
  Cell* shared_cells;
  u8* shared_defined;
  // the thread
  int current;
  Thread* running;
  Fiber scheduler;
  Thread thread[kMaxThreads];
  const Company* company;  // null: blocks run one after another
};

inline Machine machine;

TX_ONCE void leave_to_scheduler() { machine.running->fiber.switch_to(machine.scheduler); }

// Notes the first finding and gives the launch up.
TX_ONCE void found(int kind, Site site, const char* message, i64 index = 0) {
  tx_host_report& report = *machine.report;
  if (!machine.failed) {
    machine.failed = true;
    report.kind = kind;
    report.line = site.line;
    report.thread = machine.current;
    report.block = machine.block;
    report.index = index;
    copy_text(report.file, sizeof report.file, site.file);
    copy_text(report.message, sizeof report.message, message);
  }
}

TX_ONCE void found_other(Site site, int thread, i64 block) {
  tx_host_report& report = *machine.report;
  report.other_line = site.line;
  report.other_thread = thread;
  report.other_block = block;
  copy_text(report.other_file, sizeof report.other_file, site.file);
}

[[noreturn]] inline void give_up() {
  while (true) leave_to_scheduler();
}

TX_ONCE void wait_at(Wait kind, int barrier, Site site) {
  if (machine.company != nullptr) return machine.company->wait(kind, barrier, site);
  Thread& self = *machine.running;
  self.wait = kind;
  self.barrier = barrier;
  self.site = site;
  leave_to_scheduler();
}

TX_ONCE void thread_entry() {
  machine.body(machine.body_data);
  machine.running->wait = Wait::kDone;
  give_up();
}

// Where a thread stands, in words.
struct Standing {
  char text[100];

  explicit Standing(const Thread& thread) {
    if (thread.wait == Wait::kDone) {
      std::snprintf(text, sizeof text, "has ended");
    } else if (thread.wait == Wait::kTogether) {
      std::snprintf(text, sizeof text, "waits for its warp to run %s", thread.together);
    } else {
      std::snprintf(text, sizeof text, "waits at %s barrier %d", thread.wait == Wait::kBlock ? "block" : "warp",
                    thread.barrier);
    }
  }
};

// The finding for a place at which `waiting` stands and `other` does not.
TX_ONCE void found_divergence(int waiting, int other) {
  const Thread &a = machine.thread[waiting], &b = machine.thread[other];
  char text[240];
  std::snprintf(text, sizeof text, "thread %d %s, thread %d %s", waiting, Standing(a).text, other, Standing(b).text);
  machine.current = waiting;
  found(TX_HOST_DIVERGENCE, a.site, text);
  found_other(b.wait == Wait::kDone ? Site{} : b.site, other, machine.block);
}

// Releases threads [first, last) when all wait at one barrier of that kind; otherwise `odd` is one that does not.
TX_ONCE bool release(int first, int last, Wait kind, int* odd) {
  const int barrier = machine.thread[first].barrier;
  for (int t = first; t < last; ++t) {
    const Thread& other = machine.thread[t];
    if (other.wait != kind || other.barrier != barrier) {
      *odd = t;
      return false;
    }
  }
  for (int t = first; t < last; ++t) machine.thread[t].wait = Wait::kRunning;
  return true;
}

// Nobody waits to run an instruction together with others; otherwise this is a finding, since those do not come.
TX_ONCE bool nobody_waits_for_others() {
  for (int t = 0; t < machine.threads; ++t) {
    if (machine.thread[t].wait != Wait::kTogether) continue;
    int other = t / 32 * 32;
    while (other < machine.threads - 1 && machine.thread[other].wait == Wait::kTogether) ++other;
    found_divergence(t, other);
    return false;
  }
  return true;
}

// Everyone stands at a barrier or has ended: opens the barriers that are complete. False when none is and some wait.
TX_ONCE bool open_barriers() {
  int odd = 0;
  for (int t = 0; t < machine.threads; ++t) {
    if (machine.thread[t].wait == Wait::kRunning) return true;  // another thread let it go on after its turn
  }
  if (!nobody_waits_for_others()) return false;
  bool opened = false;
  int stuck = -1, stuck_odd = -1;
  for (int first = 0; first < machine.threads; first += 32) {
    const int last = first + 32 < machine.threads ? first + 32 : machine.threads;
    for (int t = first; t < last; ++t) {
      if (machine.thread[t].wait != Wait::kWarp) continue;
      if (t == first && release(first, last, Wait::kWarp, &odd)) {
        ++machine.warp_epoch[first / 32];
        opened = true;
      } else if (stuck < 0) {
        stuck = t;
        stuck_odd = t == first ? odd : first;
      }
      break;
    }
  }
  if (opened) return true;
  if (stuck >= 0) {
    found_divergence(stuck, stuck_odd);
    return false;
  }
  for (int t = 0; t < machine.threads; ++t) {
    if (machine.thread[t].wait != Wait::kBlock) continue;
    if (t == 0 && release(0, machine.threads, Wait::kBlock, &odd)) {
      ++machine.block_epoch;
      return true;
    }
    found_divergence(t, t == 0 ? odd : 0);
    return false;
  }
  return false;  // all have ended
}

// A walk over 0..count-1 in an order that the seed chooses: start + k * step, the step coprime to the count.
struct Order {
  i64 count, start, step;

  Order(i64 n, u32 seed) : count(n), start(0), step(1) {
    if (seed == 0 || n < 2) return;
    start = seed % n;
    step = seed / 7 % n | 1;
    while (divisor(step, n) != 1) step = step + 1 < n ? step + 1 : 1;
  }
  static i64 divisor(i64 a, i64 b) {
    while (b != 0) {
      const i64 r = a % b;
      a = b;
      b = r;
    }
    return a;
  }
  i64 at(i64 k) const { return static_cast<i64>((static_cast<__int128>(k) * step + start) % count); }
};

TX_ONCE void run_block(const Stacks& stacks, u32 seed) {
  ++machine.serial;
  machine.block_epoch = 0;
  std::memset(machine.warp_epoch, 0, sizeof machine.warp_epoch);
  if (machine.shared_bytes > 0) {
    std::memset(machine.shared, 0xCD, static_cast<size_t>(machine.shared_bytes));
    std::memset(machine.shared_defined, 0, static_cast<size_t>(machine.shared_bytes));
  }
  for (int t = 0; t < machine.threads; ++t) {
    machine.thread[t].wait = Wait::kRunning;
    machine.thread[t].fiber.prepare(stacks.of(t), thread_entry);
  }
  const Order order(machine.threads, seed);
  do {
    for (int k = 0; k < machine.threads && !machine.failed; ++k) {
      const int t = static_cast<int>(order.at(k));
      if (machine.thread[t].wait != Wait::kRunning) continue;
      machine.current = t;
      machine.running = &machine.thread[t];
      machine.scheduler.switch_to(machine.thread[t].fiber);
    }
  } while (!machine.failed && open_barriers());
}

}  // namespace tx::host
