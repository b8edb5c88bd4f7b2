#line 2 "/texpr/include/texpr/mma.cuh"
// Products of one warp on tensor cores, and the loads and stores of their operands in shared memory: all 32 lanes run
// them together. Nothing here orders memory.
#pragma once
#include "texpr/fragment.cuh"
#if defined(TX_HOST)
#include "texpr/host/mma.hpp"
#else

namespace tx {

#define TX_MMA(form, held)                                                                                   \
  asm volatile("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"      \
               : held(d[0]), held(d[1]), held(d[2]), held(d[3])                                                 \
               : "r"(bits_of(a.word[0])), "r"(bits_of(a.word[1])), "r"(bits_of(a.word[2])), "r"(bits_of(a.word[3])), \
                 "r"(bits_of(b.word[0])), "r"(bits_of(b.word[1])))

// A block of c += a * b, 32 bytes deep: of 16 rows and 8 columns, of those that a fragment has one after another; sm_80,
// of f8 sm_89. f32 sums are of exact products, of f32 of what tf32 has of it, and of f8 keep at least 14 bits; i32 sums
// wrap; f64 sums take one product after the other, in the order of k, and are rounded once for each.
template <class C, int kCount, class T, class U, int kOn = kArch>
TX_FN void mma(Fragment<C, kCount>& c, const OperandA<T>& a, const OperandB<U>& b, int block = 0,
               Here = Here::now()) {
  static_assert(same<C, SumOf<T>> || (same<C, f16> && same<T, f16>), "f16 accumulators are for f16 operands");
  static_assert(may_multiply<T, U>, "factors are of one type, or of both kinds of f8");
  static_assert(!is_f8<T> || kOn >= 890, "products of f8: sm_89 or newer is needed");
  if constexpr (same<C, f16>) {
    u32* const d = c.word + 2 * block;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[0]), "r"(b.word[1]));
  } else {
    C* const d = c.word + 4 * block;
    if constexpr (same<T, f64> && kArch >= 900) {
      asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                   : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                   : "d"(a.word[0]), "d"(a.word[1]), "d"(b.word[0]));
    } else if constexpr (same<T, f64>) {
      TX_UNROLL
      for (int half = 0; half < 2; ++half) {
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+d"(d[2 * half]), "+d"(d[2 * half + 1])
                     : "d"(a.word[half]), "d"(b.word[0]));
      }
    } else if constexpr (same<T, f16>) {
      TX_MMA("m16n8k16.row.col.f32.f16.f16.f32", "+f");
    } else if constexpr (same<T, bf16>) {
      TX_MMA("m16n8k16.row.col.f32.bf16.bf16.f32", "+f");
    } else if constexpr (same<T, f32>) {
      TX_MMA("m16n8k8.row.col.f32.tf32.tf32.f32", "+f");
    } else if constexpr (same<T, i8>) {
      TX_MMA("m16n8k32.row.col.s32.s8.s8.s32", "+r");
    } else if constexpr (is_f8<T> && kOn < 890) {
    } else if constexpr (same<T, f8e4m3> && same<U, f8e4m3>) {
      TX_MMA("m16n8k32.row.col.f32.e4m3.e4m3.f32", "+f");
    } else if constexpr (same<T, f8e4m3>) {
      TX_MMA("m16n8k32.row.col.f32.e4m3.e5m2.f32", "+f");
    } else if constexpr (same<T, f8e5m2> && same<U, f8e4m3>) {
      TX_MMA("m16n8k32.row.col.f32.e5m2.e4m3.f32", "+f");
    } else if constexpr (same<T, f8e5m2>) {
      TX_MMA("m16n8k32.row.col.f32.e5m2.e5m2.f32", "+f");
    } else {
      static_assert(same<T, u8>, "operands are f16, bf16, f32, f64, f8, i8 or u8");
      TX_MMA("m16n8k32.row.col.s32.u8.u8.s32", "+r");
    }
  }
}
#undef TX_MMA

#define TX_LOAD_MATRICES(form)                                                              \
  if constexpr (Words::kWords == 4) {                                                       \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" form ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])               \
                 : "r"(from)                                                                \
                 : "memory");                                                               \
  } else if constexpr (Words::kWords == 2) {                                                \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2" form ".shared.b16 {%0, %1}, [%2];"         \
                 : "=r"(word[0]), "=r"(word[1])                                             \
                 : "r"(from)                                                                \
                 : "memory");                                                               \
  } else {                                                                                  \
    asm volatile("ldmatrix.sync.aligned.m8n8.x1" form ".shared.b16 {%0}, [%1];"             \
                 : "=r"(word[0])                                                            \
                 : "r"(from)                                                                \
                 : "memory");                                                               \
  }

// Matrices of 8 x 8 elements of 16 bits: two elements of the fragment from each of its one, two or four matrices.
// `index` is where row (lane % 8) of matrix (lane / 8) begins, at a multiple of 16 bytes; lanes of no matrix give any.
// kTransposed: the fragment holds the matrices with rows and columns exchanged. Straight rows may be of other elements:
// 16 bytes of them, a word of the fragment from each 4.
template <bool kTransposed = false, class T, int kCount>
TX_FN void load_matrices(Fragment<T, kCount>& f, const Shared<T>& tile, int index, Here = Here::now()) {
  using Words = Fragment<T, kCount>;
  static_assert(sizeof(T) == 2 || !kTransposed, "elements of 16 bits are exchanged");
  static_assert(Words::kWords == 1 || Words::kWords == 2 || Words::kWords == 4, "1, 2 or 4 matrices");
  const u32 from = static_cast<u32>(__cvta_generic_to_shared(tile.address(index)));
  u32 word[Words::kWords];
  if constexpr (kTransposed) {
    TX_LOAD_MATRICES(".trans")
  } else {
    TX_LOAD_MATRICES("")
  }
  TX_UNROLL
  for (int i = 0; i < Words::kWords; ++i) {
    if constexpr (same<T, f32>) {
      f.word[i] = __uint_as_float(word[i]);
    } else {
      f.word[i] = word[i];
    }
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
