#line 2 "/texpr/include/texpr/types.cuh"
// Element types as they lie in memory, and the traits that the other headers ask about.
// Compiled for the device by NVRTC or nvcc and, under TX_HOST, for the CPU by a host compiler: no standard header is
// used here.
#pragma once

#if defined(TX_HOST)
#define TX_FN inline
// A function of the checker (host/) that is no template: one who links what is compiled of them says so beforehand.
#if !defined(TX_ONCE)
#define TX_ONCE inline
#endif
#define TX_UNROLL
#define TX_UNROLL_BY(n)
#else
#define TX_FN __device__ __forceinline__
#define TX_UNROLL _Pragma("unroll")
#define TX_UNROLL_BY(n) TX_PRAGMA(unroll n)
#define TX_PRAGMA(...) _Pragma(#__VA_ARGS__)
#endif
// Bytes from one object to another: NVRTC knows the function only by its plain name.
#if defined(__CUDACC_RTC__)
#define TX_COPY(to, from, bytes) memcpy(to, from, bytes)
#else
#define TX_COPY(to, from, bytes) __builtin_memcpy(to, from, bytes)
#endif

namespace tx {

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned;
using i64 = long long;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;

// Narrow floats are only stored; arithmetic happens in f32.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8e4m3 {  // the finite form: greatest 448, no infinity
  u8 bits;
};
struct f8e5m2 {
  u8 bits;
};
struct b8 {  // a bool in memory: any non-zero byte is true; used as a value it is one, and takes one
  u8 bits;

  b8() = default;
  TX_FN explicit b8(bool x) : bits(x ? 1 : 0) {}
  TX_FN b8& operator=(bool x) {
    bits = x ? 1 : 0;
    return *this;
  }
  TX_FN operator bool() const { return bits != 0; }
};

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

template <class T>
constexpr bool is_narrow = same<T, f16> || same<T, bf16> || same<T, f8e4m3> || same<T, f8e5m2>;
template <class T>
constexpr bool is_float = same<T, f32> || same<T, f64>;
template <class T>
constexpr bool is_signed = same<T, i8> || same<T, i16> || same<T, i32> || same<T, i64>;
template <class T>
constexpr bool is_unsigned = same<T, u8> || same<T, u16> || same<T, u32> || same<T, u64>;
template <class T>
constexpr bool is_integer = is_signed<T> || is_unsigned<T>;

template <class T>
struct RemoveConst {
  using type = T;
};
template <class T>
struct RemoveConst<const T> {
  using type = T;
};

// What stands for an element without being its value (elements.cuh). Functions of values do not take it as a type of
// theirs.
template <class T>
constexpr bool is_element = false;
// And for a byte in a word.
template <class T>
constexpr bool is_byte_in_word = false;
template <bool kHolds>
struct Holds {};
template <>
struct Holds<true> {
  using type = int;
};
template <class T>
using IfValue = typename Holds<!is_element<T>>::type;

// What a load gives: the element itself, but `bool` for b8.
template <class T>
struct ValueOf {
  using type = T;
};
template <>
struct ValueOf<b8> {
  using type = bool;
};
template <class T>
using Value = typename ValueOf<typename RemoveConst<T>::type>::type;

template <class T>
TX_FN Value<T> decode(T x) {
  if constexpr (same<T, b8>) {
    return x.bits != 0;
  } else {
    return x;
  }
}

template <class T>
TX_FN T encode(Value<T> x) {
  if constexpr (same<T, b8>) {
    return b8(x);
  } else {
    return x;
  }
}

// The unsigned type of as many bytes, for those of narrow elements.
template <int kBytes>
struct UnsignedOfBytesOf {
  static_assert(kBytes == 1, "narrow elements are of 1 or 2 bytes");
  using type = u8;
};
template <>
struct UnsignedOfBytesOf<2> {
  using type = u16;
};
template <int kBytes>
using UnsignedOfBytes = typename UnsignedOfBytesOf<kBytes>::type;

// Unsigned type in which arithmetic on T wraps without undefined behaviour (at least 32 bits wide).
template <class T>
struct UnsignedOf {
  using type = u32;
};
template <>
struct UnsignedOf<i64> {
  using type = u64;
};
template <>
struct UnsignedOf<u64> {
  using type = u64;
};
template <class T>
using Unsigned = typename UnsignedOf<T>::type;

template <class T>
TX_FN constexpr T least() {
  static_assert(is_integer<T>, "least() is of integers");
  if constexpr (is_signed<T>) {
    return static_cast<T>(u64(1) << (8 * sizeof(T) - 1));
  } else {
    return 0;
  }
}

template <class T>
TX_FN constexpr T greatest() {
  static_assert(is_integer<T>, "greatest() is of integers");
  return static_cast<T>(is_signed<T> ? (u64(1) << (8 * sizeof(T) - 1)) - 1 : ~u64(0));
}

}  // namespace tx
