#line 2 "/texpr/include/texpr/memory.cuh"
// Accessors of memory on the device: plain pointers and arrays with a name. All memory is touched through them, because
// host/memory.hpp puts checked ones in their place when the same kernel runs on the CPU.
#pragma once
#if defined(TX_CHECKS)
#include <cstdio>
#endif

#include "texpr/atomic.cuh"
#include "texpr/elements.cuh"
#include "texpr/packed.cuh"

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

// How far apart neighbours along each dimension lie, in elements. Offsets are computed in Index, which is `int` where
// no element lies further away, or in what subscripts are wider.
template <int kRank, class Index>
struct Strides {
  Index of[kRank];

  template <class... Subscripts>
  TX_FN auto offset(Subscripts... at) const {
    static_assert(sizeof...(at) == kRank, "one subscript for each dimension");
    using Offset = decltype((Index(0) + ... + at));
    Offset total = 0;
    int dim = 0;
    ((total += static_cast<Offset>(at) * of[dim++]), ...);
    return total;
  }
};

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
  // Where an element lies, for copies that begin there.
  template <class Index>
  TX_FN T* at(Index index) const {
    return data_ + index;
  }

 protected:
  TX_FN typename NamedAs<T>::type named(T& element) const { return NamedAs<T>::of(element); }
  T* data_;
};

// An address in the shared memory of the block.
TX_FN u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// A tensor in device memory, of so many dimensions; one alone has neighbours that are neighbours in memory.
template <class T, int kRank = 1, class Index = i64>
class Global : public Pointer<T> {
 public:
  static constexpr bool kShared = false;
  TX_FN Global(T* data, const Strides<kRank, Index>& strides, const char*) : Pointer<T>(data), strides_(strides) {}
  template <class... Subscripts>
  TX_FN typename NamedAs<T>::type operator()(Subscripts... at) const {
    return this->named(this->data_[strides_.offset(at...)]);
  }

 private:
  Strides<kRank, Index> strides_;
};
template <class T, class Index>
class Global<T, 1, Index> : public Pointer<T> {
 public:
  static constexpr bool kShared = false;
  TX_FN Global(T* data, const char*) : Pointer<T>(data) {}
  template <class Subscript>
  TX_FN typename NamedAs<T>::type operator()(Subscript at) const {
    return this->named(this->data_[at]);
  }
};

// A tensor at its planned byte offset in the block's dynamic shared memory.
template <class T, int kRank = 1>
class Shared : public Pointer<T> {
 public:
  static constexpr bool kShared = true;
  TX_FN Shared(u8* data, int, const Strides<kRank, int>& strides, const char*)
      : Pointer<T>(reinterpret_cast<T*>(data)), strides_(strides) {}
  template <class... Subscripts>
  TX_FN T& operator()(Subscripts... at) const {
    return this->data_[strides_.offset(at...)];
  }

 private:
  Strides<kRank, int> strides_;
};
template <class T>
class Shared<T, 1> : public Pointer<T> {
 public:
  static constexpr bool kShared = true;
  TX_FN Shared(u8* data, int, const char*) : Pointer<T>(reinterpret_cast<T*>(data)) {}
  template <class Subscript>
  TX_FN T& operator()(Subscript at) const {
    return this->data_[at];
  }
};

// A tensor of one thread, in registers.
template <class T, int kCount>
class Reg {
 public:
  TX_FN explicit Reg(const char*) {}
  TX_FN void fresh() const {}
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
// An indivisible update.
template <class Op, class T, class V>
TX_FN void atomic(T& element, V value) {
  atomic_update<Op>(&element, value);
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
