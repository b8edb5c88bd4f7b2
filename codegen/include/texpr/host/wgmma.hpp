#line 2 "/texpr/include/texpr/host/wgmma.hpp"
// The products of wgmma.cuh on a CPU: computed when their group is waited for, from shared memory as it is then, where
// nobody may write until then. Operands are found through their descriptors, bit by bit as the hardware does.
#pragma once
#include <memory>

#include "texpr/descriptor.cuh"
#include "texpr/fragment.cuh"
#include "texpr/host/collective.hpp"
#include "texpr/host/factor.hpp"
#include "texpr/host/group.hpp"

namespace tx {

namespace host {

// One operand in shared memory: element (outer, k), outer a row of a or a column of b.
template <class T>
struct SharedOperand {
  u64 bits;
  bool outer_contiguous;

  // In bytes. PTX ISA, "Shared memory matrix layout": without a swizzle, matrices of 8 x 16 bytes; else rows of 32, 64
  // or 128 bytes in groups of 8, the 16-byte chunk XORed with bits 7 and up of the address.
  u32 place(int outer, int k) const {
    const u32 begin = static_cast<u32>(bits & 0x3fff) << 4, leading = static_cast<u32>(bits >> 16 & 0x3fff) << 4;
    const u32 stride = static_cast<u32>(bits >> 32 & 0x3fff) << 4;
    const int mode = static_cast<int>(bits >> 62), mixed = mode == 0 ? 0 : 4 - mode;  // 1, 2, 3: 128, 64, 32 bytes
    const int width = (16 << mixed) / static_cast<int>(sizeof(T));                    // elements of a row
    const int row = outer_contiguous ? k : outer, column = outer_contiguous ? outer : k;
    const u32 inside = static_cast<u32>((row % 8 * width + column % width) * static_cast<int>(sizeof(T)));
    const u32 panel = static_cast<u32>(column / width), eight = static_cast<u32>(row / 8);
    const bool exchanged = mode == 0 && outer_contiguous;
    const u32 linear = begin + inside + panel * (exchanged ? stride : leading) + eight * (exchanged ? leading : stride);
    return linear ^ (linear >> 7 & ((1u << mixed) - 1)) << 4;
  }
  FactorOf<T> get(int outer, int k, const Block& block) const {
    T element;
    std::memcpy(&element, block.shared + place(outer, k), sizeof element);
    return factor(element);
  }
  // Notes what a warp's share of a product reads, until its group is waited for.
  void reads(int first, int last, const Actor& warp, const char* name) const {
    for (int outer = first; outer < last; ++outer) {
      for (int k = 0; k < depth_of<T>; ++k) {
        const u32 at = place(outer, k);
        if (at + sizeof(T) > static_cast<u32>(machine.shared_bytes)) {
          refuse(TX_HOST_BOUNDS, warp.site, "wgmma reads %s at byte %u of shared memory, and the launch gives %d", name,
                 at, machine.shared_bytes);
        }
        touch_bytes(machine.shared + at, sizeof(T), Mode::kRead, warp, {name, static_cast<i64>(at), 1});
      }
    }
  }
};

// A product that all threads of a warpgroup have started.
template <class T, class U>
struct Product {
  SharedOperand<T> a;
  SharedOperand<U> b;
  bool a_in_registers, accumulate;
  T held[64][depth_of<T>];  // a, where it comes from registers
};

template <int kColumns, class T, class U>
struct ProductOperands {
  Runner* runner;
  Accumulator<64, kColumns, SumOf<T>>* c;
  const Fragment<T, in_registers<T>>* held;  // null: a is in shared memory
  SharedOperand<T> a;
  SharedOperand<U> b;
  bool accumulate;
};

// The rows of a thread: two of its warp's 16. Integers wrap.
template <int kColumns, class T, class U>
inline void finish_share(const Product<T, U>& product, Accumulator<64, kColumns, SumOf<T>>& c, const Runner& runner) {
  using Sums = Accumulator<64, kColumns, SumOf<T>>;
  constexpr int kDepth = depth_of<T>;
  const int thread = runner.index % 128;
  const Block& block = *runner.block;
  FactorOf<T> left[2][kDepth], right[kDepth];
  [[maybe_unused]] int exponents[2][kDepth], others[kDepth];  // of f8
  for (int half = 0; half < 2; ++half) {
    const int row = Sums::row(2 * half, thread);
    for (int k = 0; k < kDepth; ++k) {
      left[half][k] = product.a_in_registers ? factor(product.held[row][k]) : product.a.get(row, k, block);
      if constexpr (is_f8<T>) exponents[half][k] = exponent_of<T>(left[half][k]);
    }
  }
  for (int i = 0; i < kColumns / 2; ++i) {
    if (i / 2 % 2 != 0) continue;  // its column is that of the element two before
    for (int k = 0; k < kDepth; ++k) {
      right[k] = product.b.get(Sums::column(i, thread), k, block);
      if constexpr (is_f8<U>) others[k] = exponent_of<U>(right[k]);
    }
    for (int half = 0; half < 2; ++half) {
      SumOf<T>& element = c.word[i + 2 * half];
      if constexpr (is_f8<T>) {
        element = aligned_sum(product.accumulate ? element : 0, left[half], exponents[half], right, others);
        continue;
      }
      FactorOf<T> sum = product.accumulate ? static_cast<FactorOf<T>>(element) : 0;
      for (int k = 0; k < kDepth; ++k) sum += left[half][k] * right[k];
      element = static_cast<SumOf<T>>(sum);
    }
  }
  --c.state.on_the_way;
}

// The last thread of the warpgroup has come. Its warps read, each for all its threads, whose groups count alike.
template <int kColumns, class T, class U>
inline void start_product(ProductOperands<kColumns, T, U>* const* all, Site site) {
  const ProductOperands<kColumns, T, U>& first = *all[0];
  auto product = std::make_shared<Product<T, U>>();
  product->a = first.a;
  product->b = first.b;
  product->a_in_registers = first.held != nullptr;
  product->accumulate = first.accumulate;
  for (int thread = 0; thread < 128; ++thread) {
    const ProductOperands<kColumns, T, U>& mine = *all[thread];
    if (mine.a.bits != first.a.bits || mine.b.bits != first.b.bits || mine.accumulate != first.accumulate) {
      refuse(TX_HOST_DIVERGENCE, site, "wgmma of one warpgroup: threads %d and %d give other descriptors",
             first.runner->index, mine.runner->index);
    }
    if constexpr (sizeof(T) > 1) {
      for (int i = 0; i < OperandA<T>::kElements && mine.held != nullptr; ++i) {
        const int row = thread / 32 * 16 + OperandA<T>::row(i, thread % 32);
        product->held[row][OperandA<T>::column(i, thread % 32)] = mine.held->get(i, site);
      }
    }
  }
  for (int thread = 0; thread < 128; ++thread) {
    Runner& runner = *all[thread]->runner;
    Runner& leader = *all[thread / 32 * 32]->runner;
    runner.products.agent = agent_of(leader.products.agent);
    const u32 number = ++runner.products.started;
    if (&runner == &leader) {
      const Actor warp{runner.products.agent, number, &runner, Proxy::kAsync, site};
      const int row = thread / 32 * 16;
      if (!product->a_in_registers) product->a.reads(row, row + 16, warp, "a");
      product->b.reads(0, kColumns, warp, "b");
    }
    Accumulator<64, kColumns, SumOf<T>>* const c = all[thread]->c;
    ++c->state.on_the_way;
    c->state.settled = false;
    runner.products.shares.emplace_back(number, [product, c, &runner] { finish_share(*product, *c, runner); });
  }
}

template <int kColumns, class T, class U>
inline void begin_product(Accumulator<64, kColumns, SumOf<T>>& c, const Fragment<T, in_registers<T>>* held, SharedOperand<T> a,
                          SharedOperand<U> b, bool accumulate, Site site) {
  ProductOperands<kColumns, T, U> mine{&self(site), &c, held, a, b, accumulate};
  c.state.check_fenced(site);
  if constexpr (sizeof(T) > 1) {
    if (held != nullptr) held->state.check_fenced(site);
  }
  gather(128, "wgmma", mine, [site](ProductOperands<kColumns, T, U>* const* all) { start_product(all, site); }, site);
}

}  // namespace host

template <int kColumns, class C>
inline void settle(Accumulator<64, kColumns, C>& c, Here here = Here::now()) {
  if (c.state.on_the_way > 0) c.state.check_settled(here);
  c.state.settled = true;
}

template <int kColumns, class T, class U, Major kMajorA, Major kMajorB>
inline void wgmma(Accumulator<64, kColumns, SumOf<T>>& c, MatrixDescriptor<T, kMajorA> a,
                  MatrixDescriptor<U, kMajorB> b, bool accumulate = true, Here here = Here::now()) {
  static_assert(may_multiply<T, U>, "wgmma: factors are of one type, or of both kinds of f8");
  const Fragment<T, in_registers<T>>* const none = nullptr;
  host::begin_product<kColumns, T, U>(c, none, {a.bits, kMajorA == Major::kOuter}, {b.bits, kMajorB == Major::kOuter},
                                      accumulate, here);
}
template <int kColumns, class T, Major kMajorA, Major kMajorB>
inline void wgmma(Accumulator<64, kColumns>& c, const MatrixDescriptor<T, kMajorA> (&a)[4],
                  const MatrixDescriptor<T, kMajorB> (&b)[4], bool accumulate, Here here = Here::now()) {
  for (int k = 0; k < 4; ++k) wgmma(c, a[k], b[k], k > 0 || accumulate, here);
}
template <int kColumns, class T, Major kMajorB>
inline void wgmma(Accumulator<64, kColumns>& c, const Fragment<T, in_registers<T>>& a, MatrixDescriptor<T, kMajorB> b,
                  bool accumulate = true, Here here = Here::now()) {
  host::begin_product<kColumns, T, T>(c, &a, {0, false}, {b.bits, kMajorB == Major::kOuter}, accumulate, here);
}

}  // namespace tx
