#line 2 "/texpr/include/texpr/host/copies.hpp"
// Copies on their way: they are made at a moment that the seed chooses, between their start and the wait for them.
#pragma once
#include <algorithm>

#include "texpr/host/shadow.hpp"

namespace tx::host {

struct Piece {
  u8* to;
  const u8* from;  // null: zeros
  u32 bytes;
};

struct Copy {
  Runner* by = nullptr;
  Site site;
  const Group* group = nullptr;  // of which it is number `number`; null: an mbarrier counts it
  u32 number = 0;
  std::vector<Piece> pieces{};
  std::vector<u8> staged{};  // what was read and is not yet written
  bool is_read = false;
  Phases* full = nullptr;  // what counts its `bytes`, in `phase`
  int phase = 0;
  i64 bytes = 0;
  void (*finish)(Copy& copy) = nullptr;  // after all is written
};

TX_ONCE void read_sources(Copy& copy) {
  if (copy.is_read) return;
  copy.is_read = true;
  for (const Piece& piece : copy.pieces) {
    const size_t place = copy.staged.size();
    copy.staged.resize(place + piece.bytes, 0);
    if (piece.from != nullptr) std::memcpy(copy.staged.data() + place, piece.from, piece.bytes);
  }
}

TX_ONCE void finish_copy(Copy* copy);

// Makes the copies of a group up to number `until`, or only reads their sources.
TX_ONCE void finish_group(const Runner& by, const Group& group, u32 until, bool only_read) {
  std::vector<Copy*> due;
  for (Copy* copy : crew.copies) {
    if (copy->by == &by && copy->group == &group && copy->number <= until) due.push_back(copy);
  }
  for (Copy* copy : due) {
    if (only_read) {
      read_sources(*copy);
    } else {
      finish_copy(copy);
    }
  }
}

TX_ONCE void finish_copy(Copy* copy) {
  crew.copies.erase(std::find(crew.copies.begin(), crew.copies.end(), copy));
  read_sources(*copy);
  const u8* from = copy->staged.data();
  for (const Piece& piece : copy->pieces) {
    std::memcpy(piece.to, from, piece.bytes);
    from += piece.bytes;
  }
  if (copy->finish != nullptr) copy->finish(*copy);
  delete copy;
}

// What the engine does while threads run: one step of some copy.
TX_ONCE void advance_copies() {
  Copy* const copy = crew.copies[crew.roll(static_cast<u32>(crew.copies.size()))];
  if (!copy->is_read && crew.roll(2) == 0) {
    read_sources(*copy);
  } else {
    finish_copy(copy);
  }
}

TX_ONCE u32 agent_of(u32& agent) {
  if (agent == 0) agent = new_agent();
  return agent;
}

TX_ONCE void close_group(Group& group) { group.closed.push_back(group.started); }

// How many of the group's copies are over when at most `behind` closed groups are on the way.
TX_ONCE u32 over_with(const Group& group, int behind) {
  const size_t closed = group.closed.size(), kept = static_cast<size_t>(behind);
  return closed > kept ? group.closed[closed - 1 - kept] : 0;
}

// Touches `bytes` from `spot` on, which must be of its tensor and lie on a multiple of `aligned`.
template <class T>
inline void touch_spot(const Spot<T>& spot, i64 bytes, int aligned, Mode mode, const Actor& now) {
  if (bytes > spot.bytes) {
    refuse(TX_HOST_BOUNDS, now.site, "a copy of %lld bytes at %s[%lld] goes %lld bytes beyond its end", bytes,
           spot.name, spot.index, bytes - spot.bytes);
  }
  check_alignment(spot.data, aligned, spot.name, spot.index, now.site);
  touch_bytes(spot.data, bytes, mode, now, {spot.name, spot.index, static_cast<i64>(sizeof(T))});
}

TX_ONCE void need_sixteens(int bytes, Site site) {
  if (bytes > 0 && bytes % 16 == 0) return;
  refuse(TX_HOST_BOUNDS, site, "a bulk copy of %d bytes; their number is a multiple of 16", bytes);
}

// Shared memory of the present block, which only copies of its own threads may start from.
template <class T>
inline u8* own_shared(const Spot<T>& spot, Site site) {
  u8* const p = reinterpret_cast<u8*>(const_cast<typename RemoveConst<T>::type*>(spot.data));
  if (p < machine.shared || p >= machine.shared + machine.shared_bytes) {
    refuse(TX_HOST_BOUNDS, site, "%s is not in shared memory, which this copy needs", spot.name);
  }
  return p;
}

}  // namespace tx::host
