#line 2 "/texpr/include/texpr/host/clock.hpp"
// Vector clocks. An agent is what does things one after another: a thread, the copies of a thread, the phases of an
// mbarrier. What somebody knows is, for every agent, up to which of its times everything is over and seen.
#pragma once
#include <initializer_list>
#include <utility>
#include <vector>

#include "texpr/types.cuh"

namespace tx::host {

// What an agent did is over; is over but for its stores, which may not be seen yet; is over and is seen by bulk copies
// in that memory.
enum View { kOver, kFreed, kFencedShared, kFencedGlobal, kViews };

// A clock is shared by all that know the same, such as the threads of a block after a barrier, and copied on change.
class Known {
 public:
  Known() = default;
  Known(const Known& other) : clock_(other.clock_) {
    if (clock_ != nullptr) ++clock_->users;
  }
  Known(Known&& other) noexcept : clock_(other.clock_) { other.clock_ = nullptr; }
  Known& operator=(Known other) {
    std::swap(clock_, other.clock_);
    return *this;
  }
  ~Known() {
    if (clock_ != nullptr && --clock_->users == 0) delete clock_;
  }

  // Surely the same: one clock is shared.
  bool is(const Known& other) const { return clock_ == other.clock_; }

  u32 of(View view, u32 agent) const {
    return clock_ != nullptr && agent < clock_->time[view].size() ? clock_->time[view][agent] : 0;
  }
  // It is over, or may still store.
  bool freed(u32 agent, u32 time) const { return of(kOver, agent) >= time || of(kFreed, agent) >= time; }
  void raise(View view, u32 agent, u32 time) {
    if (of(view, agent) >= time) return;
    own();
    if (clock_->time[view].size() <= agent) clock_->time[view].resize(agent + 1, 0);
    clock_->time[view][agent] = time;
  }
  void join(const Known& other) {
    if (clock_ == other.clock_ || other.clock_ == nullptr || covers(other)) return;
    if (other.covers(*this)) {
      *this = other;
      return;
    }
    own();
    for (int view = 0; view < kViews; ++view) {
      std::vector<u32>& mine = clock_->time[view];
      const std::vector<u32>& theirs = other.clock_->time[view];
      if (mine.size() < theirs.size()) mine.resize(theirs.size(), 0);
      for (size_t agent = 0; agent < theirs.size(); ++agent) {
        if (mine[agent] < theirs[agent]) mine[agent] = theirs[agent];
      }
    }
  }
  // Takes from another only what frees memory: its stores may not be seen yet.
  void join_freed(const Known& other) {
    for (const View view : {kOver, kFreed}) {
      for (size_t agent = 0; other.clock_ != nullptr && agent < other.clock_->time[view].size(); ++agent) {
        raise(kFreed, static_cast<u32>(agent), other.clock_->time[view][agent]);
      }
    }
  }

 private:
  struct Clock {
    int users = 1;
    std::vector<u32> time[kViews];
  };

  bool covers(const Known& other) const {
    if (other.clock_ == nullptr) return true;
    if (clock_ == nullptr) return false;
    for (int view = 0; view < kViews; ++view) {
      const std::vector<u32>& mine = clock_->time[view];
      const std::vector<u32>& theirs = other.clock_->time[view];
      for (size_t agent = 0; agent < theirs.size(); ++agent) {
        if (theirs[agent] > (agent < mine.size() ? mine[agent] : 0)) return false;
      }
    }
    return true;
  }
  // Makes the clock this one's alone.
  void own() {
    if (clock_ == nullptr) {
      clock_ = new Clock;
    } else if (clock_->users > 1) {
      Clock* const copy = new Clock(*clock_);
      copy->users = 1;
      --clock_->users;
      clock_ = copy;
    }
  }

  Clock* clock_ = nullptr;
};

}  // namespace tx::host
