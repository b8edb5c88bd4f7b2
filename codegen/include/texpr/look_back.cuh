#line 2 "/texpr/include/texpr/look_back.cuh"
// Folds over blocks that are numbered as they begin: a block tells the fold of its part, and gets that of all parts
// before, from left to right, so that bits do not depend on which of them are how far (Merrill, Garland: Single-pass
// parallel prefix scan with decoupled look-back, 2016; here what is found of parts is added onto what is before them).
#pragma once
#include "texpr/flags.cuh"
#include "texpr/lanes.cuh"

namespace tx {

constexpr u32 kPartFolded = 1;    // a part's own fold is in memory
constexpr u32 kBeforeFolded = 2;  // and so is that of all parts up to it
constexpr int kAsked = 8;         // parts whose folds of an element are on their way together

// The first bytes of a value, or zeros behind it, as another one.
template <class To, class From>
TX_FN To bits_as(From from) {
  To to = {};
  TX_COPY(&to, &from, sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
  return to;
}

// How a part's folds are told: as they are, or in pairs that take the place of one.
template <class T, class Own>
struct Told {
  static constexpr bool kPaired = sizeof(Own) < sizeof(T);
  static_assert(!kPaired || 2 * sizeof(Own) == sizeof(T), "two of them take the place of one");
  struct Pair {
    Own low, high;
  };

  // The kEach elements of a thread, value(e) of each. The second half of a pair is the next lane's.
  template <int kEach, class Space, class Value>
  static TX_FN void store(const Space& space, i64 first, int element, Value value, Here here) {
    static_assert(!kPaired || kEach == 1, "lanes side by side have a pair");
    if constexpr (kPaired) {
      const Own mine = static_cast<Own>(value(0));
      const Pair both = {mine, shuffle_xor(mine, 1, here)};
      if (element % 2 == 0) space.store(first + element / 2, bits_as<T>(both));
    } else {
      TX_UNROLL
      for (int e = 0; e < kEach; ++e) space.store(first + element + e, value(e));
    }
  }
  // What lies there of an element, and the element of it.
  template <class Space>
  static TX_FN T load(const Space& space, i64 first, int element) {
    return space.load(first + (kPaired ? element / 2 : element));
  }
  static TX_FN T value(T found, int element) {
    if constexpr (!kPaired) return found;
    const Pair both = bits_as<Pair>(found);
    return static_cast<T>(element % 2 == 0 ? both.low : both.high);
  }
};

// A block's kThreads threads have kEach elements each of its kElements, from `element` on; of those with the same ones,
// one `holds` them. value(e) is the part's fold, before(e) what is before part 0, put(e, x) takes what is before this
// part. `flags`, from `first` on, has a word for each part, zeros at first; `space`, from `base` on, 2 * kElements
// values; `hand` is in shared memory, with a value beside the elements where kOneAsks: one warp asks for all
// how far the blocks before are. All threads of the block come here, and a block of a lower part began earlier. Where
// kToldLater, tell_folded follows behind another barrier of the block, which need not wait for its fence then. Folds
// that are values of type Own are told as such, where lanes side by side have them.
template <class Monoid, int kElements, int kEach, int kThreads, bool kOneAsks = false, bool kToldLater = false,
          class Own = typename Monoid::Partial, class Space, class Hand, class Value, class Before, class Put>
TX_FN void look_back(const Global<u32>& flags, i64 first, int part, const Space& space, i64 base, const Hand& hand,
                     int element, bool holds, int barrier, Value value, Before before, Put put,
                     Here here = Here::now()) {
  using T = typename Monoid::Partial;
  using Folds = Told<T, Own>;
  static_assert(!kOneAsks || sizeof(T) >= sizeof(int), "the hand takes the number of a part");
  static_assert(!Folds::kPaired || kElements % 32 == 0, "neighbours lie in one warp");
  constexpr bool kEachHasOne = kEach == 1 && kElements == kThreads && kElements > 1;  // of its own: none is handed on
  const auto own = [=](i64 of, int e) { return base + of * (2 * kElements) + e; };
  const auto whole = [=](i64 of, int e) { return base + of * (2 * kElements) + kElements + e; };
  if (holds) {
    TX_UNROLL
    for (int e = 0; e < kEach; ++e) {
      if (part == 0) {
        space.store(whole(0, element + e), Monoid::combine(before(e), value(e)));
      } else {
        if constexpr (!kEachHasOne) hand.store(element + e, value(e));
      }
    }
    if (part > 0) Folds::template store<kEach>(space, own(part, 0), element, value, here);
  }
  sync_block(barrier);
  if (thread() == 0) publish(flags, first + part, part == 0 ? kBeforeFolded : kPartFolded, here);
  if (part == 0) return;
  constexpr int kWorkers = kElements + 31 < kThreads ? (kElements + 31) / 32 * 32 : kThreads;  // whole warps
  int nearest = part - 1;  // a part up to which all is folded
  if (thread() < (kOneAsks ? 32 : kWorkers)) {
    for (;;) {
      const int mine = nearest - lane();
      const bool found = mine >= 0 && await(flags, first + mine, here) == kBeforeFolded;
      const int lanes = reduce_lanes<Least<i32>>(found ? lane() : 32, here);
      nearest -= lanes;
      if (lanes < 32) break;
    }
  }
  if constexpr (kOneAsks) {  // what one lane was told all threads know
    if (thread() == 0) hand.store(kElements, bits_as<T>(nearest));
    sync_block(barrier + 1);
    nearest = bits_as<int>(hand.load(kElements));
  } else if (thread() < kWorkers) {
    sync_warp(barrier + 1);  // what one lane was told all of them know
  }
  if (thread() < kWorkers) {
    if constexpr (kElements == 1) {
      T total = space.load(whole(nearest, 0));
      for (int from = nearest + 1; from < part; from += 32) {
        const T next = from + lane() < part ? space.load(own(from + lane(), 0)) : Monoid::identity();
        for (int i = 0; i < 32 && from + i < part; ++i) total = Monoid::combine(total, shuffle(next, i, here));
      }
      if (lane() == 0) {
        space.store(whole(part, 0), Monoid::combine(total, hand.load(0)));
        hand.store(0, total);
      }
    } else {
      for (int e = kEachHasOne ? element : thread(); e < kElements; e += kWorkers) {
        T total = space.load(whole(nearest, e));
        for (int from = nearest + 1; from < part; from += kAsked) {
          T next[kAsked];
          TX_UNROLL
          for (int k = 0; k < kAsked; ++k) {
            next[k] = from + k < part ? Folds::load(space, own(from + k, 0), e) : Monoid::identity();
          }
          TX_UNROLL
          for (int k = 0; k < kAsked; ++k) {
            if (from + k < part) total = Monoid::combine(total, Folds::value(next[k], e));
          }
        }
        if constexpr (kEachHasOne) {
          space.store(whole(part, e), Monoid::combine(total, value(0)));
          put(0, total);
          break;
        } else {
          space.store(whole(part, e), Monoid::combine(total, hand.load(e)));
          hand.store(e, total);
        }
      }
    }
  }
  if constexpr (!kEachHasOne || !kToldLater) sync_block(barrier + 2);
  if (!kToldLater && thread() == 0) publish(flags, first + part, kBeforeFolded, here);
  if constexpr (!kEachHasOne) {
    TX_UNROLL
    for (int e = 0; e < kEach; ++e) put(e, hand.load(element + e));
  }
}

// Tells that all parts up to this one are folded, behind look_back and a barrier of the block: the thread that does so
// waits until the memory has what the block wrote.
TX_FN void tell_folded(const Global<u32>& flags, i64 first, int part, Here here = Here::now()) {
  if (part > 0 && thread() == 0) publish(flags, first + part, kBeforeFolded, here);
}

}  // namespace tx
