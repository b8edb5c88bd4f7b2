#line 2 "/texpr/include/texpr/host/race.hpp"
// Happens-before checks. Every element (in shared memory every byte) has a cell with its last write and a summary of
// its reads and of its atomic updates; a summary keeps one access and whether there were others of which no barrier of
// the present thread could have ordered all. With barriers as the only synchronisation the summaries lose no race.
#pragma once
#include "texpr/host/machine.hpp"

namespace tx::host {

struct Access {
  Site site;
  i64 block = 0;
  u32 serial = 0;  // of the block; 0: no access yet
  u32 block_epoch = 0;
  u32 warp_epoch = 0;
  int thread = 0;
};

struct Summary {
  Access last;
  Access elsewhere;           // an earlier one of another block: nothing later in this launch can be after it
  Access beside;              // one that no barrier orders with `last`, where other_warp or other_thread holds
  bool other_block = false;   // `elsewhere` holds
  bool other_warp = false;    // `beside` is of another warp, since block_epoch of `last`
  bool other_thread = false;  // another thread of the same warp, since warp_epoch of `last`
};

struct Cell {
  Access write;
  Summary reads;
  Summary atomics;
};

TX_ONCE Access present(Site site) {
  const int t = machine.current;
  return {site, machine.block, machine.serial, machine.block_epoch, machine.warp_epoch[t / 32], t};
}

TX_ONCE bool unordered(const Access& before, const Access& now) {
  if (before.serial != now.serial) return true;
  if (before.block_epoch != now.block_epoch || before.thread == now.thread) return false;
  return before.thread / 32 != now.thread / 32 || before.warp_epoch == now.warp_epoch;
}

TX_ONCE void add_to(Summary& summary, const Access& now) {
  Access& last = summary.last;
  if (last.serial != now.serial) {
    if (last.serial != 0) {
      summary.other_block = true;
      summary.elsewhere = last;
    }
    summary.other_warp = summary.other_thread = false;
  } else if (last.block_epoch != now.block_epoch) {
    summary.other_warp = summary.other_thread = false;
  } else if (last.thread / 32 != now.thread / 32) {
    if (!summary.other_warp) summary.beside = now;
    summary.other_warp = true;
    return;  // `last` stays: its warp is not that of `beside`, one of the two is foreign to any third
  } else if (last.warp_epoch != now.warp_epoch) {
    summary.other_thread = false;
  } else if (last.thread != now.thread) {
    if (!summary.other_warp) summary.beside = now;
    summary.other_thread = true;
    return;
  }
  last = now;
}

// An access in the summary that `now` is not after, or null.
TX_ONCE const Access* conflict(const Summary& summary, const Access& now) {
  const Access& last = summary.last;
  if (summary.other_block) return &summary.elsewhere;
  if (last.serial == 0) return nullptr;
  if (unordered(last, now)) return &last;
  if (last.serial != now.serial || last.block_epoch != now.block_epoch) return nullptr;
  if (summary.other_warp) return &summary.beside;
  return summary.other_thread && last.warp_epoch == now.warp_epoch ? &summary.beside : nullptr;
}

TX_ONCE const char* verb(Mode mode) {
  return mode == Mode::kRead ? "reads" : mode == Mode::kWrite ? "writes" : "atomically updates";
}

// Checks the access against the cell and notes it there. `per_block`: the cell is of shared memory, where accesses of
// earlier blocks are of another memory.
TX_ONCE void check_race(Cell& cell, Mode mode, Site site, const char* name, i64 index, bool per_block, bool unique) {
  if (per_block && cell.write.serial != machine.serial) cell.write.serial = 0;
  if (per_block && cell.reads.last.serial != machine.serial) cell.reads = Summary{};
  if (per_block && cell.atomics.last.serial != machine.serial) cell.atomics = Summary{};
  const Access now = present(site);
  const Access* other = nullptr;
  Mode other_mode = Mode::kWrite;
  if (cell.write.serial != 0 && unordered(cell.write, now)) {
    other = &cell.write;
  } else if (mode != Mode::kRead && (other = conflict(cell.reads, now)) != nullptr) {
    other_mode = Mode::kRead;
  } else if (mode != Mode::kAtomic && (other = conflict(cell.atomics, now)) != nullptr) {
    other_mode = Mode::kAtomic;
  }
  if (other != nullptr) {
    char text[240];
    std::snprintf(text, sizeof text,
                  "%sblock %lld thread %d %s %s[%lld], block %lld thread %d %s it, and nothing orders them",
                  unique ? "#unique is broken: " : "", machine.block, machine.current, verb(mode), name, index,
                  other->block, other->thread, verb(other_mode));
    found(unique ? TX_HOST_UNIQUE : TX_HOST_RACE, site, text, index);
    found_other(other->site, other->thread, other->block);
    give_up();
  }
  if (mode == Mode::kWrite) {
    cell.write = now;
  } else {
    add_to(mode == Mode::kRead ? cell.reads : cell.atomics, now);
  }
}

}  // namespace tx::host
