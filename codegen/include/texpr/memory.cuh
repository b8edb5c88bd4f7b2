#line 2 "/texpr/include/texpr/memory.cuh"
// Accessors of memory on the device: plain pointers and arrays with a name. All memory is touched through them, because
// host/memory.hpp puts checked ones in their place when the same kernel runs on the CPU.
#pragma once
#if defined(TX_CHECKS) && !defined(__CUDACC_RTC__)
#include <cstdio>
#endif

#include "texpr/elements.cuh"
#include "texpr/packed.cuh"
#include "texpr/strides.cuh"

namespace tx {

// What names an element: of memory that is only read its value, else the element itself.
template <class T>
struct NamedAs {
  using type = T&;
  static TX_FN T& of(T& element) { return element; }
};
template <class T>
struct NamedAs<const T> {
  using type = Value<T>;
  static TX_FN Value<T> of(const T& element) { return decode(element); }
};

// A number of an element as a sum of two: the first is of many accesses, the second a constant once loops are unrolled.
// What is added to an address is less for a compiler than what is added to the number that the address is made of.
template <class Index>
struct Apart {
  Index first;
  int behind;
};
template <class Index>
TX_FN Apart<Index> apart(Index first, int behind) {
  return {first, behind};
}

// Elements in global or shared memory, one after the other: an index counts them.
template <class T>
class Pointer {
 public:
  using Element = typename RemoveConst<T>::type;

  TX_FN explicit Pointer(T* data) : data_(data) {}

  template <class Index>
  TX_FN Value<T> load(Index index) const {
    return decode(data_[index]);
  }
  template <class Index>
  TX_FN void store(Index index, Value<T> value) const {
    data_[index] = encode<T>(value);
  }
  // Where an element lies, or would: for wide accesses, which may begin before the first.
  template <class Index>
  TX_FN T* address(Index index) const {
    return data_ + index;
  }
  template <class Index>
  TX_FN T* address(Apart<Index> index) const {
    return data_ + index.first + index.behind;
  }
  // Where an element lies, for copies that begin there.
  template <class Index>
  TX_FN T* at(Index index) const {
    return data_ + index;
  }
  // The same where nothing may be taken of what is outside.
  template <class Index>
  TX_FN T* maybe(Index index) const {
    return data_ + index;
  }

 protected:
  T* data_;
};

// An address in the shared memory of the block.
TX_FN u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// An array of which the L2 gives up last what was read, so that it makes room by what was written, or first. A compiler
// asks so for each load of it; an operand of the load itself would keep it from adding constants to the address.
constexpr u64 kEvictLast = 0x14f0000000000000, kEvictFirst = 0x12f0000000000000;  // as libcu++ has them
constexpr u64 kEvictNormal = 0x10f0000000000000;
template <class T>
TX_FN T* lasting(T* data, bool is_long = true) {
  return static_cast<T*>(__nv_associate_access_property(data, is_long ? kEvictLast : kEvictNormal));
}
template <class T>
TX_FN T* passing(T* data, bool is_long = true) {
  return static_cast<T*>(__nv_associate_access_property(data, is_long ? kEvictFirst : kEvictNormal));
}

// A tensor in device memory that begins at a multiple of kAlign bytes; `Where` has its strides.
template <class T, class Where = Fixed<1>, int kAlign = 16>
class Global : public Pointer<T> {
 public:
  static constexpr bool kShared = false;
  static constexpr bool kBeginsChunk = kAlign % 16 == 0;
  TX_FN Global(T* data, const char*) : Pointer<T>(data) {}
  TX_FN Global(T* data, const Where& where, const char*) : Pointer<T>(data), where_(where) {}
  template <class... Subscripts>
  TX_FN typename NamedAs<T>::type operator()(Subscripts... at) const {
    return NamedAs<T>::of(this->data_[where_.offset(at...)]);
  }

 private:
  Where where_;
};

// A tensor at its planned byte offset in the block's dynamic shared memory.
template <class T, class Where = Fixed<1>>
class Shared : public Pointer<T> {
 public:
  static constexpr bool kShared = true;
  TX_FN Shared(u8* data, int, const char*) : Pointer<T>(reinterpret_cast<T*>(data)) {}
  template <class... Subscripts>
  TX_FN T& operator()(Subscripts... at) const {
    return this->data_[Where().offset(at...)];
  }
};

// A tensor of one thread, in registers.
template <class T, int kCount>
class Reg {
 public:
  TX_FN explicit Reg(const char*) {}
  TX_FN void fresh() const {}
  // What lies here is what it was, and nothing that was computed from it is known.
  TX_FN void keep() { data_.keep(); }
  TX_FN decltype(auto) operator()(int index) { return data_.named(index); }
  TX_FN Value<T> load(int index) const { return decode(data_.get(index)); }
  TX_FN void store(int index, Value<T> value) { data_.set(index, encode<T>(value)); }
  template <int kPart>
  TX_FN Packed<T, kPart> part(int index) const {
    return data_.template part<kPart>(index);
  }
  template <int kPart>
  TX_FN void set_part(int index, Packed<T, kPart> from) {
    data_.set_part(index, from);
  }

 private:
  Packed<T, kCount> data_;
};

// A store whose element no other iteration writes, on the author's word.
template <class T>
TX_FN void store_unique(T& element, Value<T> value) {
  element = encode<T>(value);
}

// A subscript that is read from data; the host build and TX_CHECKS check 0 <= value < extent.
#if defined(TX_CHECKS)
template <class Index, class V>
TX_FN Index gathered(V value, i64 extent, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const i64 wide = static_cast<i64>(value);
  if (wide < 0 || wide >= extent) {
    printf("%s:%d: a subscript read from data is %lld, the dimension has %lld elements\n", file, line, wide, extent);
    __trap();
  }
  return static_cast<Index>(wide);
}
#else
template <class Index, class V>
TX_FN Index gathered(V value, i64) {
  return static_cast<Index>(value);
}
#endif

// Evaluates its argument where it stands: never removed, never moved across a synchronisation.
TX_FN void anchor(f32 x) { asm volatile("" ::"f"(x) : "memory"); }
TX_FN void anchor(f64 x) { asm volatile("" ::"d"(x) : "memory"); }
TX_FN void anchor(i64 x) { asm volatile("" ::"l"(x) : "memory"); }
TX_FN void anchor(u32 x) { asm volatile("" ::"r"(x) : "memory"); }
TX_FN void anchor(i32 x) { asm volatile("" ::"r"(x) : "memory"); }
TX_FN void anchor(bool x) { anchor(static_cast<u32>(x)); }
template <class T>
TX_FN void anchor(T x) {
  anchor(cast<f32>(x));
}

}  // namespace tx
