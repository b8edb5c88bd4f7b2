#line 2 "/texpr/include/texpr/shifted.cuh"
// 16 bytes for each lane of a warp, side by side, from any address in global memory or to it: a lane moves the aligned
// chunk in which its elements begin, and lanes give one another what is in the next one's chunk. No chunk is moved
// twice, and none in pieces but at both ends. All lanes of the warp come together; lane i + 1 has the elements behind
// those of lane i. No element before the first is wanted.
#pragma once
#include "texpr/lanes.cuh"
#include "texpr/wanted.cuh"

namespace tx {

// The bytes from the first of 8 words on (0 to 16).
template <class T, int kCount>
TX_FN Vector<T, kCount> behind_bytes(Vector<T, kCount> low, Vector<T, kCount> high, int bytes) {
  return bytes == 16 ? high : funnel_shift(low, high, bytes);
}

// `of` lane `source`, but only those words that begin before byte `end` and end behind byte `begin`.
template <class T, int kCount>
TX_FN Vector<T, kCount> words_of(Vector<T, kCount> of, int source, int begin, int end, Here here) {
  u32 words[4];
  TX_COPY(words, &of, 16);
  TX_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (4 * i < end && 4 * i + 4 > begin) words[i] = shuffle(words[i], source, here);
  }
  TX_COPY(&of, words, 16);
  return of;
}

// kRows runs of elements, `apart` elements from one another in memory, to registers from one on. What is not wanted has
// any value, and two chunks behind the last element that is, and as many elements before it as a chunk has, may be read.
// Lane r brings what the last lane has in the chunk behind of row r: one access for all rows.
template <int kCount, int kRows, Cache kCache = Cache::kPlain, class T, int kAll, class Memory, class Index,
          class Apart>
TX_FN void load_shifted(Reg<T, kAll>& to, int register_number, const Memory& from, Index index, Apart rows_apart,
                        Wanted<kCount> wanted, Here here = Here::now()) {
  static_assert(sizeof(VectorOf<Memory, kCount>) == 16 && kRows <= 32, "a chunk for each lane, a row for each lane");
  constexpr int kSize = sizeof(typename Memory::Element);
  const Index apart = static_cast<Index>(rows_apart);
  VectorOf<Memory, kCount> chunk[kRows], ends = {};
  // A lane with nothing of a row, nor before it, brings what is there: no load waits for a condition.
  const int beyond = wanted.end > -kCount ? 0 : -wanted.end / kCount + 1;
  const Index own = index - beyond * kCount;
  TX_UNROLL
  for (int row = 0; row < kRows; ++row) {
    const int past = bytes_past(from, index + row * apart) / kSize, last = past + wanted.end + beyond * kCount;
    const int first = lane() == 0 || beyond > 0 ? past : 0;
    chunk[row] = load_part<kCount, kCache>(from, own + row * apart - past, first,
                                           last > kCount ? kCount : last > first ? last : first + 1, here);
  }
  if (lane() < kRows) {
    const Index at = index + (31 - lane()) * kCount + lane() * apart;
    const int past = bytes_past(from, at) / kSize, last = past + wanted.end - (32 - lane()) * kCount;
    if (past > 0 && last > 0) {
      ends = load_part<kCount, kCache>(from, at - past + kCount, 0, last < past ? last : past, here);
    }
  }
  TX_UNROLL
  for (int row = 0; row < kRows; ++row) {
    const int bytes = bytes_past(from, index + row * apart);
    const VectorOf<Memory, kCount> next = words_of(chunk[row], (lane() + 1) % 32, 0, bytes, here);
    const VectorOf<Memory, kCount> end = words_of(ends, row, 0, bytes, here);
    put(to, register_number + row * kCount, funnel_shift(chunk[row], lane() == 31 ? end : next, bytes));
  }
}

// Elements first .. last - 1 of a chunk, in words where they fill them.
template <Cache kCache, int kCount, class Memory, class Index>
TX_FN void store_pieces(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v, int first, int last,
                        Here here) {
  constexpr int kEach = sizeof(typename Memory::Element) < 4 ? 4 / sizeof(typename Memory::Element) : 1;
  TX_UNROLL
  for (int i = 0; i < kCount; i += kEach) {
    if (first <= i && i + kEach <= last) {
      store<kCache>(to, index + i, Vector<typename Memory::Element, kEach>{v.packed.template part<kEach>(i)}, here);
    } else if constexpr (kEach > 1) {
      TX_UNROLL
      for (int k = i; k < i + kEach; ++k) {
        if (first <= k && k < last) store<kCache>(to, index + k, v.one(k), here);
      }
    }
  }
}

// The elements of a lane, those before `past` of the lane before it.
template <class T, int kCount>
TX_FN Vector<T, kCount> behind_lane(Vector<T, kCount> v, int past, Here here) {
  static_assert(sizeof v == 16, "a chunk for each lane");
  const int bytes = past * static_cast<int>(sizeof(T));
  return behind_bytes(words_of(v, (lane() + 31) % 32, 16 - bytes, 16, here), v, 16 - bytes);
}

// The elements of all lanes from `first` to `last`, which count from where this lane's chunk begins.
template <Cache kCache, int kCount, class Memory, class Index>
TX_FN void store_chunks(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v, int first, int last,
                        Here here) {
  const int past = bytes_past(to, index) / static_cast<int>(sizeof(typename Memory::Element));
  const Vector<typename Memory::Element, kCount> chunk = behind_lane(v, past, here);
  if (lane() == 0 && first < past) first = past;
  const bool whole = first <= 0 && last >= kCount;
  const int behind = lane() == 31 && past > 0 ? last - kCount : 0;
  if (whole) store<kCache>(to, index - past, chunk, here);
  if ((!whole && first < kCount && last > 0 && first < last) || behind > 0) {  // where a row ends, and seldom else
    if (!whole) store_pieces<kCache>(to, index - past, chunk, first, last < kCount ? last : kCount, here);
    if (behind > 0) {
      store_pieces<kCache>(to, index - past + kCount,
                           behind_bytes(v, v, 16 - past * static_cast<int>(sizeof(typename Memory::Element))),
                           first - kCount, behind < past ? behind : past, here);
    }
  }
}

// The elements of a lane up to an end, with those of the lane before it that lie in its chunk.
template <Cache kCache = Cache::kPlain, int kCount, class Memory, class Index>
TX_FN void store_shifted(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v,
                         Wanted<kCount> wanted, Here here = Here::now()) {
  const int past = bytes_past(to, index) / static_cast<int>(sizeof(typename Memory::Element));
  store_chunks<kCache>(to, index, v, 0, past + wanted.end, here);
}

// The same of a strip that begins in some lane: `wanted` has the same ends for all of them.
template <Cache kCache = Cache::kPlain, int kCount, class Memory, class Index>
TX_FN void store_strip(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v,
                       Wanted<kCount> wanted, Here here = Here::now()) {
  const int past = bytes_past(to, index) / static_cast<int>(sizeof(typename Memory::Element));
  store_chunks<kCache>(to, index, v, past + wanted.begin, past + wanted.end, here);
}

// The same of a strip that begins and ends with a chunk of memory.
template <Cache kCache = Cache::kPlain, int kCount, class Memory, class Index>
TX_FN void store_whole_strip(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v,
                             Wanted<kCount> wanted, Here here = Here::now()) {
  const int past = bytes_past(to, index) / static_cast<int>(sizeof(typename Memory::Element));
  const Vector<typename Memory::Element, kCount> chunk = behind_lane(v, past, here);
  if (past + wanted.begin <= 0 && past + wanted.end >= kCount) store<kCache>(to, index - past, chunk, here);
}

}  // namespace tx
