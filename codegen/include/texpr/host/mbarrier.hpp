#line 2 "/texpr/include/texpr/host/mbarrier.hpp"
// mbarrier.cuh on the CPU: arrivals, bytes and phases are counted, and every use is checked against the phase that it
// is meant for. Time p + 2 of its agent is the end of phase p, time 1 its beginning.
#pragma once
#include "texpr/here.cuh"
#include "texpr/host/schedule.hpp"

namespace tx {

namespace host {

struct Phases {
  u8* place = nullptr;
  const char *name = "", *side = "";
  int slot = 0;
  bool live = true;
  int arrivals = 0;  // of a phase
  int pending = 0;   // still to come in this one
  i64 bytes = 0;     // expected and not here
  int phase = 0;
  u32 agent = 0;
  Known gathered, over;  // what was left in this phase, and in those before
  Known far, far_over;   // the same by other blocks, to be seen by those who wait with the scope of the cluster
};

TX_ONCE void free_phases(Phases* state) { delete state; }

struct Label {
  char text[64];
  explicit Label(const Phases& of) { std::snprintf(text, sizeof text, "%s.%s[%d]", of.name, of.side, of.slot); }
};

// Ends the phase if all has come.
TX_ONCE void end_phase(Phases& at) {
  if (at.pending != 0 || at.bytes != 0) return;
  at.gathered.raise(kOver, at.agent, static_cast<u32>(at.phase) + 2);
  at.over.join(at.gathered);
  at.far_over.join(at.far);
  at.gathered = at.far = Known();
  at.pending = at.arrivals;
  ++at.phase;
  wake(&at);
}

// The bytes of a copy are here.
TX_ONCE void count_bytes(Copy& copy) {
  Phases& at = *copy.full;
  if (machine.failed) return;
  if (!at.live || at.phase != copy.phase) {
    char text[240];
    std::snprintf(text, sizeof text,
                  "%lld bytes that were on the way in phase %d of %s arrive in phase %d: too few were expected",
                  copy.bytes, copy.phase, Label(at).text, at.phase);
    machine.current = copy.by->index;
    machine.block = copy.by->block->number;
    found(TX_HOST_PHASE, copy.site, text);
    return;
  }
  at.bytes -= copy.bytes;
  end_phase(at);
}

// Starts a copy whose bytes the mbarrier counts.
TX_ONCE void counted_by(Copy& copy, Phases& at, i64 bytes) {
  copy.full = &at;
  copy.phase = at.phase;
  copy.bytes = bytes;
  copy.finish = count_bytes;
  crew.copies.push_back(&copy);
}

TX_ONCE void count_arrival(Copy& copy) {
  Phases& at = *copy.full;
  finish_group(*copy.by, copy.by->copies, copy.number, false);
  at.gathered.raise(kOver, copy.by->copies.agent, copy.number);
  --at.pending;
  end_phase(at);
}

// A copy into the memory of the block that owns the mbarrier needs its fence: it may come from another block, or by the
// copy engine.
TX_ONCE void need_fence(const Phases& at, Runner& me, Site site) {
  if (me.known.of(kFencedShared, at.agent) > 0) return;
  refuse(TX_HOST_PHASE, site,
         "block %lld thread %d uses %s for copies or from another block, and no fence_barrier_init "
         "came before",
         machine.block, me.index, Label(at).text);
}

struct Counted {
  Phases& at;
  Actor actor;
};

}  // namespace host

class Mbarrier {
 public:
  Mbarrier(u8* base, int slot, const char* name, const char* side)
      : place_(base + 8 * slot), name_(name), side_(side), slot_(slot) {}

  void init(int arrivals, Here here = Here::now()) const {
    host::Runner& me = host::self(here);
    const i64 at = place_ - host::machine.shared;
    if (at < 0 || at % 8 != 0 || at + 8 > host::machine.shared_bytes || arrivals < 1) {
      refuse(here, "is made with %d arrivals; it lies on a multiple of 8 in shared memory, and takes 1 or more",
             arrivals);
    }
    host::Phases*& state = me.block->mbarriers[static_cast<size_t>(at / 8)];
    if (state != nullptr && state->live) refuse(here, "is made twice (%d arrivals)", arrivals);
    const u32 agent = host::new_agent();
    touch({agent, 1, &me, host::Proxy::kThread, here}, *me.block, host::Mode::kWrite, 8);
    mark(*me.block, true);
    delete state;
    state = new host::Phases();
    state->place = place_;
    state->name = name_;
    state->side = side_;
    state->slot = slot_;
    state->arrivals = state->pending = arrivals;
    state->agent = agent;
    state->gathered.raise(host::kOver, state->agent, 1);
    me.known.raise(host::kOver, state->agent, 1);
    me.making.push_back(state->agent);
  }
  void invalidate(Here here = Here::now()) const {
    host::Runner& me = host::self(here);
    host::Phases& at = use(me, *me.block, here);
    touch(host::as_thread(me, here), *me.block, host::Mode::kWrite, 8);
    mark(*me.block, false);
    at.live = false;
  }

  template <Scope kSeenBy>
  void arrive(int phase, Here here = Here::now()) const {
    host::Runner& me = host::self(here);
    host::pause(me);
    arrive_at(me, use(me, *me.block, here), phase, here);
  }
  template <Scope kSeenBy>
  void arrive_remote(int rank, int phase, Here here = Here::now()) const {
    host::Runner& me = host::self(here);
    host::pause(me);
    host::Block& there = peer(me, rank, here);
    host::Phases& at = use(me, there, here);
    host::need_fence(at, me, here);
    check_phase(me, at, phase, here);
    if constexpr (kSeenBy == Scope::kCluster) {
      host::release_into(at.far, me);
    } else {
      host::Known mine;
      host::release_into(mine, me);
      at.gathered.join_freed(mine);
    }
    --at.pending;
    host::end_phase(at);
  }
  void expect(int bytes, int phase, Here here = Here::now()) const {
    host::Runner& me = host::self(here);
    host::pause(me);
    host::Phases& at = use(me, *me.block, here);
    if (bytes < 1 || bytes >= 1 << 20) refuse(here, "expects %d bytes; 1 to 1048575 can be", bytes);
    host::need_fence(at, me, here);
    at.bytes += bytes;
    arrive_at(me, at, phase, here);
  }
  void arrive_after_copies(int phase, Here here = Here::now()) const {
    host::Runner& me = host::self(here);
    host::Phases& at = use(me, *me.block, here);
    check_phase(me, at, phase, here);
    host::agent_of(me.copies.agent);
    host::Copy* const copy = new host::Copy{&me, here};
    copy->number = me.copies.started;
    copy->full = &at;
    copy->finish = host::count_arrival;
    host::crew.copies.push_back(copy);
    host::pause(me);
  }

  template <Scope kSees>
  void wait(int phase, Here here = Here::now()) const {
    host::Runner& me = host::self(here);
    host::Phases& at = use(me, *me.block, here);
    host::pause(me);
    if (phase > at.phase) {
      refuse(here, "is waited for in phase %d and is in phase %d: the test of its parity passes at once", phase,
             at.phase);
    }
    host::wait_until(
        me, &at, here, [&] { return at.phase > phase; },
        [&](char* text, size_t size) {
          std::snprintf(text, size, "for phase %d of %s (%d of %d arrivals came, %lld bytes %s)", phase,
                        host::Label(at).text, at.arrivals - at.pending, at.arrivals,
                        at.bytes < 0 ? -at.bytes : at.bytes, at.bytes < 0 ? "too many" : "are missing");
        });
    if (at.phase > phase + 1) {
      refuse(here, "is waited for in phase %d and is in phase %d already: its parity is that of before", phase,
             at.phase);
    }
    if (phase < 0) return;
    me.known.join(at.over);
    if constexpr (kSees == Scope::kCluster) {
      me.known.join(at.far_over);
    } else {
      me.known.join_freed(at.far_over);
    }
  }

  // For copies of `me`, into a block: the state of the one there, which counts them, and who they are.
  host::Counted counted(host::Runner& me, host::Block& block, host::Proxy proxy, Here here) const {
    host::Phases& at = state_in(block, here);
    const host::Actor actor{at.agent, static_cast<u32>(at.phase) + 2, &me, proxy, here};
    touch(actor, block, host::Mode::kAtomic, 1);
    host::need_fence(at, me, here);
    return {at, actor};
  }
  // The block of that rank.
  host::Block& peer(host::Runner& me, int rank, Here here) const { return host::block_of(me, rank, here); }

 private:
  template <class... Part>
  [[noreturn]] void refuse(Here here, const char* format, Part... part) const {
    char text[200], whole[250];
    if constexpr (sizeof...(part) == 0) {
      std::snprintf(text, sizeof text, "%s", format);
    } else {
      std::snprintf(text, sizeof text, format, part...);
    }
    std::snprintf(whole, sizeof whole, "%s.%s[%d] %s", name_, side_, slot_, text);
    host::found(TX_HOST_PHASE, here, whole);
    host::give_up();
  }
  void touch(const host::Actor& now, host::Block& block, host::Mode mode, int bytes) const {
    char name[64];
    std::snprintf(name, sizeof name, "%s.%s", name_, side_);
    host::touch_bytes(block.shared + (place_ - host::machine.shared), bytes, mode, now, {name, slot_, 8}, false, true);
  }
  void mark(host::Block& block, bool mbarrier) const {
    for (i64 b = 0; b < 8; ++b) {
      host::ByteCell& cell = block.cells[place_ - host::machine.shared + b];
      cell.mbarrier = mbarrier;
      cell.defined = false;
    }
  }
  host::Phases& state_in(host::Block& block, Here here) const {
    const i64 at = place_ - host::machine.shared;
    const bool inside = at >= 0 && at + 8 <= host::machine.shared_bytes;
    host::Phases* const state = inside ? block.mbarriers[static_cast<size_t>(at / 8)] : nullptr;
    if (state == nullptr) refuse(here, "is used and was never made");
    if (!state->live) refuse(here, "is used and has been invalidated");
    return *state;
  }
  // Its state in a block, for an operation of the thread itself.
  host::Phases& use(host::Runner& me, host::Block& block, Here here) const {
    const host::Actor actor = host::as_thread(me, here);
    if (&block != me.block) host::enter(block, actor);
    host::Phases& at = state_in(block, here);
    touch(actor, block, host::Mode::kAtomic, 1);
    return at;
  }
  void check_phase(host::Runner& me, host::Phases& at, int phase, Here here) const {
    if (at.phase != phase) {
      refuse(here, "gets an arrival for phase %d from block %lld thread %d and is in phase %d", phase,
             host::machine.block, me.index, at.phase);
    }
    if (at.pending == 0) {
      refuse(here, "gets one arrival more than its %d from block %lld thread %d in phase %d", at.arrivals,
             host::machine.block, me.index, phase);
    }
  }
  void arrive_at(host::Runner& me, host::Phases& at, int phase, Here here) const {
    check_phase(me, at, phase, here);
    host::release_into(at.gathered, me);
    --at.pending;
    host::end_phase(at);
  }

  u8* place_;
  const char *name_, *side_;
  int slot_;
};

TX_ONCE void fence_barrier_init(Here here = Here::now()) {
  host::Runner& me = host::self(here);
  for (u32 agent : me.making) {
    me.inited.raise(host::kOver, agent, 1);
    me.inited.raise(host::kFencedShared, agent, 1);
    me.known.raise(host::kFencedShared, agent, 1);
  }
  me.making.clear();
}

}  // namespace tx
