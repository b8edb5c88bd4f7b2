#line 2 "/texpr/include/texpr/mma.cuh"
// Products of one warp on tensor cores, and the loads and stores of their operands in shared memory: all 32 lanes run
// them together. Nothing here orders memory.
#pragma once
#include "texpr/fragment.cuh"
#if defined(TX_HOST)
#include "texpr/host/mma.hpp"
#else

namespace tx {

#define TX_MMA(type)                                                                  \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
               : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]))

// A block of c += a * b: of 16 rows and 8 columns, of those that a fragment has one after another; mma.m16n8k16, sm_80.
// f32 sums are of exact products.
template <class C, int kCount, class T>
TX_FN void mma(Fragment<C, kCount>& c, const OperandA<T>& a, const OperandB<T>& b, int block = 0,
               Here = Here::now()) {
  static_assert(same<C, f32> || same<T, f16>, "f16 accumulators are for f16 operands");
  if constexpr (same<C, f16>) {
    u32* const d = c.word + 2 * block;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]));
  } else {
    f32* const d = c.word + 4 * block;
    if constexpr (same<T, f16>) {
      TX_MMA("f16");
    } else {
      TX_MMA("bf16");
    }
  }
}
#undef TX_MMA

#define TX_LOAD_MATRICES(form)                                                              \
  if constexpr (kCount == 8) {                                                              \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" form ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(f.word[0]), "=r"(f.word[1]), "=r"(f.word[2]), "=r"(f.word[3])       \
                 : "r"(from)                                                                \
                 : "memory");                                                               \
  } else if constexpr (kCount == 4) {                                                       \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" form ".shared.b16 {%0, %1}, [%2];"         \
                 : "=r"(f.word[0]), "=r"(f.word[1])                                         \
                 : "r"(from)                                                                \
                 : "memory");                                                               \
  } else {                                                                                  \
    asm volatile("ldmatrix.sync.aligned.m8n8.x1" form ".shared.b16 {%0}, [%1];"             \
                 : "=r"(f.word[0])                                                          \
                 : "r"(from)                                                                \
                 : "memory");                                                               \
  }

// Matrices of 8 x 8 elements of 16 bits: two elements of the fragment from each of its one, two or four matrices.
// `index` is where row (lane % 8) of matrix (lane / 8) begins, at a multiple of 16 bytes; lanes of no matrix give any.
// kTransposed: the fragment holds the matrices with rows and columns exchanged.
template <bool kTransposed = false, class T, int kCount>
TX_FN void load_matrices(Fragment<T, kCount>& f, const Shared<T>& tile, int index, Here = Here::now()) {
  static_assert(sizeof(T) == 2 && (kCount == 2 || kCount == 4 || kCount == 8), "1, 2 or 4 matrices of 16-bit elements");
  const u32 from = static_cast<u32>(__cvta_generic_to_shared(tile.address(index)));
  if constexpr (kTransposed) {
    TX_LOAD_MATRICES(".trans")
  } else {
    TX_LOAD_MATRICES("")
  }
}
#undef TX_LOAD_MATRICES

#define TX_STORE_MATRICES(form)                                                                                        \
  if constexpr (kCount == 8) {                                                                                         \
    asm volatile("stmatrix.sync.aligned.m8n8.x4" form ".shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(f.word[0]), \
                 "r"(f.word[1]), "r"(f.word[2]), "r"(f.word[3])                                                        \
                 : "memory");                                                                                          \
  } else if constexpr (kCount == 4) {                                                                                  \
    asm volatile("stmatrix.sync.aligned.m8n8.x2" form ".shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(f.word[0]),         \
                 "r"(f.word[1])                                                                                        \
                 : "memory");                                                                                          \
  } else {                                                                                                             \
    asm volatile("stmatrix.sync.aligned.m8n8.x1" form ".shared.b16 [%0], {%1};" ::"r"(to), "r"(f.word[0]) : "memory"); \
  }

// The same, stored; sm_90.
template <bool kTransposed = false, class T, int kCount, int kOn = kArch>
TX_FN void store_matrices(const Shared<T>& tile, int index, const Fragment<T, kCount>& f, Here = Here::now()) {
  static_assert(kOn >= 900, "stmatrix: sm_90 or newer is needed; store the elements one by one");
  static_assert(sizeof(T) == 2 && (kCount == 2 || kCount == 4 || kCount == 8), "1, 2 or 4 matrices of 16-bit elements");
  const u32 to = static_cast<u32>(__cvta_generic_to_shared(tile.address(index)));
  if constexpr (kOn < 900) {
  } else if constexpr (kTransposed) {
    TX_STORE_MATRICES(".trans")
  } else {
    TX_STORE_MATRICES("")
  }
}
#undef TX_STORE_MATRICES

}  // namespace tx
#endif
