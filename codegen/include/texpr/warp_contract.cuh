#line 2 "/texpr/include/texpr/warp_contract.cuh"
// Products of tiles by single warps: operands come from tiles in shared memory to a warp's registers, where its sums of
// kRows x kColumns are too. One call is one operator of the program, and over at once.
#pragma once
#include "texpr/descriptor.cuh"
#include "texpr/mma.cuh"
#include "texpr/vector.cuh"

namespace tx {

// Blocks of 16 rows and 8 columns, row by row of blocks, each as one product leaves it.
template <int kRows, int kColumns, class C = f32>
struct WarpSums : Fragment<C, kRows * kColumns / 32> {
  static_assert(kRows % 16 == 0 && kColumns % 16 == 0, "a warp's sums are blocks of 16 rows, and pairs of 8 columns");
};

// A tile as warps read it: kMajor kK, tile[m or n][k], rows of kWidth elements, 64 or 128 bytes; kOuter, of elements of
// 16 bits or more, panels of tile[k][m or n], kRows rows of kWidth elements each. The number of a 16-byte chunk is XORed
// with bits 7 and up of the address, so that the eight rows of a matrix lie in different banks; of f64, whose elements
// lanes read one by one, that of a 32-byte chunk, so that those of 16 lanes do, 4 beside one another in 4 rows.
template <class T, Major kMajor, int kRows, int kWidth>
class WarpTile {
  static constexpr int kBytes = kWidth * static_cast<int>(sizeof(T)), kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr bool kSingle = same<T, f64> || (same<T, f32> && kMajor == Major::kOuter);
  static_assert(sizeof(T) == 2 || kSingle || kMajor == Major::kK, "operands of 8 bits are contiguous along k");
  static_assert(kBytes == 64 || kBytes == 128, "rows of 64 or 128 bytes");

 public:
  using Element = T;
  static constexpr bool kDeep = kMajor == Major::kK;

  TX_FN explicit WarpTile(const Shared<T>& tile) : tile_(tile) {}

  // Where this lane finds its row of four matrices: those of 16 rows (of m or n) and two chunks of k from a corner on,
  // which is at whole multiples of these; of f64 its first element of 8 rows. kAcross: the second matrix lies along k,
  // else along m or n.
  template <bool kAcross>
  TX_FN int lane_at(int row, int column) const {
    if constexpr (kSingle) {
      const int outer = lane() / 4, deep = lane() % 4;
      if constexpr (kDeep) return mixed((row + outer) * kWidth + column + deep);
      return mixed((column / kWidth * kRows + row + deep) * kWidth + column % kWidth + outer);
    }
    const int inner = lane() % 8, second = lane() / 8 % 2, third = lane() / 16;
    const int outer = (kAcross ? third : second) * 8, deep = (kAcross ? second : third) * kChunk;
    if constexpr (kDeep) {
      return mixed((row + outer + inner) * kWidth + column + deep);
    } else {
      return mixed((column / kWidth * kRows + row + deep + inner) * kWidth + column % kWidth + outer);
    }
  }
  // The same for matrices so many m or n and so many k behind those of a lane.
  template <int kOuter>
  TX_FN int behind(int at, int deep) const {
    static_assert(kOuter % 16 == 0, "whole operands");
    if constexpr (kDeep) {
      return (at ^ deep) + kOuter * kWidth;
    } else {
      return (at ^ kOuter % kWidth) + (kOuter / kWidth * kRows + deep) * kWidth;
    }
  }
  TX_FN void load(Fragment<T, kChunk>& f, int at, Here here) const {
    if constexpr (kSingle) {
      TX_UNROLL
      for (int i = 0; i < kChunk; ++i) {  // 8 rows of m or n behind; of f32 4 of k
        const int below = i % 2 == 0 ? at : kDeep ? at + 8 * kWidth : at ^ 8;
        f.set(i, tx::load<1>(tile_, i < 2 ? below : below ^ kFourOfK, here).get(0), here);
      }
    } else {
      load_matrices<!kDeep>(f, tile_, at, here);
    }
  }

 private:
  // Bits of the address: 4 rows of k from a multiple of 8 on set one, and what is XORed with it.
  static constexpr int kFourOfK = 4 * kWidth | 4 * kChunk;
  static constexpr int kWider = same<T, f64>, kBits = (kBytes == 128 ? 3 : 2) - kWider, kShift = 3 - kWider;
  static constexpr int kBase = kChunk == 8 ? 3 : kChunk == 16 ? 4 : 2;
  static TX_FN int mixed(int at) { return swizzled<kBits, kBase, kShift>(at); }

  Shared<T> tile_;
};

// The operands of 32 bytes of k, kSlots of them: kCount blocks of 16 rows of a, or of 16 columns of b.
template <class T, int kCount, int kSlots>
struct WarpOperands {
  Fragment<T, 16 / sizeof(T)> block[kSlots][kCount];

  template <int kFrom = 0, class Tile>
  TX_FN void load(int slot, const Tile& tile, int at, int deep, Here here) {
    if constexpr (kFrom < kCount) {
      tile.load(block[slot][kFrom], tile.template behind<16 * kFrom>(at, deep), here);
      load<kFrom + 1>(slot, tile, at, deep, here);
    }
  }
};

// Loads the operands from a corner of a tile on, of which rows are those of the tile as it lies, and from `deep` of its
// k on, whole operands.
template <class T, int kCount, int kSlots, class Tile>
TX_FN void load_a(WarpOperands<T, kCount, kSlots>& held, int slot, const Tile& tile, int row, int column, int deep,
                  Here here = Here::now()) {
  held.load(slot, tile, tile.template lane_at<false>(row, column), deep, here);
}
template <class T, int kCount, int kSlots, class Tile>
TX_FN void load_b(WarpOperands<T, kCount, kSlots>& held, int slot, const Tile& tile, int row, int column, int deep,
                  Here here = Here::now()) {
  held.load(slot, tile, tile.template lane_at<true>(row, column), deep, here);
}

// c += a * b, the products of each sum of 32 bytes of k.
template <int kRows, int kColumns, class C, class T, class U, int kSlotsA, int kSlotsB>
TX_FN void contract(WarpSums<kRows, kColumns, C>& c, const WarpOperands<T, kRows / 16, kSlotsA>& a, int slot_a,
                    const WarpOperands<U, kColumns / 16, kSlotsB>& b, int slot_b, Here here = Here::now()) {
  TX_UNROLL
  for (int i = 0; i < kRows / 16; ++i) {
    OperandA<T> left;
    for (int w = 0; w < OperandA<T>::kWords; ++w) left.word[w] = a.block[slot_a][i].word[w];
    TX_UNROLL
    for (int j = 0; j < kColumns / 8; ++j) {
      const int column = i % 2 ? kColumns / 8 - 1 - j : j;  // there and back: an operand is used twice in a row
      OperandB<U> right;
      constexpr int kWords = OperandB<U>::kWords;
      for (int w = 0; w < kWords; ++w) right.word[w] = b.block[slot_b][column / 2].word[column % 2 * kWords + w];
      mma(c, left, right, i * (kColumns / 8) + column, here);
    }
  }
}

// 16 of the rows of c, kWidth columns of them from `column` on, rounded, as rows of the tile whose first element is
// `first`, under a swizzle of its rows, which have kWidth elements.
template <class T, int kWidth, int kRows, int kColumns, class C>
TX_FN void store_pairs(const Shared<T>& tile, int first, const WarpSums<kRows, kColumns, C>& c, int row, int column,
                       Here here = Here::now()) {
  static_assert(kWidth * sizeof(T) == 64 || kWidth * sizeof(T) == 128, "rows of 64 or 128 bytes");
  constexpr int kBits = kWidth * sizeof(T) == 64 ? 2 : 3, kChunkBits = sizeof(T) == 2 ? 3 : sizeof(T) == 4 ? 2 : 1;  // 16 bytes
  TX_UNROLL
  for (int j = 0; j < kWidth / 8; ++j) {
    TX_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int at = (row / 16 * (kColumns / 8) + column / 8 + j) * 4 + 2 * half;
      const int own = lane() / 4 + 8 * half, place = 8 * j + 2 * (lane() % 4);
      Vector<T, 2> pair;
      if constexpr (sizeof(T) == 2) {
        pair.packed.word[0] = pack<T>(c.get(at, here), c.get(at + 1, here));
      } else {
        pair.set(0, c.get(at, here));
        pair.set(1, c.get(at + 1, here));
      }
      store(tile, first + swizzled<kBits, kChunkBits, 3>(own * kWidth + place), pair, here);
    }
  }
}

}  // namespace tx
