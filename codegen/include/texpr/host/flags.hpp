#line 2 "/texpr/include/texpr/host/flags.hpp"
// flags.cuh on the CPU.
#pragma once
#include "texpr/here.cuh"
#include "texpr/host/mbarrier.hpp"
#include "texpr/host/schedule.hpp"

namespace tx {

namespace host {

// Indivisible, and checked as an update: plain accesses must be ordered.
TX_ONCE u32* touch_word(Runner& me, const Global<u32>& words, i64 at, Here here) {
  pause(me);
  const Spot<u32> spot = words.at(at, here.file, here.line);
  touch_spot(spot, 4, 4, Mode::kAtomic, as_thread(me, here));
  return spot.data;
}

TX_ONCE Signal& signal_at(const u32* word, Site site) {
  for (Signal* signal : crew.signals) {
    if (signal->word == word) return *signal;
  }
  crew.signals.push_back(new Signal{word, site});
  return *crew.signals.back();
}

// Counts up to n - 1 and then begins again.
TX_ONCE u32 count_round(u32* word, int n, Site site) {
  const u32 before = *word;
  if (n < 1 || before >= static_cast<u32>(n)) {
    refuse(TX_HOST_PHASE, site, "a counter stands at %u before it counts to %d: it was not cleared, or it is another's",
           before, n);
  }
  *word = before + 1 == static_cast<u32>(n) ? 0 : before + 1;
  return before;
}

TX_ONCE void need_flags(Runner& me, Site site) {
  if (crew.way.has_flags) return;
  refuse(TX_HOST_LAUNCH, site,
         "block %lld thread %d uses flags between blocks: export the kernel as Launched().flags()", machine.block,
         me.index);
}

}  // namespace host

TX_ONCE int take_turn(const Global<u32>& counters, i64 at, int turns, Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::need_flags(me, here);
  u32* const word = host::touch_word(me, counters, at, here);
  host::signal_at(word, here);
  me.block->turn = static_cast<int>(host::count_round(word, turns, here));
  return me.block->turn;
}

TX_ONCE void publish(const Global<u32>& flags, i64 at, u32 state, Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::need_flags(me, here);
  u32* const word = host::touch_word(me, flags, at, here);
  host::Signal& signal = host::signal_at(word, here);
  if (*word == state && signal.published) {
    host::refuse(TX_HOST_PHASE, here, "block %lld thread %d publishes %u at a flag that says so already",
                 host::machine.block, me.index, state);
  }
  *word = state;
  signal.known = host::Known();
  host::release_into(signal.known, me);
  signal.published = true;
  signal.turn = me.block->turn;
  host::wake(&signal);
}

TX_ONCE u32 await(const Global<u32>& flags, i64 at, Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::need_flags(me, here);
  u32* const word = host::touch_word(me, flags, at, here);
  host::Signal& signal = host::signal_at(word, here);
  host::wait_until(
      me, &signal, here, [&] { return *word != 0; },
      [&](char* text, size_t size) { std::snprintf(text, size, "for flag %lld", at); });
  if (!host::crew.way.is_cooperative && (me.block->turn < 0 || signal.turn >= me.block->turn)) {
    host::refuse(TX_HOST_DEADLOCK, here,
                 "block %lld, of turn %d, awaits flag %lld of turn %d: only blocks of lower turns are known to run",
                 host::machine.block, me.block->turn, at, signal.turn);
  }
  me.known.join(signal.known);
  return *word;
}

TX_ONCE bool last(const Global<u32>& counters, i64 at, int n, Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::need_flags(me, here);
  u32* const word = host::touch_word(me, counters, at, here);
  host::Signal& signal = host::signal_at(word, here);
  for (const i64 block : signal.counted) {
    if (block == me.block->number) {
      host::refuse(TX_HOST_PHASE, here, "block %lld is counted twice of the %d that are to come", block, n);
    }
  }
  const bool is_last = host::count_round(word, n, here) == static_cast<u32>(n - 1);
  signal.counted.push_back(me.block->number);
  if (is_last) signal.counted.clear();
  host::release_into(signal.known, me);
  me.known.join(signal.known);
  return is_last;
}

TX_ONCE bool sync_any(int barrier, bool mine, TX_SITE) {
  host::Runner& me = host::self(TX_HERE);
  me.any = mine ? -1 : 0;
  host::wait_at(host::Wait::kBlock, barrier, TX_HERE);
  bool some = false;
  for (const host::Runner& runner : me.block->runners) some = some || runner.any == -1;
  host::wait_at(host::Wait::kBlock, barrier, TX_HERE);
  return some;
}

TX_ONCE void sync_grid(const Global<u32>& counters, i64 at, Here here = Here::now()) {
  host::Runner& me = host::self(here);
  if (!host::crew.way.is_cooperative) {
    host::refuse(TX_HOST_LAUNCH, here,
                 "sync_grid needs all blocks at once: export the kernel as Launched().cooperative()");
  }
  host::touch_word(me, counters, at, here);
  const i64* const grid = host::machine.grid;
  host::meet(host::crew.grid, me, static_cast<int>(grid[0] * grid[1] * grid[2]) * host::machine.threads, "grid", here);
}

}  // namespace tx
