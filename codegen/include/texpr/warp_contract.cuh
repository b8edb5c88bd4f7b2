#line 2 "/texpr/include/texpr/warp_contract.cuh"
// Products of tiles by single warps: tiles in shared memory, the sums of kRows x kColumns in a warp's registers. The
// operands of the next 16 products are loaded while those at hand are multiplied. One call is one operator of the
// program, and over at once; barriers order it.
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

// A tile as warps read it: kMajor kK, tile[m or n][k], rows of kWidth elements, 64 or 128 bytes; kOuter, panels of
// tile[k][m or n], kRows rows of kWidth elements each. The number of a 16-byte chunk is XORed with bits 7 and up of the
// address, so that the eight rows of a matrix lie in different banks.
template <class T, Major kMajor, int kRows, int kWidth>
class WarpTile {
  static_assert(sizeof(T) == 2, "elements of 16 bits");
  static_assert(kWidth == 32 || kWidth == 64, "rows of 64 or 128 bytes");

 public:
  using Element = T;
  static constexpr bool kDeep = kMajor == Major::kK;

  TX_FN explicit WarpTile(const Shared<T>& tile) : tile_(tile) {}

  // Where this lane finds its row of four matrices: those of 16 rows (of m or n) and 16 of k from a corner on, which is
  // at whole multiples of 16. kAcross: the second matrix lies along k, else along m or n.
  template <bool kAcross>
  TX_FN int lane_at(int row, int column) const {
    const int inner = lane() % 8, second = lane() / 8 % 2 * 8, third = lane() / 16 * 8;
    const int outer = kAcross ? third : second, deep = kAcross ? second : third;
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
  TX_FN void load(Fragment<T, 8>& f, int at, Here here) const { load_matrices<!kDeep>(f, tile_, at, here); }

 private:
  static constexpr int kBits = kWidth == 64 ? 3 : 2;
  static TX_FN int mixed(int at) { return swizzled<kBits, 3, 3>(at); }

  Shared<T> tile_;
};

// The operands of 16 products: kCount blocks of 16 rows of a, or of 16 columns of b.
template <class T, int kCount>
struct WarpOperands {
  Fragment<T, 8> block[kCount];

  template <int kFrom = 0, class Tile>
  TX_FN void load(const Tile& tile, int at, int deep, Here here) {
    if constexpr (kFrom < kCount) {
      tile.load(block[kFrom], tile.template behind<16 * kFrom>(at, deep), here);
      load<kFrom + 1>(tile, at, deep, here);
    }
  }
};

// c = a * b, or c += a * b where `accumulate`, over kDepth of k: a and b from these corners on, of which rows are those
// of the tile as it lies.
template <int kDepth, int kRows, int kColumns, class C, class TileA, class TileB>
TX_FN void contract(WarpSums<kRows, kColumns, C>& c, const TileA& a, int row_a, int column_a, const TileB& b, int row_b,
                    int column_b, bool accumulate, Here here = Here::now()) {
  using T = typename TileA::Element;
  static_assert(kDepth % 16 == 0, "products are 16 deep");
  const int at_a = a.template lane_at<false>(row_a, column_a), at_b = b.template lane_at<true>(row_b, column_b);
  WarpOperands<T, kRows / 16> left[2];
  WarpOperands<T, kColumns / 16> right[2];
  if (!accumulate) c.fill(C{}, here);
  left[0].load(a, at_a, 0, here);
  right[0].load(b, at_b, 0, here);
  TX_UNROLL
  for (int k = 0; k < kDepth / 16; ++k) {
    if (k + 1 < kDepth / 16) {
      left[(k + 1) % 2].load(a, at_a, 16 * (k + 1), here);
      right[(k + 1) % 2].load(b, at_b, 16 * (k + 1), here);
    }
    TX_UNROLL
    for (int i = 0; i < kRows / 16; ++i) {
      TX_UNROLL
      for (int j = 0; j < kColumns / 8; ++j) {
        const int column = i % 2 ? kColumns / 8 - 1 - j : j;  // there and back: an operand is used twice in a row
        OperandA<T> one;
        OperandB<T> other;
        for (int w = 0; w < 4; ++w) one.word[w] = left[k % 2].block[i].word[w];
        for (int w = 0; w < 2; ++w) other.word[w] = right[k % 2].block[column / 2].word[column % 2 * 2 + w];
        mma(c, one, other, i * (kColumns / 8) + column, here);
      }
    }
  }
}

// 16 of the rows of c, kWidth columns of them from `column` on, rounded, as rows of the tile whose first element is
// `first`, under a swizzle of its rows, which have kWidth elements.
template <class T, int kWidth, int kRows, int kColumns, class C>
TX_FN void store_pairs(const Shared<T>& tile, int first, const WarpSums<kRows, kColumns, C>& c, int row, int column,
                       Here here = Here::now()) {
  static_assert(kWidth * sizeof(T) == 64 || kWidth * sizeof(T) == 128, "rows of 64 or 128 bytes");
  constexpr int kBits = kWidth * sizeof(T) == 64 ? 2 : 3, kChunkBits = sizeof(T) == 2 ? 3 : 2;  // 16 bytes
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
