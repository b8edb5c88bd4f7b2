#line 2 "/texpr/include/texpr/host/shadow.hpp"
// Shadow memory of blocks that run together: every byte has a cell with its last write and the reads and updates since.
#pragma once
#include <algorithm>

#include "texpr/host/crew.hpp"
#include "texpr/host/memory.hpp"

namespace tx::host {

// Who touches memory: a thread itself, its cp.async, or the copy engine and the tensor cores (the async proxy), which
// see stores of threads only after a fence.
enum class Proxy : u8 { kThread, kCopy, kAsync };

struct Touch {
  u32 agent = 0, time = 0, universe = 0;
  u32 block = 0;
  u16 thread = 0;
  Mode mode = Mode::kRead;
  Proxy proxy = Proxy::kThread;
  Site site;
};

struct ByteCell {
  Touch write;               // time 0: from before the launch
  u32 others = 0;            // the first of a list in `touches`, the latest; 0: none
  u16 count = 0, limit = 8;  // of that list, and how long it may become before it is pruned
  bool defined = false;
  bool mbarrier = false;  // threads touch it through Mbarrier only
  u16 updates = 0;        // those of the list that are no reads

  // Whether somebody of the list may be in conflict: most bytes that many threads read are only read.
  bool may_conflict(Mode mode) const {
    return mode == Mode::kWrite || (mode == Mode::kRead ? updates != 0 : updates != count);
  }
};

// Reads and updates since the last write, as lists in one array; what was given up is used again.
struct Touches {
  struct Node {
    Touch touch;
    u32 next;
  };
  std::vector<Node> nodes{1};
  u32 free = 0;

  u32 add(const Touch& touch, u32 next) {
    u32 place = free;
    if (place != 0) {
      free = nodes[place].next;
    } else {
      place = static_cast<u32>(nodes.size());
      nodes.emplace_back();
    }
    nodes[place] = {touch, next};
    return place;
  }
  u32 remove(u32 place) {  // gives the next one
    const u32 next = nodes[place].next;
    nodes[place].next = free;
    free = place;
    return next;
  }
};

inline Touches touches;

// An array of the launch, or the shared memory of a block.
struct Region {
  const u8* first = nullptr;
  i64 bytes = 0;
  ByteCell* cells = nullptr;
  Block* block = nullptr;
  bool settled = false;  // the launch before does not write it
};

inline std::vector<Region> arrays;

TX_ONCE Region region_of(const void* place) {
  const u8* const p = static_cast<const u8*>(place);
  for (Cluster* cluster : crew.clusters) {
    for (Block* block : cluster->blocks) {
      if (block->shared != nullptr && p >= block->shared && p < block->shared + machine.shared_bytes) {
        return {block->shared, machine.shared_bytes, block->cells, block};
      }
    }
  }
  for (Region& array : arrays) {
    if (p < array.first || p >= array.first + array.bytes) continue;
    if (array.cells == nullptr) array.cells = new ByteCell[static_cast<size_t>(array.bytes)];
    return array;
  }
  return {};
}

// Touches `bytes` bytes: who (the agent at its time, started by a thread), how, and what they are called in reports.
struct Actor {
  u32 agent, time;
  Runner* by;
  Proxy proxy;
  Site site;
};
struct Named {
  const char* name;
  i64 index;
  i64 element_bytes;
};

TX_ONCE bool is_over(const Touch& before, const Actor& now) {
  if (before.universe != crew.universe) return before.time == 0 && now.by->known.of(kOver, 0) > 0;
  const Known& known = now.by->known;
  const bool is_store = before.mode == Mode::kWrite && before.proxy == Proxy::kThread;
  return before.agent == now.by->agent || known.of(kOver, before.agent) >= before.time ||
         (!is_store && known.freed(before.agent, before.time));
}

// A store of a thread that no fence has shown to the copy engine.
TX_ONCE bool is_unfenced(const Touch& before, const Actor& now, View view) {
  return now.proxy == Proxy::kAsync && before.proxy != Proxy::kAsync && before.universe == crew.universe &&
         now.by->known.of(view, before.agent) < before.time;
}

TX_ONCE const char* doer(Proxy proxy) { return proxy == Proxy::kThread ? "" : "a copy of "; }

TX_ONCE const char* action(Mode mode, bool mbarrier) {
  if (mbarrier) return mode == Mode::kWrite ? "makes or ends" : "uses";
  return mode == Mode::kRead ? "reads" : mode == Mode::kWrite ? "writes" : "updates";
}

[[noreturn]] inline void refuse_touch(const Touch& before, const Actor& now, Mode mode, const Named& what, i64 index,
                                      bool mbarrier, bool unique, const char* why) {
  char text[250];
  if (before.time == 0) {
    std::snprintf(text, sizeof text,
                  "block %lld thread %d %s %s[%lld] before after_launch, and the launch before may still use it",
                  machine.block, now.by->index, action(mode, mbarrier), what.name, index);
  } else {
    std::snprintf(text, sizeof text, "%s%sblock %lld thread %d %s %s[%lld], %sblock %u thread %u %s it, and %s",
                  unique ? "#unique is broken: " : "", doer(now.proxy), machine.block, now.by->index,
                  action(mode, mbarrier), what.name, index, doer(before.proxy), before.block, before.thread,
                  action(before.mode, mbarrier), why);
  }
  found(unique ? TX_HOST_UNIQUE : TX_HOST_RACE, now.site, text, index);
  found_other(before.site, before.thread, before.block);
  give_up();
}

TX_ONCE void visit(Block& block, const Actor& now) {
  for (Visitor& visitor : block.visitors) {
    if (visitor.agent == now.agent) {
      visitor.time = now.time;
      visitor.site = now.site;
      return;
    }
  }
  block.visitors.push_back({now.agent, now.time, now.site, now.by->block->number, now.by->index});
}

// May `me` touch the memory of a block of its cluster: it runs and has not ended. Notes the visit.
TX_ONCE void enter(Block& block, const Actor& now) {
  if (block.ended) {
    refuse(TX_HOST_EXITED, now.site, "block %lld thread %d accesses shared memory of block %lld, which has ended",
           machine.block, now.by->index, block.number);
  }
  bool runs = &block == now.by->block;
  for (size_t t = 0; t < block.runners.size() && !runs; ++t) runs = now.by->known.freed(block.runners[t].agent, 1);
  if (!runs) {
    refuse(TX_HOST_EXITED, now.site,
           "block %lld thread %d accesses shared memory of block %lld, and nothing says that it runs already",
           machine.block, now.by->index, block.number);
  }
  if (&block != now.by->block || now.proxy != Proxy::kThread) visit(block, now);
}

// Leaves of a cell's reads and updates what can be told: one of each agent, the latest, none that the present one
// follows in the same way, and one of earlier blocks, since nothing here is after any of them.
TX_ONCE void prune(ByteCell& cell, const Actor& now) {
  static std::vector<u32> seen;
  static u32 round = 0;
  ++round;
  seen.resize(std::max<size_t>(seen.size(), 2 * static_cast<size_t>(crew.next_agent)), 0);
  bool foreign[2] = {false, false};
  cell.count = cell.updates = 0;
  u32* link = &cell.others;
  while (*link != 0) {
    const Touch& old = touches.nodes[*link].touch;
    const int way = old.mode == Mode::kRead ? 0 : 1;
    bool told;
    if (old.universe != crew.universe) {
      told = foreign[way];
      foreign[way] = true;
    } else {
      u32& last = seen[2 * old.agent + static_cast<u32>(way)];
      told = last == round ||
             (old.mode == touches.nodes[cell.others].touch.mode && link != &cell.others && is_over(old, now));
      last = round;
    }
    if (told) {
      *link = touches.remove(*link);
    } else {
      ++cell.count;
      cell.updates += static_cast<u16>(way);
      link = &touches.nodes[*link].next;
    }
  }
  cell.limit = static_cast<u16>(std::min(2 * cell.count + 8, 0xffff));
}

TX_ONCE void note(ByteCell& cell, const Touch& touch, const Actor& now) {
  if (touch.mode == Mode::kWrite) {
    while (cell.others != 0) cell.others = touches.remove(cell.others);
    cell.count = cell.updates = 0;
    cell.write = touch;
    return;
  }
  cell.others = touches.add(touch, cell.others);
  cell.updates += touch.mode != Mode::kRead;
  if (++cell.count >= cell.limit) prune(cell, now);
}

TX_ONCE void touch_bytes(const void* place, i64 bytes, Mode mode, const Actor& now, const Named& what,
                         bool unique = false, bool as_mbarrier = false) {
  const Region region = region_of(place);
  const i64 first = static_cast<const u8*>(place) - region.first;
  if (region.cells == nullptr || first + bytes > region.bytes) {
    refuse(TX_HOST_BOUNDS, now.site, "%s%s[%lld] is outside the memory of the launch", doer(now.proxy), what.name,
           what.index);
  }
  if (region.block != nullptr && (region.block != now.by->block || now.proxy != Proxy::kThread)) {
    enter(*region.block, now);
  }
  const View view = region.block != nullptr ? kFencedShared : kFencedGlobal;
  const Touch touch{
      now.agent, now.time,  crew.universe, static_cast<u32>(now.by->block->number), static_cast<u16>(now.by->index),
      mode,      now.proxy, now.site};
  for (i64 b = 0; b < bytes; ++b) {
    ByteCell& cell = region.cells[first + b];
    const i64 index = what.index + b / what.element_bytes;
    if (cell.mbarrier != as_mbarrier && !(as_mbarrier && mode == Mode::kWrite)) {
      refuse(TX_HOST_PHASE, now.site,
             as_mbarrier ? "%s[%lld] is used and is no mbarrier" : "%s[%lld] lies in an mbarrier", what.name, index);
    }
    const bool written = region.block == nullptr || cell.write.universe == crew.universe;
    const bool settled = region.settled && mode == Mode::kRead && cell.write.time == 0;
    if (written && !settled && !is_over(cell.write, now)) {
      const char* const why = cell.write.proxy == Proxy::kThread ? "nothing orders them" : "nothing waits for it";
      refuse_touch(cell.write, now, mode, what, index, as_mbarrier, unique, why);
    }
    if (!as_mbarrier && written && is_unfenced(cell.write, now, view)) {
      refuse_touch(cell.write, now, mode, what, index, as_mbarrier, unique, "no fence_async shows it to copies");
    }
    for (u32 k = cell.may_conflict(mode) ? cell.others : 0; k != 0; k = touches.nodes[k].next) {
      const Touch& other = touches.nodes[k].touch;
      const bool conflict = other.mode != mode;
      if ((conflict || mode == Mode::kWrite) && !is_over(other, now)) {
        refuse_touch(other, now, mode, what, index, as_mbarrier, unique, "nothing orders them");
      }
    }
    if (mode == Mode::kWrite) cell.defined = true;
    if (!cell.defined && region.block != nullptr && !as_mbarrier) found_undefined(what.name, index, now.site);
    note(cell, touch, now);
  }
}

TX_ONCE Actor as_thread(Runner& me, Site site) { return {me.agent, me.time, &me, Proxy::kThread, site}; }

TX_ONCE void touch_element(const void* place, int bytes, Mode mode, Site site, const char* name, i64 index,
                           bool unique) {
  Runner& me =
      crew.self->block->runners[static_cast<size_t>(machine.current)];  // an instruction of a warp is by its lanes
  touch_bytes(place, bytes, mode, as_thread(me, site), {name, index, bytes}, unique);
}

}  // namespace tx::host
