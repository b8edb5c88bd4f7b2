#line 2 "/texpr/include/texpr/packed.cuh"
// Elements of one thread, by numbers that are constant once loops are unrolled: so they stay in registers. Narrow ones
// lie together in words of 32 bits, and what moves in words is not taken apart on its way.
#pragma once
#include "texpr/bits.cuh"

namespace tx {

// An element that lies in a word.
template <class Words, class T>
class InWord {
 public:
  TX_FN InWord(Words& words, int index) : words_(words), index_(index) {}
  InWord(const InWord&) = default;
  TX_FN Value<T> value() const { return decode(words_.get(index_)); }
  TX_FN operator Value<T>() const { return value(); }
  // A byte's integer.
  TX_FN f32 as_f32() const { return words_.get_f32(index_); }
  TX_FN void operator=(Value<T> value) const { words_.set(index_, encode<T>(value)); }
  TX_FN void operator=(const InWord& other) const { *this = other.value(); }

 private:
  Words& words_;
  int index_;
};
template <class Words, class T>
constexpr bool is_element<InWord<Words, T>> = true;
template <class Words>
constexpr bool is_byte_in_word<InWord<Words, i8>> = true;
template <class Words>
constexpr bool is_byte_in_word<InWord<Words, u8>> = true;

template <class T, int kCount, bool kInWords = sizeof(T) < 4 && kCount * sizeof(T) >= 4>
struct Packed {
  T element[kCount];

  TX_FN T get(int i) const { return element[i]; }
  TX_FN void set(int i, T x) { element[i] = x; }
  TX_FN T& named(int i) { return element[i]; }

  // `other` in place of the elements that are not kept.
  template <class Keep>
  TX_FN void fill(Keep keep, T other) {
    TX_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (!keep(i)) element[i] = other;
    }
  }

  // Elements index .. index + kPart - 1.
  template <int kPart>
  TX_FN Packed<T, kPart> part(int index) const {
    Packed<T, kPart> found;
    TX_COPY(found.element, element + index, sizeof found);
    return found;
  }
  template <int kPart>
  TX_FN void set_part(int index, Packed<T, kPart> from) {
    TX_COPY(element + index, from.element, sizeof from);
  }
};

template <class T, int kCount>
struct Packed<T, kCount, true> {
  static constexpr int kEach = 4 / sizeof(T), kBits = 8 * sizeof(T);
  static constexpr u32 kOne = (1u << kBits) - 1;
  using Bits = UnsignedOfBytes<sizeof(T)>;

  u32 word[(kCount + kEach - 1) / kEach] = {};

  TX_FN T get(int i) const {
    const Bits bits = static_cast<Bits>(word[i / kEach] >> (i % kEach * kBits));
    T x;
    TX_COPY(&x, &bits, sizeof x);
    return x;
  }
  TX_FN void set(int i, T x) {
    Bits bits;
    TX_COPY(&bits, &x, sizeof x);
    const int at = i % kEach * kBits;
    u32& w = word[i / kEach];
    w = (w & ~(kOne << at)) | static_cast<u32>(bits) << at;
  }

#if !defined(TX_HOST)
  // An integer of a byte: the byte as the last of 2^23, which is taken again. A conversion has a quarter of the rate.
  TX_FN f32 get_f32(int i) const {
    static_assert(kBits == 8 && is_integer<T>, "a byte");
    constexpr u32 kSign = is_signed<T> ? 0x80 : 0;
    const u32 bits = __byte_perm(word[i / kEach] ^ kSign * 0x01010101u, 0x4b000000u, 0x7440u + i % kEach);
    return f32_of_bits(bits) - (0x1p23f + kSign);
  }
#endif

  template <class Keep>
  TX_FN void fill(Keep keep, T other) {
    Packed others;
    for (int i = 0; i < kEach; ++i) others.set(i, other);
    TX_UNROLL
    for (int i = 0; i < kCount; i += kEach) {
      u32 kept = 0;
      for (int k = 0; k < kEach; ++k) kept |= keep(i + k) ? kOne << (k * kBits) : 0;
      word[i / kEach] = (word[i / kEach] & kept) | (others.word[0] & ~kept);
    }
  }
  TX_FN InWord<Packed, T> named(int i) { return {*this, i}; }
  TX_FN void keep() {
    TX_UNROLL
    for (int i = 0; i < (kCount + kEach - 1) / kEach; ++i) asm volatile("" : "+r"(word[i]));
  }

  template <int kPart>
  TX_FN Packed<T, kPart> part(int index) const {
    Packed<T, kPart> found;
    if constexpr (kPart % kEach == 0) {
      if (index % kEach == 0) {
        TX_UNROLL
        for (int i = 0; i < kPart / kEach; ++i) found.word[i] = word[index / kEach + i];
        return found;
      }
    }
    TX_UNROLL
    for (int i = 0; i < kPart; ++i) found.set(i, get(index + i));
    return found;
  }
  template <int kPart>
  TX_FN void set_part(int index, Packed<T, kPart> from) {
    if constexpr (kPart % kEach == 0) {
      if (index % kEach == 0) {
        TX_UNROLL
        for (int i = 0; i < kPart / kEach; ++i) word[index / kEach + i] = from.word[i];
        return;
      }
    }
    TX_UNROLL
    for (int i = 0; i < kPart; ++i) set(index + i, from.get(i));
  }
};

}  // namespace tx
