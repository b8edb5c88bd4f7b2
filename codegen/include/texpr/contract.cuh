#line 2 "/texpr/include/texpr/contract.cuh"
// Products of tiles as emitted kernels use them: a warpgroup's 64 rows of c, all of k that is in shared memory; and the
// way of c back to shared memory. One call is one operator of the program; group.cuh orders it.
#pragma once
#include "texpr/mma.cuh"
#include "texpr/vector.cuh"
#include "texpr/warp_contract.cuh"
#include "texpr/wgmma.cuh"

namespace tx {

// The operand `k` behind a corner, as the tile lies.
template <class T, int kRows, int kSwizzle>
TX_FN auto behind(const MatrixTile<T, Major::kK, kRows, kSwizzle>& tile, int row, int column, int k) {
  return tile.at(row, column + k);
}
template <class T, int kRows, int kSwizzle>
TX_FN auto behind(const MatrixTile<T, Major::kOuter, kRows, kSwizzle>& tile, int row, int column, int k) {
  return tile.at(row + k, column);
}

// Starts c = a * b, or c += a * b where `accumulate`, over kDepth of k: a and b from these corners on, of which rows
// are those of the tile as it lies.
template <int kDepth, class T, class U, int kColumns, Major kMajorA, int kRowsA, int kSwizzleA, Major kMajorB,
          int kRowsB, int kSwizzleB>
TX_FN void contract(Accumulator<64, kColumns, SumOf<T>>& c, const MatrixTile<T, kMajorA, kRowsA, kSwizzleA>& a,
                    int row_a, int column_a, const MatrixTile<U, kMajorB, kRowsB, kSwizzleB>& b, int row_b,
                    int column_b, bool accumulate, Here here = Here::now()) {
  constexpr int kEach = 32 / static_cast<int>(sizeof(T));
  static_assert(kDepth % kEach == 0, "products are 32 bytes deep");
  const auto of_a = [&](int k) { return behind(a, row_a, column_a, k); };
  const auto of_b = [&](int k) { return behind(b, row_b, column_b, k); };
  if constexpr (sizeof(T) == 2 && kDepth == 4 * kEach) {
    wgmma(c, {of_a(0), of_a(kEach), of_a(2 * kEach), of_a(3 * kEach)},
          {of_b(0), of_b(kEach), of_b(2 * kEach), of_b(3 * kEach)}, accumulate, here);
  } else {
    TX_UNROLL
    for (int k = 0; k < kDepth; k += kEach) wgmma(c, of_a(k), of_b(k), k > 0 || accumulate, here);
  }
}

// The same with a in registers: operands of 32 bytes of k from a slot on, in each warp those of its 16 rows.
template <int kDepth, class T, int kSlots, int kColumns, Major kMajorB, int kRowsB, int kSwizzleB>
TX_FN void contract(Accumulator<64, kColumns, SumOf<T>>& c, const WarpOperands<T, 1, kSlots>& a, int slot,
                    const MatrixTile<T, kMajorB, kRowsB, kSwizzleB>& b, int row_b, int column_b, bool accumulate,
                    Here here = Here::now()) {
  constexpr int kEach = 32 / static_cast<int>(sizeof(T));
  static_assert(kDepth % kEach == 0, "products are 32 bytes deep");
  TX_UNROLL
  for (int k = 0; k < kDepth; k += kEach) {
    wgmma(c, a.block[slot + k / kEach][0], behind(b, row_b, column_b, k), k > 0 || accumulate, here);
  }
}

// Sums of several times 64 rows of a warpgroup, one block below the other.
template <int kRows, int kColumns, class C = f32>
struct RowBlocks {
  static_assert(kRows % 64 == 0, "blocks have 64 rows");
  Accumulator<64, kColumns, C> block[kRows / 64];

  TX_FN C& operator()(int i, Here here = Here::now()) { return block[i / (kColumns / 2)](i % (kColumns / 2), here); }
};
template <int kRows, int kColumns, class C>
TX_FN void settle(RowBlocks<kRows, kColumns, C>& c, Here here = Here::now()) {
  TX_UNROLL
  for (int i = 0; i < kRows / 64; ++i) settle(c.block[i], here);
}
template <int kDepth, class T, int kRows, int kColumns, Major kMajorA, int kRowsA, int kSwizzleA, Major kMajorB,
          int kRowsB, int kSwizzleB>
TX_FN void contract(RowBlocks<kRows, kColumns, SumOf<T>>& c, const MatrixTile<T, kMajorA, kRowsA, kSwizzleA>& a,
                    int row_a, int column_a, const MatrixTile<T, kMajorB, kRowsB, kSwizzleB>& b, int row_b,
                    int column_b, bool accumulate, Here here = Here::now()) {
  TX_UNROLL
  for (int i = 0; i < kRows / 64; ++i) {
    const int below = kMajorA == Major::kK ? 64 * i : 0, beside = kMajorA == Major::kK ? 0 : 64 * i;
    contract<kDepth>(c.block[i], a, row_a + below, column_a + beside, b, row_b, column_b, accumulate, here);
  }
}

// kCount of what a lane has of c, from `column` on, rounded two at a time.
template <class T, int kCount, int kWidth>
TX_FN Fragment<T, kCount> rounded(const Accumulator<64, kWidth>& c, int column, Here here) {
  Fragment<T, kCount> pairs;
  TX_UNROLL
  for (int i = 0; i < kCount; i += 2) {
    const int at = column / 8 * 4 + i;
    pairs.word[i / 2] = pack<T>(c.get(at, here), c.get(at + 1, here));
  }
  return pairs;
}

// By a warp: its 16 rows of c, kColumns of them from `column` on, rounded, as rows of the tile whose first element is
// `first`, which have kColumns elements: under a swizzle of its rows, or as they are where no more than two of eight
// begin in the same banks.
template <class T, int kColumns, int kWidth>
TX_FN void store_rows(const Shared<T>& tile, int first, const Accumulator<64, kWidth>& c, int column,
                      Here here = Here::now()) {
  constexpr int kBytes = kColumns * static_cast<int>(sizeof(T)), kChunk = 16 / static_cast<int>(sizeof(T));
  constexpr bool kSwizzled = kBytes == 32 || kBytes == 64 || kBytes == 128;
  static_assert((kSwizzled || kBytes % 64 != 0) && sizeof(T) == 2, "rows of 32, 64, 128 or no multiple of 64 bytes");
  const int row = lane() % 16;
  TX_UNROLL
  for (int j = 0; j < kColumns / 16; ++j) {
    const Fragment<T, 8> pairs = rounded<T, 8>(c, column + 16 * j, here);
    const int mixed = kSwizzled ? row * kBytes / 128 % (kBytes / 16) : 0, chunk = (2 * j + lane() / 16) ^ mixed;
    store_matrices(tile, first + row * kColumns + chunk * kChunk, pairs, here);
  }
  if constexpr (kColumns % 16 != 0) {
    const Fragment<T, 4> pairs = rounded<T, 4>(c, column + kColumns - 8, here);
    store_matrices(tile, first + row * kColumns + kColumns - 8, pairs, here);
  }
}

// The same with rows and columns exchanged: its columns of c are rows of the tile, of kRow elements under a swizzle of
// 128 bytes, of which it writes 16 from `place` on.
template <class T, int kColumns, int kWidth>
TX_FN void store_columns(const Shared<T>& tile, int first, int place, const Accumulator<64, kWidth>& c, int column,
                         Here here = Here::now()) {
  constexpr int kRow = 128 / static_cast<int>(sizeof(T)), kChunk = 16 / static_cast<int>(sizeof(T));
  static_assert(kColumns % 16 == 0 && sizeof(T) == 2, "16 columns at a time, of 16 bits");
  const int row = lane() % 8 + lane() / 16 * 8, chunk = (place / kChunk + lane() / 8 % 2) ^ row % 8;
  TX_UNROLL
  for (int j = 0; j < kColumns / 16; ++j) {
    const Fragment<T, 8> pairs = rounded<T, 8>(c, column + 16 * j, here);
    store_matrices<true>(tile, first + (16 * j + row) * kRow + chunk * kChunk, pairs, here);
  }
}

// Of 32 bits by rows, two neighbours at a time, as no instruction moves matrices of such.
template <int kColumns, class T, int kWidth>
TX_FN void store_pairs(const Shared<T>& tile, int first, const Accumulator<64, kWidth, T>& c, int column,
                       Here here = Here::now()) {
  static_assert(kColumns * sizeof(T) == 128, "rows of 128 bytes");
  TX_UNROLL
  for (int j = 0; j < kColumns / 8; ++j) {
    TX_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = lane() / 4 + 8 * half, at = (column / 8 + j) * 4 + 2 * half, place = 2 * (lane() % 4);
      Vector<T, 2> pair;
      pair.set(0, c.get(at, here));
      pair.set(1, c.get(at + 1, here));
      store(tile, first + row * kColumns + ((2 * j + place / 4) ^ row % 8) * 4 + place % 4, pair, here);
    }
  }
}

}  // namespace tx
