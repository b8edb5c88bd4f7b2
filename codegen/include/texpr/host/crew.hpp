#line 2 "/texpr/include/texpr/host/crew.hpp"
// Blocks that run together: those of a cluster, or all of a launch. Their threads are interleaved in an order that the
// seed chooses, and what is before what is told by vector clocks (clock.hpp), never by the order in which it happened.
#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "texpr/host/clock.hpp"
#include "texpr/host/launch.hpp"

namespace tx::host {

// How the blocks of a kernel run: in clusters, with flags between all blocks of the launch (which are started in any
// order, some when others have ended), all at once, before the launch before is over. An emitted text says
//   TX_EXPORT_AS(softmax_0, tx::Launched().cluster(4));
struct Launched {
  int shape[3] = {1, 1, 1};
  bool has_flags = false, is_cooperative = false, is_dependent = false, is_restoring = false;

  constexpr Launched cluster(int x, int y = 1, int z = 1) const {
    Launched now = *this;
    now.shape[0] = x;
    now.shape[1] = y;
    now.shape[2] = z;
    return now;
  }
  constexpr Launched flags() const {
    Launched now = *this;
    now.has_flags = true;
    return now;
  }
  // Counters and flags are zero again at its end, for the next launch.
  constexpr Launched restoring() const {
    Launched now = flags();
    now.is_restoring = true;
    return now;
  }
  constexpr Launched cooperative() const {
    Launched now = flags();
    now.is_cooperative = true;
    return now;
  }
  constexpr Launched dependent() const {
    Launched now = *this;
    now.is_dependent = true;
    return now;
  }
  void run(u32 seed) const;  // schedule.hpp
};

struct Runner;
struct Block;

// Copies or products of one thread, counted as they are started and closed in groups.
struct Group {
  u32 agent = 0, read_agent = 0;  // of their results; of their sources, where these are free earlier
  u32 started = 0;
  std::vector<u32> closed;                                    // `started` at each close
  std::vector<std::pair<u32, std::function<void()>>> shares;  // of products, by number: what the wait for them computes
};

// Threads that meet: each leaves what it knows, all take what was left when the last has come.
struct Meeting {
  Known gathered;
  Known common;  // of those that came: what one of them knew and, as a rule, all, since they met before
  int arrived = 0, expected = 0, number = 0;
  u32 round = 0;
  Site site;
  int thread = 0;
  std::vector<Runner*> waiting;
};

// Those of a warp or a warpgroup who have come to an instruction that they run together.
struct Assembly {
  const char* instruction = "";
  Site site;
  int count = 0, thread = 0;
  u32 round = 0;
  std::vector<void*> operands;
};

// What a waiting thread says when nobody can go on.
struct Reason {
  void (*tell)(const void* what, char* text, size_t size);
  const void* what;
};

// A thread of a block.
struct Runner {
  Thread thread{};
  Block* block = nullptr;
  int index = 0;
  u32 agent = 0, time = 0;
  Known known;
  Known inited;             // the mbarriers that it made and fenced
  std::vector<u32> making;  // those that it made
  Group copies, stores, products;
  const void* waits_on = nullptr;
  Reason reason{};
  bool ready = false, at_cluster = false;
  u32 cluster_round = 0;
  int any = 0;  // where it says yes: -1 at sync_any, the barrier's number at sync_any_part
};

struct Cluster {
  std::vector<Block*> blocks;
  Meeting meeting;
  Known opened;  // what was left at the barrier when it opened last
  int live = 0;  // threads that have not ended
};

// Someone who may still access this block's shared memory, until the clock of its end says otherwise.
struct Visitor {
  u32 agent, time;
  Site site;
  i64 block;
  int thread;
};

struct ByteCell;
struct Phases;

struct Block {
  i64 number = 0;
  int rank = 0;
  Cluster* cluster = nullptr;
  u8* shared = nullptr;
  ByteCell* cells = nullptr;
  std::vector<Runner> runners;
  int live = 0;
  bool ended = false;
  int turn = -1;  // the last one taken
  Known end;      // what its threads knew when they ended
  std::vector<Visitor> visitors;
  std::vector<Phases*> mbarriers;  // by place / 8
  Meeting all;
  std::vector<Meeting> warps;
  std::vector<Assembly> assemblies;  // by team()
  Meeting parts[16];
};

struct Copy;

// A word that blocks publish and await, or count at.
struct Signal {
  const u32* word;
  Site site;
  Known known{};
  bool published = false;
  int turn = -1;               // of the block that published last
  std::vector<i64> counted{};  // the blocks that came in this round of a counter
};

// The state of a launch whose blocks run together.
struct Crew {
  Launched way;
  u32 universe = 0;  // differs between any two sets of blocks that run together; 0: none
  u64 random = 1;
  u32 next_agent = 0;
  Runner* self = nullptr;
  std::vector<Runner*> ready;
  std::vector<Cluster*> clusters;  // those that have started
  std::vector<Copy*> copies;       // those on the way
  std::vector<Signal*> signals;
  Meeting grid;

  u32 roll(u32 sides) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return static_cast<u32>(random >> 33) % sides;
  }
};

inline Crew crew;

TX_ONCE Runner& self(Site site) {
  if (machine.company == nullptr) {
    found(TX_HOST_LAUNCH, site, "the kernel has more than barriers: TX_EXPORT_AS says how its blocks run together");
    give_up();
  }
  return *crew.self;
}

// A finding that ends the thread which made it.
template <class... Part>
[[noreturn]] inline void refuse(int kind, Site site, const char* format, Part... part) {
  char text[240];
  if constexpr (sizeof...(part) == 0) {
    std::snprintf(text, sizeof text, "%s", format);
  } else {
    std::snprintf(text, sizeof text, format, part...);
  }
  found(kind, site, text);
  give_up();
}

TX_ONCE void make_ready(Runner& runner) {
  if (runner.ready) return;
  runner.ready = true;
  runner.waits_on = nullptr;
  crew.ready.push_back(&runner);
}

// Lets others come first, sometimes. It stands in every operation that others may see.
TX_ONCE void pause(Runner& me) {
  if (crew.roll(2) == 0) return;
  make_ready(me);
  leave_to_scheduler();
}

// Waits until `open()`; whoever changes `object` calls `wake`. `tell(text, size)` says what is waited for.
template <class Open, class Tell>
inline void wait_until(Runner& me, const void* object, Site site, Open open, Tell tell) {
  while (!open()) {
    me.waits_on = object;
    me.thread.site = site;
    me.reason.what = &tell;
    me.reason.tell = [](const void* what, char* text, size_t size) { (*static_cast<const Tell*>(what))(text, size); };
    leave_to_scheduler();
  }
}

TX_ONCE void wake(const void* object) {
  for (Cluster* cluster : crew.clusters) {
    for (Block* block : cluster->blocks) {
      for (Runner& runner : block->runners) {
        if (runner.waits_on == object) make_ready(runner);
      }
    }
  }
}

// Leaves what `me` knows in `target`; what it does from now on is later.
TX_ONCE void release_into(Known& target, Runner& me) {
  target.join(me.known);
  target.raise(kOver, me.agent, me.time);
  ++me.time;
}

TX_ONCE u32 new_agent() { return crew.next_agent++; }

// All threads of a meeting but the present one have come before: it opens.
TX_ONCE void open_meeting(Meeting& meeting) {
  ++meeting.round;
  meeting.arrived = 0;
  for (Runner* runner : meeting.waiting) {
    if (runner->known.is(meeting.common)) {
      runner->known = meeting.gathered;
    } else {
      runner->known.join(meeting.gathered);
    }
  }
  for (Runner* runner : meeting.waiting) {
    if (runner->waits_on == &meeting) make_ready(*runner);  // the last one to come runs already
  }
  meeting.waiting.clear();
  meeting.gathered = meeting.common = Known();
}

TX_ONCE void arrive_at(Meeting& meeting, Runner& me, int expected, Site site) {
  if (!meeting.common.is(me.known)) {
    meeting.gathered.join(me.known);
    meeting.common = me.known;
  }
  meeting.gathered.raise(kOver, me.agent, me.time++);
  if (meeting.arrived == 0) {
    meeting.site = site;
    meeting.thread = me.index;
  }
  if (++meeting.arrived == expected) open_meeting(meeting);
}

// Waits at a barrier of `expected` threads. `kind` is its name in reports.
TX_ONCE void meet(Meeting& meeting, Runner& me, int expected, const char* kind, Site site) {
  const u32 round = meeting.round;
  meeting.waiting.push_back(&me);
  arrive_at(meeting, me, expected, site);
  wait_until(
      me, &meeting, site, [&] { return meeting.round != round; },
      [&](char* text, size_t size) {
        std::snprintf(text, size, "at %s barrier %d (%d of %d threads came)", kind, meeting.number, meeting.arrived,
                      expected);
      });
}

}  // namespace tx::host

namespace tx {
using host::Launched;
}
