#line 2 "/texpr/include/texpr/wanted.cuh"
// Wide accesses of which only some elements are wanted. Arrays of any alignment are read in aligned chunks of 16 bytes:
// `load_wanted` where the chunks are counted from an aligned address, the funnels where they are not (two aligned chunks,
// shifted together). They are told which elements are wanted. The rest of a chunk that holds a wanted element is read and
// discarded; no other chunk is touched, so an access never leaves the pages of its array.
#pragma once
#include "texpr/registers.cuh"

namespace tx {

// Which of kCount elements are wanted: element i where begin <= at + i < end. Bounds that all chunks of a row share
// stay in their registers, and `at` is a constant once loops are unrolled. So is which of them may be `cut` before or
// behind: of the others nothing is asked.
template <int kCount>
struct Wanted {
  int begin, end, at;
  bool before = true, behind = true;

  TX_FN Wanted(int begin, int end, int at = 0) : begin(begin), end(end), at(at) {}
  TX_FN Wanted(i64 begin, i64 end, int at = 0) : begin(near(begin)), end(near(end)), at(at) {}
  TX_FN Wanted cut(bool may_before, bool may_behind) const {
    Wanted chunk = *this;
    chunk.before = may_before;
    chunk.behind = may_behind;
    return chunk;
  }

  TX_FN bool any() const {
    return (!before || begin < at + kCount) && (!behind || end > at) && (!before || !behind || begin < end);
  }
  TX_FN bool all() const { return (!before || begin <= at) && (!behind || end >= at + kCount); }
  TX_FN bool has(int i) const { return (!before || begin <= at + i) && (!behind || end > at + i); }
  // Of those that are wanted, of which there are any.
  TX_FN int first() const { return before && begin > at ? begin - at : 0; }
  TX_FN int last() const { return behind && end < at + kCount ? end - at : kCount; }  // before it the last one
  // Whether a chunk from `index` on lies in an array of so many elements.
  template <class Index>
  TX_FN bool inside(Index index, i64 room) const {
    return (!before || index >= 0) && (!behind || index + kCount <= room);
  }

  static constexpr int kFar = 1 << 30;  // beyond every chunk
  static TX_FN int near(i64 bound) { return static_cast<int>(min(max(bound, i64(-kFar)), i64(kFar))); }
};

// Elements index .. index + kCount - 1 at an aligned address: those that are wanted are read, the others have any value.
// Where none is wanted the address may lie outside the array.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_wanted(const Memory& from, Index index, Wanted<kCount> wanted,
                                           Here here = Here::now()) {
  VectorOf<Memory, kCount> v = {};
  if (wanted.any()) v = load_part<kCount, kCache>(from, index, wanted.first(), wanted.last(), here);
  return v;
}

// The same where the chunk surely lies in the array: nothing is asked.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_around(const Memory& from, Index index, Wanted<kCount> wanted,
                                           Here here = Here::now()) {
  return load_any<kCount, kCache>(from, index, wanted.first(), wanted.last(), here);
}

// The same of a thread that reads all elements at `sure` in any case, and does so again where none is wanted. A first or
// last load of a row that is made under a condition is made where its elements are used under the same one, behind the
// use of others, also by a predicate; one that is made in any case waits for none (softmax of 30840 x 4352 in bf16 runs
// at .93 of a copy with a condition and at .99 without, RMSNorm of 5592 x 24001 at .75 and .89).
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index, class Sure>
TX_FN VectorOf<Memory, kCount> load_or_sure(const Memory& from, Index index, Sure sure, Wanted<kCount> wanted,
                                            Here here = Here::now()) {
  const bool any = wanted.any();
  return load_part<kCount, kCache>(from, any ? index : static_cast<Index>(sure), any ? wanted.first() : 0,
                                   any ? wanted.last() : kCount, here);
}

// The same where all are wanted or none, of which 0 is left.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index, class Sure>
TX_FN VectorOf<Memory, kCount> load_or_none(const Memory& from, Index index, Sure sure, Wanted<kCount> wanted,
                                            Here here = Here::now()) {
  if (!wanted.behind) return load<kCount, kCache>(from, index, here);
  const bool any = wanted.any();
  const VectorOf<Memory, kCount> v = load<kCount, kCache>(from, any ? index : static_cast<Index>(sure), here);
  return any ? v : VectorOf<Memory, kCount>{};
}

// The same of an array with `room` for so many elements: what lies outside it is not read.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_inside(const Memory& from, Index index, Wanted<kCount> wanted, i64 room,
                                           Here here = Here::now()) {
  VectorOf<Memory, kCount> v = {};
  if (wanted.any()) {
    if (wanted.all() || wanted.inside(index, room)) {
      v = load_part<kCount, kCache>(from, index, wanted.first(), wanted.last(), here);
    } else {
      TX_UNROLL
      for (int i = 0; i < kCount; ++i) {
        if (wanted.has(i)) v.packed.set(i, load<1, kCache>(from, index + i, here).packed.get(0));
      }
    }
  }
  return v;
}

// The same without a byte that is not wanted: one by one where some are not, as at the end of an array. 0 stands for
// those.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN VectorOf<Memory, kCount> load_exactly(const Memory& from, Index index, Wanted<kCount> wanted,
                                            Here here = Here::now()) {
  if (wanted.all()) return load<kCount, kCache>(from, index, here);
  VectorOf<Memory, kCount> v = {};
  TX_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (wanted.has(i)) v.packed.set(i, load<1, kCache>(from, index + i, here).packed.get(0));
  }
  return v;
}

// `load_inside` with elements at `sure` as in `load_or_sure`.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index, class Sure>
TX_FN VectorOf<Memory, kCount> load_inside_or_sure(const Memory& from, Index index, Sure sure, Wanted<kCount> wanted,
                                                   i64 room, Here here = Here::now()) {
  const bool any = wanted.any(), whole = any && (wanted.all() || wanted.inside(index, room));
  VectorOf<Memory, kCount> v =
      load_part<kCount, kCache>(from, whole ? index : static_cast<Index>(sure), whole ? wanted.first() : 0,
                                whole ? wanted.last() : kCount, here);
  if (any && !whole) v = load_exactly<kCount, kCache>(from, index, wanted, here);
  return v;
}

// Writes those that are wanted, one by one where some are not: another block may write the others. In aligned pieces of
// 8, 4 and 2 bytes there were fewer requests, and more instructions: NCHW to NHWC of 257 x 3 x 187 x 179 in bf16 ran at
// .83 of a copy in place of .92.
template <Cache kCache = Cache::kPlain, int kCount, class Memory, class Index>
TX_FN void store_wanted(const Memory& to, Index index, Vector<typename Memory::Element, kCount> v,
                        Wanted<kCount> wanted, Here here = Here::now()) {
  if (wanted.all()) {
    store<kCache>(to, index, v, here);
  } else {
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (wanted.has(i)) store(to, index + i, v.one(i), here);
    }
  }
}

// The 16 bytes that begin `bytes` (0 to 15) after the first of two neighbouring chunks.
template <class T, int kCount>
TX_FN Vector<T, kCount> funnel_shift(Vector<T, kCount> low, Vector<T, kCount> high, int bytes) {
  static_assert(sizeof(low) == 16, "chunks are of 16 bytes");
  u32 w[8];
  TX_COPY(w, &low, 16);
  TX_COPY(w + 4, &high, 16);
  TX_UNROLL
  for (int i = 0; i < 6; ++i) w[i] = (bytes & 8) != 0 ? w[i + 2] : w[i];
  TX_UNROLL
  for (int i = 0; i < 5; ++i) w[i] = (bytes & 4) != 0 ? w[i + 1] : w[i];
  if constexpr (sizeof(T) < 4) {
    TX_UNROLL
    for (int i = 0; i < 4; ++i) w[i] = funnel_word(w[i], w[i + 1], (bytes & 3) * 8);
  }
  Vector<T, kCount> out;
  TX_COPY(&out, w, 16);
  return out;
}

// The word of 4 bytes of its chunk in which an element begins, said so that compilers know it of `bytes_past`, too.
template <class Memory, class Index>
TX_FN int word_past(const Memory& from, Index index) {
  return bytes_past(from, index) >> 2;
}

// Two neighbouring aligned chunks: the 16 bytes that begin `bytes` (0 to 15) after the first are an access at any address.
template <class T, int kCount>
struct Chunks {
  Vector<T, kCount> low, high;
  int bytes;

  TX_FN Vector<T, kCount> shifted() const { return funnel_shift(low, high, bytes); }
  // The same, known to begin in this word of the first one.
  TX_FN Chunks in_word(int word) const { return {low, high, 4 * word + (sizeof(T) < 4 ? bytes & 3 : 0)}; }
};

// The chunks of kAll registers, each pair under the number of its first register, a constant once loops are unrolled.
template <class T, int kCount, int kAll>
struct ChunkRow {
  Chunks<T, kCount> pair[kAll / kCount];

  TX_FN Chunks<T, kCount>& operator()(int number) { return pair[number / kCount]; }
};

template <class Memory, int kCount>
using ChunksOf = Chunks<typename Memory::Element, kCount>;

// Those of elements index .. index + kCount - 1, of which some are wanted, as in load_wanted. `Place` says where a
// tile's elements lie.
template <int kCount, class Place, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN ChunksOf<Memory, kCount> chunks_wanted(const Memory& from, Index index, Wanted<kCount> wanted,
                                             Here here = Here::now()) {
  static_assert(Place::run % kCount == 0, "the elements of a chunk are neighbours");
  const int bytes = bytes_past(from, index), past = bytes / static_cast<int>(sizeof(typename Memory::Element));
  const bool any = wanted.any();  // bounds of none may lie far from the chunk
  const int first = past + (any ? wanted.first() : 0), last = past + (any ? wanted.last() : 0);
  const Index chunk = index - past;
  ChunksOf<Memory, kCount> c = {{}, {}, bytes};
  if (any && first < kCount) c.low = load_part<kCount, kCache>(from, Place::at(chunk), first, last, here);
  if (any && last > kCount) {
    c.high = load_part<kCount, kCache>(from, Place::at(chunk + kCount), first - kCount, last - kCount, here);
  }
  return c;
}

// The same of an array of so many elements, without a byte that is not its own: a chunk that leaves it is read element
// by element.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN ChunksOf<Memory, kCount> chunks_exactly(const Memory& from, Index index, Wanted<kCount> wanted, i64 room,
                                              Here here = Here::now()) {
  const int bytes = bytes_past(from, index), past = bytes / static_cast<int>(sizeof(typename Memory::Element));
  const int first = past + wanted.first(), last = past + wanted.last();  // counted from the first chunk
  const Index chunk = index - past;
  const auto part = [&](Index at, int begin, int end) {
    VectorOf<Memory, kCount> v = {};
    if (at >= 0 && at + kCount <= room) return load_part<kCount, kCache>(from, at, begin, end, here);
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (begin <= i && i < end) v.packed.set(i, load<1, kCache>(from, at + i, here).packed.get(0));
    }
    return v;
  };
  ChunksOf<Memory, kCount> c = {{}, {}, bytes};
  if (wanted.any() && first < kCount) c.low = part(chunk, first, last);
  if (wanted.any() && last > kCount) c.high = part(chunk + kCount, first - kCount, last - kCount);
  return c;
}

// The same of an array that begins at a multiple of 16 bytes: one chunk at most leaves it, behind its last whole one.
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN ChunksOf<Memory, kCount> chunks_inside(const Memory& from, Index index, Wanted<kCount> wanted, i64 room,
                                             Here here = Here::now()) {
  const int bytes = bytes_past(from, index), past = bytes / static_cast<int>(sizeof(typename Memory::Element));
  const bool any = wanted.any();
  const int first = past + (any ? wanted.first() : 0), last = past + (any ? wanted.last() : 0);
  const Index chunk = index - past, behind = chunk + kCount, rest = static_cast<Index>(room - room % kCount);
  const bool low = any && first < kCount, high = any && last > kCount;
  ChunksOf<Memory, kCount> c = {{}, {}, bytes};
  if (low && (!wanted.behind || chunk < rest)) c.low = load_part<kCount, kCache>(from, chunk, first, last, here);
  if (high && (!wanted.behind || behind < rest)) {
    c.high = load_part<kCount, kCache>(from, behind, first - kCount, last - kCount, here);
  }
  if (wanted.behind && ((low && chunk == rest) || (high && behind == rest))) {
    VectorOf<Memory, kCount> v = {};
    const int from_chunk = chunk == rest ? 0 : kCount;
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (i < room % kCount && first - from_chunk <= i && i < last - from_chunk) {
        v.packed.set(i, load<1, kCache>(from, rest + i, here).packed.get(0));
      }
    }
    (chunk == rest ? c.low : c.high) = v;
  }
  return c;
}

// The same where all are wanted. At an aligned address the chunk behind is not touched: the same one is read again,
// which is no branch.
template <int kCount, class Place, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN ChunksOf<Memory, kCount> chunks(const Memory& from, Index index, Here here = Here::now()) {
  static_assert(Place::run % kCount == 0, "the elements of a chunk are neighbours");
  const int bytes = bytes_past(from, index), past = bytes / static_cast<int>(sizeof(typename Memory::Element));
  const Index chunk = index - past, behind = chunk + (past != 0 ? kCount : 0);
  return {load_part<kCount, kCache>(from, Place::at(chunk), past, kCount, here),
          load_part<kCount, kCache>(from, Place::at(behind), 0, past != 0 ? past : kCount, here), bytes};
}

template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN ChunksOf<Memory, kCount> chunks_wanted(const Memory& from, Index index, Wanted<kCount> wanted,
                                             Here here = Here::now()) {
  return chunks_wanted<kCount, Straight, kCache>(from, index, wanted, here);
}
template <int kCount, Cache kCache = Cache::kPlain, class Memory, class Index>
TX_FN ChunksOf<Memory, kCount> chunks(const Memory& from, Index index, Here here = Here::now()) {
  return chunks<kCount, Straight, kCache>(from, index, here);
}

// `other` in those of the registers that are not wanted. All loads of a row come first, or each would wait for the one
// before it.
template <int kCount, class T, int kAll>
TX_FN void fill(Reg<T, kAll>& to, int index, Wanted<kCount> wanted, Value<T> other) {
  if (wanted.all()) return;
  Packed<T, kCount> part = to.template part<kCount>(index);
  part.fill([=](int i) { return wanted.has(i); }, encode<T>(other));
  to.set_part(index, part);
}

}  // namespace tx
