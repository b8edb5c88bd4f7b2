#line 2 "/texpr/include/texpr/host/mma.hpp"
// The instructions of mma.cuh on a CPU. A product is exact in f64 and rounded once, of integers it wraps, of f64 it is
// rounded with every term, of f8 it keeps 14 bits; which element a lane holds is said by the fragments, as on the device.
#pragma once
#include "texpr/fragment.cuh"
#include "texpr/host/collective.hpp"
#include "texpr/host/factor.hpp"

namespace tx {

namespace host {

// Rows of matrices of 8 times 16 bytes: element (row, column) of matrix m that a lane holds as one of a word.
struct MatrixPlace {
  int row, column;
};
TX_ONCE MatrixPlace matrix_place(int lane, int element, int each, bool transposed) {
  const int slow = lane / 4, fast = lane % 4 * each + element;
  return transposed ? MatrixPlace{fast, slow} : MatrixPlace{slow, fast};
}

// What one lane brings to a load or store of matrices.
template <class F, class T>
struct MatrixOperands {
  F* fragment;
  const Shared<T>* tile;
  int index;
  Site site;
};

// All elements of all matrices in the name of the lanes that hold them: `move(fragment, element, place in memory)`.
template <class F, class T, class Move>
inline void each_of_matrices(MatrixOperands<F, T>* const* all, bool transposed, Mode mode, Move move) {
  const int first = machine.current / 32 * 32, count = F::kWords, each = F::kEach;
  for (int row = 0; row < 8 * count; ++row) {
    const MatrixOperands<F, T>& at = *all[row];
    check_alignment(at.tile->address(at.index), 16, at.tile->name(), at.index, at.site);
  }
  for (int lane = 0; lane < 32; ++lane) {
    machine.current = first + lane;
    for (int i = 0; i < F::kElements; ++i) {
      const MatrixPlace place = matrix_place(lane, i % each, each, transposed);
      const MatrixOperands<F, T>& at = *all[8 * (i / each) + place.row];
      move(*all[lane]->fragment, i, at.tile->place(at.index + place.column, mode, all[lane]->site, false));
    }
  }
}

}  // namespace host

template <class C, int kCount, class T, class U>
inline void mma(Fragment<C, kCount>& c, const OperandA<T>& a, const OperandB<U>& b, int block = 0,
                Here here = Here::now()) {
  static_assert(same<C, SumOf<T>> || (same<C, f16> && same<T, f16>), "f16 accumulators are for f16 operands");
  static_assert(may_multiply<T, U>, "factors are of one type, or of both kinds of f8");
  struct Operands {
    Fragment<C, kCount>* c;
    const OperandA<T>* a;
    const OperandB<U>* b;
    int block;
  };
  Operands mine{&c, &a, &b, block};
  const auto perform = [](Operands* const* all) {
    constexpr int kDepth = host::depth_of<T>;
    host::FactorOf<T> left[16][kDepth], right[8][kDepth];
    [[maybe_unused]] int exponents[16][kDepth], others[8][kDepth];  // of f8
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < OperandA<T>::kElements; ++i) {
        left[OperandA<T>::row(i, lane)][OperandA<T>::column(i, lane)] = host::factor(all[lane]->a->get(i));
      }
      for (int i = 0; i < OperandB<U>::kElements; ++i) {
        right[OperandB<U>::column(i, lane)][OperandB<U>::row(i, lane)] = host::factor(all[lane]->b->get(i));
      }
    }
    if constexpr (is_f8<T>) {
      for (int k = 0; k < kDepth; ++k) {
        for (int row = 0; row < 16; ++row) exponents[row][k] = host::exponent_of<T>(left[row][k]);
        for (int column = 0; column < 8; ++column) others[column][k] = host::exponent_of<U>(right[column][k]);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * all[lane]->block + i;
        const int row = Accumulator<16, 8>::row(i, lane), column = Accumulator<16, 8>::column(i, lane);
        const auto &x = left[row], &y = right[column];
        if constexpr (is_f8<T>) {
          const f32 before = all[lane]->c->get(at);
          all[lane]->c->set(at, host::aligned_sum(before, x, exponents[row], y, others[column]));
        } else {
          auto sum = static_cast<host::FactorOf<T>>(cast<SumOf<T>>(all[lane]->c->get(at)));
          for (int k = 0; k < kDepth; ++k) {
            if constexpr (same<T, f64>) {
              sum = std::fma(x[k], y[k], sum);
            } else {
              sum += x[k] * y[k];
            }
          }
          all[lane]->c->set(at, cast<C>(sum));
        }
      }
    }
  };
  host::gather(32, "mma", mine, perform, here);
}

template <bool kTransposed = false, class T, int kCount>
inline void load_matrices(Fragment<T, kCount>& f, const Shared<T>& tile, int index, Here here = Here::now()) {
  static_assert(sizeof(T) == 2 || !kTransposed, "elements of 16 bits are exchanged");
  using Operands = host::MatrixOperands<Fragment<T, kCount>, T>;
  Operands mine{&f, &tile, index, here};
  const auto perform = [](Operands* const* all) {
    host::each_of_matrices(all, kTransposed, host::Mode::kRead,
                           [](Fragment<T, kCount>& to, int i, const T* place) { to.set(i, *place); });
  };
  host::gather(32, "load_matrices", mine, perform, here);
}

template <bool kTransposed = false, class T, int kCount>
inline void store_matrices(const Shared<T>& tile, int index, const Fragment<T, kCount>& f, Here here = Here::now()) {
  static_assert(sizeof(T) == 2 && (kCount == 2 || kCount == 4 || kCount == 8), "1, 2 or 4 matrices of 16-bit elements");
  using Operands = host::MatrixOperands<const Fragment<T, kCount>, T>;
  Operands mine{&f, &tile, index, here};
  const auto perform = [](Operands* const* all) {
    host::each_of_matrices(all, kTransposed, host::Mode::kWrite,
                           [](const Fragment<T, kCount>& from, int i, T* place) { *place = from.get(i); });
  };
  host::gather(32, "store_matrices", mine, perform, here);
}

}  // namespace tx
