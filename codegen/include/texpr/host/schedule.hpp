#line 2 "/texpr/include/texpr/host/schedule.hpp"
// Runs blocks together: starts their threads, chooses who goes on, and tells who waits for what when nobody can.
#pragma once
#include "texpr/host/copies.hpp"

namespace tx::host {

constexpr int kMaxCrew = 1 << 15;     // threads that can run together
constexpr int kSomeOfCrew = 1 << 12;  // of those that need not: the others start when some have ended

TX_ONCE Block& block_of(Runner& me, int rank, Site site) {
  Cluster& cluster = *me.block->cluster;
  if (rank < 0 || rank >= static_cast<int>(cluster.blocks.size())) {
    refuse(TX_HOST_BOUNDS, site, "rank %d is not of the cluster's %d blocks", rank,
           static_cast<int>(cluster.blocks.size()));
  }
  return *cluster.blocks[static_cast<size_t>(rank)];
}

// The barriers of sync.cuh.
TX_ONCE void meet_block_or_warp(Wait kind, int barrier, Site site) {
  Runner& me = *crew.self;
  Block& block = *me.block;
  pause(me);
  const int first = me.index / 32 * 32;
  Meeting& meeting = kind == Wait::kBlock ? block.all : block.warps[static_cast<size_t>(first / 32)];
  const int expected = kind == Wait::kBlock ? machine.threads : std::min(32, machine.threads - first);
  if (meeting.arrived > 0 && meeting.number != barrier) {
    const char* const scope = kind == Wait::kBlock ? "block" : "warp";
    char text[200];
    std::snprintf(text, sizeof text, "thread %d waits at %s barrier %d, thread %d at %s barrier %d", meeting.thread,
                  scope, meeting.number, me.index, scope, barrier);
    found(TX_HOST_DIVERGENCE, site, text);
    found_other(meeting.site, meeting.thread, block.number);
    give_up();
  }
  meeting.number = barrier;
  meet(meeting, me, expected, kind == Wait::kBlock ? "block" : "warp", site);
}

// The last thread to come runs the instruction for all. It orders no memory.
TX_ONCE void assemble(const Collective& mine, Site site) {
  Runner& me = *crew.self;
  const int first = me.index / mine.threads * mine.threads;
  if (first + mine.threads > machine.threads) {
    refuse(TX_HOST_DIVERGENCE, site, "%s is run by %d threads together, and the block ends before", mine.instruction,
           mine.threads);
  }
  pause(me);
  Assembly& all = me.block->assemblies[static_cast<size_t>(team(mine.threads, first))];
  if (all.count == 0) {
    all.instruction = mine.instruction;
    all.site = site;
    all.thread = me.index;
    all.operands.assign(static_cast<size_t>(mine.threads), nullptr);
  } else if (all.instruction != mine.instruction || all.site.file != site.file || all.site.line != site.line) {
    char text[200];
    std::snprintf(text, sizeof text, "thread %d waits for its warp to run %s, thread %d runs %s", all.thread,
                  all.instruction, me.index, mine.instruction);
    found(TX_HOST_DIVERGENCE, site, text);
    found_other(all.site, all.thread, me.block->number);
    give_up();
  }
  all.operands[static_cast<size_t>(me.index - first)] = mine.operands;
  if (++all.count == mine.threads) {
    all.count = 0;
    ++all.round;
    mine.perform(mine.what, all.operands.data());
    machine.current = me.index;  // accesses to memory were made in the name of others
    wake(&all);
    return;
  }
  const u32 round = all.round;
  wait_until(
      me, &all, site, [&] { return all.round != round; },
      [&](char* text, size_t size) {
        std::snprintf(text, size, "for its warp to run %s (%d of %d threads came)", mine.instruction, all.count,
                      mine.threads);
      });
}

// Threads that have ended are not waited for at the barrier of their cluster.
TX_ONCE void open_cluster_if_all(Cluster& cluster) {
  if (cluster.meeting.arrived == 0 || cluster.meeting.arrived < cluster.live) return;
  cluster.opened = cluster.meeting.gathered;
  open_meeting(cluster.meeting);
  wake(&cluster);
}

TX_ONCE void end_block(Block& block) {
  block.ended = true;
  for (const Visitor& visitor : block.visitors) {
    if (block.end.freed(visitor.agent, visitor.time)) continue;
    char text[240];
    std::snprintf(
        text, sizeof text,
        "block %lld ends, and nothing says that block %lld thread %d or its copy is done with its shared memory",
        block.number, visitor.block, visitor.thread);
    found(TX_HOST_EXITED, visitor.site, text);
    return;
  }
}

TX_ONCE void end_runner(Runner& runner) {
  Block& block = *runner.block;
  block.end.join(runner.known);
  block.end.raise(kOver, runner.agent, runner.time);
  --block.cluster->live;
  if (--block.live == 0) end_block(block);
  if (!machine.failed) open_cluster_if_all(*block.cluster);
}

// Who runs next, and the end of that turn.
TX_ONCE void run_one() {
  const size_t pick = crew.roll(static_cast<u32>(crew.ready.size()));
  Runner& runner = *crew.ready[pick];
  crew.ready[pick] = crew.ready.back();
  crew.ready.pop_back();
  runner.ready = false;
  crew.self = &runner;
  machine.current = runner.index;
  machine.running = &runner.thread;
  machine.shared = runner.block->shared;
  stand_at_block(runner.block->number);
  machine.scheduler.switch_to(runner.thread.fiber);
  if (runner.thread.wait == Wait::kDone && !machine.failed) end_runner(runner);
}

TX_ONCE void tell_deadlock() {
  const Runner* stuck[2] = {nullptr, nullptr};
  int ended = 0;
  for (Cluster* cluster : crew.clusters) {
    for (Block* block : cluster->blocks) {
      for (const Runner& runner : block->runners) {
        if (runner.thread.wait == Wait::kDone) ++ended;
        if (runner.waits_on == nullptr) continue;
        if (stuck[0] == nullptr) {
          stuck[0] = &runner;
        } else if (stuck[1] == nullptr && runner.waits_on != stuck[0]->waits_on) {
          stuck[1] = &runner;
        }
      }
    }
  }
  char text[250];
  int used = 0;
  for (const Runner* runner : stuck) {
    if (runner == nullptr) continue;
    char why[110];
    runner->reason.tell(runner->reason.what, why, sizeof why);
    used += std::snprintf(text + used, sizeof text - static_cast<size_t>(used), "%sblock %lld thread %d waits %s",
                          used > 0 ? "; " : "", runner->block->number, runner->index, why);
  }
  if (stuck[1] == nullptr && ended > 0) {
    std::snprintf(text + used, sizeof text - static_cast<size_t>(used), "; %d threads have ended", ended);
  }
  machine.current = stuck[0]->index;
  machine.block = stuck[0]->block->number;
  found(TX_HOST_DEADLOCK, stuck[0]->thread.site, text);
  if (stuck[1] != nullptr) found_other(stuck[1]->thread.site, stuck[1]->index, stuck[1]->block->number);
}

// The numbers of the blocks of cluster `k`, by rank.
TX_ONCE std::vector<i64> blocks_of(i64 k, const int (&shape)[3]) {
  const i64 across = machine.grid[0] / shape[0], down = machine.grid[1] / shape[1];
  const i64 x = k % across * shape[0], y = k / across % down * shape[1], z = k / across / down * shape[2];
  std::vector<i64> numbers;
  for (int c = 0; c < shape[2]; ++c) {
    for (int b = 0; b < shape[1]; ++b) {
      for (int a = 0; a < shape[0]; ++a) {
        numbers.push_back(x + a + machine.grid[0] * (y + b + machine.grid[1] * (z + c)));
      }
    }
  }
  return numbers;
}

// Starts the blocks of a cluster on the stacks from `stack` on; its threads are agents from `agent` on.
TX_ONCE Cluster* start_cluster(i64 k, const Stacks& stacks, int stack, u32 agent) {
  Cluster* const cluster = new Cluster;
  const size_t bytes = static_cast<size_t>(machine.shared_bytes);
  for (const i64 number : blocks_of(k, crew.way.shape)) {
    Block* const block = new Block;
    block->number = number;
    block->rank = static_cast<int>(cluster->blocks.size());
    block->cluster = cluster;
    if (bytes > 0) {
      block->shared = static_cast<u8*>(std::aligned_alloc(1024, (bytes + 1023) / 1024 * 1024));
      std::memset(block->shared, 0xCD, bytes);
      block->cells = new ByteCell[bytes];
      block->mbarriers.resize(bytes / 8, nullptr);
    }
    block->live = machine.threads;
    block->warps.resize(static_cast<size_t>(machine.threads + 31) / 32);
    block->assemblies.resize(kMaxTeams);
    block->runners.resize(static_cast<size_t>(machine.threads));
    for (int t = 0; t < machine.threads; ++t, ++stack, ++agent) {
      Runner& runner = block->runners[static_cast<size_t>(t)];
      runner.block = block;
      runner.index = t;
      runner.agent = agent;
      runner.time = 2;  // time 1 is its start
      runner.known.raise(kOver, 0, crew.way.is_dependent ? 0 : 1);
      runner.inited.raise(kOver, agent, 1);
      runner.thread.wait = Wait::kRunning;
      runner.thread.fiber.prepare(stacks.of(stack), thread_entry);
      make_ready(runner);
    }
    cluster->live += machine.threads;
    cluster->blocks.push_back(block);
  }
  crew.clusters.push_back(cluster);
  return cluster;
}

TX_ONCE void free_phases(Phases* state);  // mbarrier.hpp

TX_ONCE void free_cluster(Cluster* cluster) {
  for (Block* block : cluster->blocks) {
    std::free(block->shared);
    delete[] block->cells;
    for (Phases* state : block->mbarriers) free_phases(state);
    delete block;
  }
  delete cluster;
}

// Gives a cluster's memory back when all its threads have ended. Its bulk stores may still be on the way.
TX_ONCE void leave_cluster(Cluster* cluster) {
  std::vector<Copy*> late;
  for (Copy* copy : crew.copies) {
    if (copy->by->block->cluster == cluster) late.push_back(copy);
  }
  for (Copy* copy : late) finish_copy(copy);
  crew.clusters.erase(std::find(crew.clusters.begin(), crew.clusters.end(), cluster));
  free_cluster(cluster);
}

// Counters and flags are as they were before the launch.
TX_ONCE void need_restored() {
  for (const Signal* signal : crew.signals) {
    if (*signal->word == 0) continue;
    char text[200];
    std::snprintf(text, sizeof text, "a counter or flag is left at %u, and the next launch begins with that",
                  *signal->word);
    found(TX_HOST_PHASE, signal->site, text);
    return;
  }
}

TX_ONCE void leave_universe() {
  for (Copy* copy : crew.copies) delete copy;
  for (Cluster* cluster : crew.clusters) free_cluster(cluster);
  for (Signal* signal : crew.signals) delete signal;
  crew.signals.clear();
  crew.grid = Meeting();
  crew.copies.clear();
  crew.clusters.clear();
  crew.ready.clear();
}

// Runs clusters [0, count) of an order together, at most `slots` at a time.
TX_ONCE void run_together(const Order& order, i64 first, i64 count, int slots, const Stacks& stacks,
                          int cluster_threads) {
  static u32 universes = 0;
  crew.universe = ++universes;
  crew.next_agent = 1 + static_cast<u32>(count * cluster_threads);
  std::vector<Cluster*> places(static_cast<size_t>(slots), nullptr);
  i64 started = 0;
  while (!machine.failed) {
    for (size_t p = 0; p < places.size() && started < count; ++p) {
      if (places[p] != nullptr) {
        if (places[p]->live > 0) continue;
        leave_cluster(places[p]);
      }
      places[p] = start_cluster(order.at(first + started), stacks, static_cast<int>(p) * cluster_threads,
                                1 + static_cast<u32>(started * cluster_threads));
      ++started;
    }
    if (!crew.copies.empty() && (crew.ready.empty() || crew.roll(4) == 0)) {
      advance_copies();
    } else if (!crew.ready.empty()) {
      run_one();
    } else {
      bool live = false;
      for (const Cluster* cluster : crew.clusters) live = live || cluster->live > 0;
      if (live) tell_deadlock();
      if (!live && started < count) continue;
      break;
    }
  }
  if (!machine.failed && crew.way.is_restoring) need_restored();
  leave_universe();
}

inline constexpr Company kCompany{meet_block_or_warp, touch_element, assemble};

TX_ONCE void merge_arrays() {
  for (int k = 0; k < machine.tensor_count; ++k) {
    const u8* const first = static_cast<const u8*>(machine.tensors[k].data);
    const u8* const last = first + machine.tensors[k].bytes;
    bool merged = false;
    for (Region& array : arrays) {
      if (first > array.first + array.bytes || last < array.first) continue;
      const u8* const end = std::max(last, array.first + array.bytes);
      array.first = std::min(first, array.first);
      array.bytes = end - array.first;
      merged = true;
    }
    if (!merged) arrays.push_back({first, machine.tensors[k].bytes});
  }
}

TX_ONCE void Launched::run(u32 seed) const {
  bool fits = true;
  i64 clusters = 1;
  for (int axis = 0; axis < 3; ++axis) {
    fits = fits && shape[axis] >= 1 && machine.grid[axis] % shape[axis] == 0;
    clusters *= shape[axis] >= 1 ? machine.grid[axis] / shape[axis] : 0;
  }
  const int cluster_threads = shape[0] * shape[1] * shape[2] * machine.threads;
  if (!fits) {
    found(TX_HOST_LAUNCH, Site{}, "the grid is not made of whole clusters");
    return;
  }
  if (clusters == 0) return;
  crew.way = *this;
  crew.random = (static_cast<u64>(seed) + 1) * 0x9E3779B97F4A7C15ull;
  for (int k = 0; k < 4; ++k) crew.roll(2);
  i64 slots = 1;
  if (is_cooperative) {
    slots = clusters;
  } else if (has_flags) {
    slots = 1 + crew.roll(static_cast<u32>(std::min<i64>(clusters, std::max(1, kSomeOfCrew / cluster_threads))));
  }
  Stacks stacks;
  if (slots * cluster_threads > kMaxCrew || !stacks.map(static_cast<int>(slots) * cluster_threads)) {
    found(TX_HOST_LAUNCH, Site{}, "too many threads to run them together: launch fewer blocks");
    return;
  }
  machine.company = &kCompany;
  touches = Touches();
  arrays.clear();
  merge_arrays();
  const Order order(clusters, has_flags ? static_cast<u32>(crew.random >> 40) : seed);
  if (has_flags) {
    run_together(order, 0, clusters, static_cast<int>(slots), stacks, cluster_threads);
  } else {
    for (i64 k = 0; k < clusters && !machine.failed; ++k) run_together(order, k, 1, 1, stacks, cluster_threads);
  }
  for (Region& array : arrays) delete[] array.cells;
  stacks.unmap();
  machine.company = nullptr;
}

}  // namespace tx::host
