#line 2 "/texpr/include/texpr/lanes.cuh"
// Values moved between the lanes of a warp, and trees over them. All lanes take part, which in a block of less than a
// warp are its threads; a group is kLanes (2 to 32, a power of two) neighbouring lanes. Nothing is read or written in
// memory, and no access to memory is ordered.
#pragma once
#include "texpr/here.cuh"
#include "texpr/kernel.cuh"
#include "texpr/monoid.cuh"
#if defined(TX_HOST)
#include "texpr/host/lanes.hpp"
#else

namespace tx {

// `move` on each 4 bytes of a value.
template <class T, class Move>
TX_FN T move_words(T value, Move move) {
  u32 words[(sizeof(T) + 3) / 4] = {};
  TX_COPY(words, &value, sizeof(T));
  TX_UNROLL
  for (u32& word : words) word = move(word);
  TX_COPY(&value, words, sizeof(T));
  return value;
}

// Instructions, and not the functions of the toolkit: those are static, so that a cubin would have names in it that
// depend on the folder in which it was compiled.
TX_FN u32 shuffle_word(u32 word, int source) {
  u32 moved;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(moved) : "r"(word), "r"(source));
  return moved;
}
TX_FN u32 shuffle_word_xor(u32 word, int mask) {
  u32 moved;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(moved) : "r"(word), "r"(mask));
  return moved;
}
template <int kLanes>
TX_FN u32 shuffle_word_up(u32 word, int distance) {
  u32 moved;
  asm volatile("shfl.sync.up.b32 %0, %1, %2, %3, 0xffffffff;"
               : "=r"(moved)
               : "r"(word), "r"(distance), "n"((32 - kLanes) << 8));
  return moved;
}

// The value of lane `source` (0 to 31).
template <class T>
TX_FN T shuffle(T value, int source, Here = Here::now()) {
  return move_words(value, [=](u32 word) { return shuffle_word(word, source); });
}
// The value of the lane whose number differs in the bits of `mask`.
template <class T>
TX_FN T shuffle_xor(T value, int mask, Here = Here::now()) {
  return move_words(value, [=](u32 word) { return shuffle_word_xor(word, mask); });
}
// The value of `distance` lanes before this one; its own where there is none in the group.
template <int kLanes = 32, class T>
TX_FN T shuffle_up(T value, int distance, Here = Here::now()) {
  return move_words(value, [=](u32 word) { return shuffle_word_up<kLanes>(word, distance); });
}

}  // namespace tx
#endif

namespace tx {

template <int kLanes>
constexpr bool is_group = kLanes == 2 || kLanes == 4 || kLanes == 8 || kLanes == 16 || kLanes == 32;

// Every lane of a group gets the values of the group combined in the order of lanes, neighbours first, by a monoid of
// monoid.cuh.
template <class Monoid, int kLanes = 32>
TX_FN typename Monoid::Partial reduce_lanes(typename Monoid::Partial value, Here here = Here::now()) {
  static_assert(is_group<kLanes>, "a group is of 2, 4, 8, 16 or 32 lanes");
  if constexpr (is_scaled<Monoid>) {  // the greatest first, so that each sum is scaled once
    using T = decltype(value.sum);
    const T greatest = reduce_lanes<Greatest<T>, kLanes>(value.greatest, here);
    return {greatest, reduce_lanes<Sum<T>, kLanes>(Monoid::scaled(value, greatest), here)};
  } else {
    TX_UNROLL
    for (int bit = 1; bit < kLanes; bit *= 2) {
      const typename Monoid::Partial other = shuffle_xor(value, bit, here);
      if constexpr (Monoid::kSymmetric) {
        value = Monoid::combine(value, other);
      } else {
        const bool later = (lane() & bit) != 0;
        value = Monoid::combine(later ? other : value, later ? value : other);
      }
    }
    return value;
  }
}

// Every lane gets the values of its group up to and with its own, combined in the order of lanes.
template <class Monoid, int kLanes = 32>
TX_FN typename Monoid::Partial scan_lanes(typename Monoid::Partial value, Here here = Here::now()) {
  static_assert(is_group<kLanes>, "a group is of 2, 4, 8, 16 or 32 lanes");
  TX_UNROLL
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const typename Monoid::Partial before = shuffle_up<kLanes>(value, distance, here);
    if (lane() % kLanes >= distance) value = Monoid::combine(before, value);
  }
  return value;
}

// Every lane gets the values of its group before its own, combined in the order of lanes; the first lane the identity.
template <class Monoid, int kLanes = 32>
TX_FN typename Monoid::Partial before_lanes(typename Monoid::Partial value, Here here = Here::now()) {
  const typename Monoid::Partial before = shuffle_up<kLanes>(scan_lanes<Monoid, kLanes>(value, here), 1, here);
  return lane() % kLanes == 0 ? Monoid::identity() : before;
}

}  // namespace tx
