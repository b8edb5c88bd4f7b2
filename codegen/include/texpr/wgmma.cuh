#line 2 "/texpr/include/texpr/wgmma.cuh"
// Products of a warpgroup on tensor cores: c += a * b, 64 rows, 8 to 256 columns, 32 bytes deep; a from shared memory
// or, of 16 and of 32 bits, from registers, b from shared memory. Elements of f32 are cut to tf32: their last 13 bits
// count as 0. Elements of 8 and of 32 bits lie along k in shared memory. Sums are f32, of integers i32, which wrap. Products run on their own
// after they are started; group.cuh orders them:
//
//   fence_async_shared(); sync_block(0);                 what threads stored is seen
//   wgmma_fence();                                       the registers of c are as they should be
//   for (k …) wgmma(c, a.at(0, 16 * k), b.at(0, 16 * k), k > 0);
//   wgmma_close(); wgmma_wait<0>(); settle(c);           now c may be read
//
// The fence stands before the products of every group, also in a loop that nobody else touches c in: without it the
// compiler runs products one after another (C7514).
#pragma once
#include "texpr/descriptor.cuh"
#include "texpr/fragment.cuh"
#include "texpr/group.cuh"
#if defined(TX_HOST)
#include "texpr/host/wgmma.hpp"
#else

namespace tx {

// The accumulators belong to this thread again: after wgmma_wait, before they are read.
template <int kColumns, class C>
TX_FN void settle(Accumulator<64, kColumns, C>& c, Here = Here::now()) {
  TX_UNROLL
  for (int i = 0; i < kColumns / 2; ++i) {
    if constexpr (same<C, i32>) {
      asm volatile("" : "+r"(c.word[i])::"memory");
    } else {
      asm volatile("" : "+f"(c.word[i])::"memory");
    }
  }
}

// The text of the instruction for each number of columns: the registers of c, then the others by their places.
template <int kColumns>
struct Wgmma;

#define TX_C_4 "%0, %1, %2, %3"
#define TX_C_8 TX_C_4 ", %4, %5, %6, %7"
#define TX_C_12 TX_C_8 ", %8, %9, %10, %11"
#define TX_C_16 TX_C_12 ", %12, %13, %14, %15"
#define TX_C_20 TX_C_16 ", %16, %17, %18, %19"
#define TX_C_24 TX_C_20 ", %20, %21, %22, %23"
#define TX_C_28 TX_C_24 ", %24, %25, %26, %27"
#define TX_C_32 TX_C_28 ", %28, %29, %30, %31"
#define TX_C_36 TX_C_32 ", %32, %33, %34, %35"
#define TX_C_40 TX_C_36 ", %36, %37, %38, %39"
#define TX_C_44 TX_C_40 ", %40, %41, %42, %43"
#define TX_C_48 TX_C_44 ", %44, %45, %46, %47"
#define TX_C_52 TX_C_48 ", %48, %49, %50, %51"
#define TX_C_56 TX_C_52 ", %52, %53, %54, %55"
#define TX_C_60 TX_C_56 ", %56, %57, %58, %59"
#define TX_C_64 TX_C_60 ", %60, %61, %62, %63"
#define TX_C_68 TX_C_64 ", %64, %65, %66, %67"
#define TX_C_72 TX_C_68 ", %68, %69, %70, %71"
#define TX_C_76 TX_C_72 ", %72, %73, %74, %75"
#define TX_C_80 TX_C_76 ", %76, %77, %78, %79"
#define TX_C_84 TX_C_80 ", %80, %81, %82, %83"
#define TX_C_88 TX_C_84 ", %84, %85, %86, %87"
#define TX_C_92 TX_C_88 ", %88, %89, %90, %91"
#define TX_C_96 TX_C_92 ", %92, %93, %94, %95"
#define TX_C_100 TX_C_96 ", %96, %97, %98, %99"
#define TX_C_104 TX_C_100 ", %100, %101, %102, %103"
#define TX_C_108 TX_C_104 ", %104, %105, %106, %107"
#define TX_C_112 TX_C_108 ", %108, %109, %110, %111"
#define TX_C_116 TX_C_112 ", %112, %113, %114, %115"
#define TX_C_120 TX_C_116 ", %116, %117, %118, %119"
#define TX_C_124 TX_C_120 ", %120, %121, %122, %123"
#define TX_C_128 TX_C_124 ", %124, %125, %126, %127"
#define TX_D4(held, i) held(d[i]), held(d[i + 1]), held(d[i + 2]), held(d[i + 3])
#define TX_D_4(held) TX_D4(held, 0)
#define TX_D_8(held) TX_D_4(held), TX_D4(held, 4)
#define TX_D_12(held) TX_D_8(held), TX_D4(held, 8)
#define TX_D_16(held) TX_D_12(held), TX_D4(held, 12)
#define TX_D_20(held) TX_D_16(held), TX_D4(held, 16)
#define TX_D_24(held) TX_D_20(held), TX_D4(held, 20)
#define TX_D_28(held) TX_D_24(held), TX_D4(held, 24)
#define TX_D_32(held) TX_D_28(held), TX_D4(held, 28)
#define TX_D_36(held) TX_D_32(held), TX_D4(held, 32)
#define TX_D_40(held) TX_D_36(held), TX_D4(held, 36)
#define TX_D_44(held) TX_D_40(held), TX_D4(held, 40)
#define TX_D_48(held) TX_D_44(held), TX_D4(held, 44)
#define TX_D_52(held) TX_D_48(held), TX_D4(held, 48)
#define TX_D_56(held) TX_D_52(held), TX_D4(held, 52)
#define TX_D_60(held) TX_D_56(held), TX_D4(held, 56)
#define TX_D_64(held) TX_D_60(held), TX_D4(held, 60)
#define TX_D_68(held) TX_D_64(held), TX_D4(held, 64)
#define TX_D_72(held) TX_D_68(held), TX_D4(held, 68)
#define TX_D_76(held) TX_D_72(held), TX_D4(held, 72)
#define TX_D_80(held) TX_D_76(held), TX_D4(held, 76)
#define TX_D_84(held) TX_D_80(held), TX_D4(held, 80)
#define TX_D_88(held) TX_D_84(held), TX_D4(held, 84)
#define TX_D_92(held) TX_D_88(held), TX_D4(held, 88)
#define TX_D_96(held) TX_D_92(held), TX_D4(held, 92)
#define TX_D_100(held) TX_D_96(held), TX_D4(held, 96)
#define TX_D_104(held) TX_D_100(held), TX_D4(held, 100)
#define TX_D_108(held) TX_D_104(held), TX_D4(held, 104)
#define TX_D_112(held) TX_D_108(held), TX_D4(held, 108)
#define TX_D_116(held) TX_D_112(held), TX_D4(held, 112)
#define TX_D_120(held) TX_D_116(held), TX_D4(held, 116)
#define TX_D_124(held) TX_D_120(held), TX_D4(held, 120)
#define TX_D_128(held) TX_D_124(held), TX_D4(held, 124)

// A text that says of which numbers of columns it has products spares a compiler the others.
#if !defined(TX_COLUMNS)
#define TX_COLUMNS(n) 1
#endif

#define TX_WGMMA_SHARED(type, n, r, p0, p1, p2, p3, p4)                                                              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
               "." type " {" TX_C_##r "}, %" #p0 ", %" #p1 ", p, 1, 1, %" #p3 ", %" #p4 ";\n}"                       \
               : TX_D_##r("+f")                                                                                      \
               : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposedA), "n"(kTransposedB)                               \
               : "memory")
// Four in a row are one statement, which takes compilers less than four with all of these registers.
#define TX_WGMMA_NEXT(type, n, r, a, b, p, ta, tb)                                                             \
  "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" TX_C_##r "}, %" #a ", %" #b ", " p ", 1, 1, %" \
  #ta ", %" #tb ";\n"
#define TX_WGMMA_FOUR(type, n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10)                                 \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p8 ", 0;\n" TX_WGMMA_NEXT(type, n, r, p0, p1, "p", p9, p10) \
                   TX_WGMMA_NEXT(type, n, r, p2, p3, "1", p9, p10)                                             \
                       TX_WGMMA_NEXT(type, n, r, p4, p5, "1", p9, p10)                                         \
                           TX_WGMMA_NEXT(type, n, r, p6, p7, "1", p9, p10) "}"                                 \
               : TX_D_##r("+f")                                                                                \
               : "l"(a[0].bits), "l"(b[0].bits), "l"(a[1].bits), "l"(b[1].bits), "l"(a[2].bits), "l"(b[2].bits), \
                 "l"(a[3].bits), "l"(b[3].bits), "r"(accumulate), "n"(kTransposedA), "n"(kTransposedB)         \
               : "memory")
#define TX_WGMMA_REGISTERS(type, n, r, p0, p1, p2, p3, p4, p5, p6)                                                   \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type \
               "." type " {" TX_C_##r "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", p, 1, 1, %" #p6 ";\n}" \
               : TX_D_##r("+f")                                                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransposedB)              \
               : "memory")
#define TX_WGMMA_REGISTERS_ALONG_K(form, n, r, p0, p1, p2, p3, p4, p5)                                          \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n form      \
               " {" TX_C_##r "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", p, 1, 1;\n}"               \
               : TX_D_##r("+f")                                                                                 \
               : "r"(bits_of(a[0])), "r"(bits_of(a[1])), "r"(bits_of(a[2])), "r"(bits_of(a[3])), "l"(b), "r"(accumulate) \
               : "memory")
#define TX_WGMMA_ALONG_K(form, held, scales, n, r, p0, p1, p2)                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #p2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n form \
               " {" TX_C_##r "}, %" #p0 ", %" #p1 ", p" scales ";\n}"                                     \
               : TX_D_##r(held)                                                                           \
               : "l"(a), "l"(b), "r"(accumulate)                                                          \
               : "memory")
#define TX_WGMMA(n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10)                      \
  template <>                                                                            \
  struct Wgmma<n> {                                                                      \
    template <class T, class U, int kTransposedA, int kTransposedB, class C>             \
    static TX_FN void shared(C (&d)[r], u64 a, u64 b, int accumulate) {                  \
      if constexpr (same<T, bf16>) {                                                     \
        TX_WGMMA_SHARED("bf16", n, r, p0, p1, p2, p3, p4);                               \
      } else if constexpr (same<T, f16>) {                                               \
        TX_WGMMA_SHARED("f16", n, r, p0, p1, p2, p3, p4);                                \
      } else if constexpr (same<T, f32>) {                                               \
        TX_WGMMA_ALONG_K("k8.f32.tf32.tf32", "+f", ", 1, 1", n, r, p0, p1, p2);          \
      } else if constexpr (same<T, i8>) {                                                \
        TX_WGMMA_ALONG_K("k32.s32.s8.s8", "+r", "", n, r, p0, p1, p2);                   \
      } else if constexpr (same<T, u8>) {                                                \
        TX_WGMMA_ALONG_K("k32.s32.u8.u8", "+r", "", n, r, p0, p1, p2);                   \
      } else if constexpr (same<T, f8e4m3> && same<U, f8e4m3>) {                         \
        TX_WGMMA_ALONG_K("k32.f32.e4m3.e4m3", "+f", ", 1, 1", n, r, p0, p1, p2);         \
      } else if constexpr (same<T, f8e4m3>) {                                            \
        TX_WGMMA_ALONG_K("k32.f32.e4m3.e5m2", "+f", ", 1, 1", n, r, p0, p1, p2);         \
      } else if constexpr (same<U, f8e4m3>) {                                            \
        TX_WGMMA_ALONG_K("k32.f32.e5m2.e4m3", "+f", ", 1, 1", n, r, p0, p1, p2);         \
      } else {                                                                           \
        TX_WGMMA_ALONG_K("k32.f32.e5m2.e5m2", "+f", ", 1, 1", n, r, p0, p1, p2);         \
      }                                                                                  \
    }                                                                                    \
    template <class T, int kTransposedA, int kTransposedB, class A, class B>             \
    static TX_FN void four(f32 (&d)[r], const A (&a)[4], const B (&b)[4], int accumulate) { \
      if constexpr (same<T, bf16>) {                                                     \
        TX_WGMMA_FOUR("bf16", n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10);        \
      } else {                                                                           \
        TX_WGMMA_FOUR("f16", n, r, p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10);         \
      }                                                                                  \
    }                                                                                    \
    template <class T, int kTransposedB, class Word>                                     \
    static TX_FN void registers(f32 (&d)[r], const Word (&a)[4], u64 b, int accumulate) { \
      if constexpr (same<T, f32>) {                                                      \
        TX_WGMMA_REGISTERS_ALONG_K("k8.f32.tf32.tf32", n, r, p0, p1, p2, p3, p4, p5);    \
      } else if constexpr (same<T, bf16>) {                                              \
        TX_WGMMA_REGISTERS("bf16", n, r, p0, p1, p2, p3, p4, p5, p6);                    \
      } else {                                                                           \
        TX_WGMMA_REGISTERS("f16", n, r, p0, p1, p2, p3, p4, p5, p6);                     \
      }                                                                                  \
    }                                                                                    \
  };
#if TX_COLUMNS(8)
TX_WGMMA(8, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
#endif
#if TX_COLUMNS(16)
TX_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18)
#endif
#if TX_COLUMNS(24)
TX_WGMMA(24, 12, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
#endif
#if TX_COLUMNS(32)
TX_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26)
#endif
#if TX_COLUMNS(40)
TX_WGMMA(40, 20, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30)
#endif
#if TX_COLUMNS(48)
TX_WGMMA(48, 24, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34)
#endif
#if TX_COLUMNS(56)
TX_WGMMA(56, 28, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38)
#endif
#if TX_COLUMNS(64)
TX_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42)
#endif
#if TX_COLUMNS(72)
TX_WGMMA(72, 36, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46)
#endif
#if TX_COLUMNS(80)
TX_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50)
#endif
#if TX_COLUMNS(88)
TX_WGMMA(88, 44, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54)
#endif
#if TX_COLUMNS(96)
TX_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58)
#endif
#if TX_COLUMNS(104)
TX_WGMMA(104, 52, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62)
#endif
#if TX_COLUMNS(112)
TX_WGMMA(112, 56, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66)
#endif
#if TX_COLUMNS(120)
TX_WGMMA(120, 60, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70)
#endif
#if TX_COLUMNS(128)
TX_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74)
#endif
#if TX_COLUMNS(136)
TX_WGMMA(136, 68, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78)
#endif
#if TX_COLUMNS(144)
TX_WGMMA(144, 72, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82)
#endif
#if TX_COLUMNS(152)
TX_WGMMA(152, 76, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86)
#endif
#if TX_COLUMNS(160)
TX_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90)
#endif
#if TX_COLUMNS(168)
TX_WGMMA(168, 84, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94)
#endif
#if TX_COLUMNS(176)
TX_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98)
#endif
#if TX_COLUMNS(184)
TX_WGMMA(184, 92, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102)
#endif
#if TX_COLUMNS(192)
TX_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106)
#endif
#if TX_COLUMNS(200)
TX_WGMMA(200, 100, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110)
#endif
#if TX_COLUMNS(208)
TX_WGMMA(208, 104, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114)
#endif
#if TX_COLUMNS(216)
TX_WGMMA(216, 108, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118)
#endif
#if TX_COLUMNS(224)
TX_WGMMA(224, 112, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122)
#endif
#if TX_COLUMNS(232)
TX_WGMMA(232, 116, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126)
#endif
#if TX_COLUMNS(240)
TX_WGMMA(240, 120, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130)
#endif
#if TX_COLUMNS(248)
TX_WGMMA(248, 124, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134)
#endif
#if TX_COLUMNS(256)
TX_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138)
#endif
#undef TX_WGMMA
#undef TX_WGMMA_SHARED
#undef TX_WGMMA_NEXT
#undef TX_WGMMA_FOUR
#undef TX_WGMMA_REGISTERS
#undef TX_WGMMA_REGISTERS_ALONG_K
#undef TX_WGMMA_ALONG_K
#undef TX_D4

// Starts c = a * b, or c += a * b where `accumulate`. Factors are of one type, or of both kinds of f8.
template <int kColumns, class T, class U, Major kMajorA, Major kMajorB, bool kHas = kHasWgmma>
TX_FN void wgmma(Accumulator<64, kColumns, SumOf<T>>& c, MatrixDescriptor<T, kMajorA> a, MatrixDescriptor<U, kMajorB> b,
                 bool accumulate = true, Here = Here::now()) {
  static_assert(may_multiply<T, U>, "wgmma: factors are of one type, or of both kinds of f8");
  static_assert(kHas, "wgmma: only sm_90a has it; use mma");
  if constexpr (kHas) {
    Wgmma<kColumns>::template shared<T, U, kMajorA == Major::kOuter, kMajorB == Major::kOuter>(c.word, a.bits, b.bits,
                                                                                               accumulate);
  }
}
// Four of them in a row, each with what is behind the one before.
template <int kColumns, class T, Major kMajorA, Major kMajorB, bool kHas = kHasWgmma>
TX_FN void wgmma(Accumulator<64, kColumns>& c, const MatrixDescriptor<T, kMajorA> (&a)[4],
                 const MatrixDescriptor<T, kMajorB> (&b)[4], bool accumulate, Here = Here::now()) {
  static_assert(sizeof(T) == 2, "wgmma: four in a row are of 16 bits");
  static_assert(kHas, "wgmma: only sm_90a has it; use mma");
  if constexpr (kHas) {
    Wgmma<kColumns>::template four<T, kMajorA == Major::kOuter, kMajorB == Major::kOuter>(c.word, a, b, accumulate);
  }
}
// The same with a, an OperandA, in registers, which stay as they are until the product is waited for.
template <int kColumns, class T, Major kMajorB, bool kHas = kHasWgmma>
TX_FN void wgmma(Accumulator<64, kColumns>& c, const Fragment<T, in_registers<T>>& a, MatrixDescriptor<T, kMajorB> b,
                 bool accumulate = true, Here = Here::now()) {
  static_assert(kHas, "wgmma: only sm_90a has it; use mma");
  if constexpr (kHas) {
    Wgmma<kColumns>::template registers<T, kMajorB == Major::kOuter>(c.word, a.word, b.bits, accumulate);
  }
}

}  // namespace tx
#endif
