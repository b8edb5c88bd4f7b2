#line 2 "/texpr/include/texpr/memory.cuh"
// Accessors of memory on the device: plain pointers and arrays with a name. All memory is touched through them, because
// host/memory.hpp puts checked ones in their place when the same kernel runs on the CPU.
#pragma once
#if defined(TX_CHECKS)
#include <cstdio>
#endif

#include "texpr/atomic.cuh"
#include "texpr/packed.cuh"

namespace tx {

// A pointer to elements in global or shared memory; an index counts elements.
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
  // A store whose element no other iteration writes, on the author's word.
  template <class Index>
  TX_FN void store_unique(Index index, Value<T> value) const {
    data_[index] = encode<T>(value);
  }
  template <class Op, class Index, class V>
  TX_FN void update(Index index, V value) const {
    data_[index] = combine<Op>(data_[index], value);
  }
  template <class Index, class V>
  TX_FN void add_product(Index index, V a, V b) const {
    data_[index] = combine_product(data_[index], a, b);
  }
  template <class Op, class Index, class V>
  TX_FN void atomic(Index index, V value) const {
    atomic_update<Op>(data_ + index, value);
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

 private:
  T* data_;
};

// An address in the shared memory of the block.
TX_FN u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// A tensor in device memory.
template <class T>
class Global : public Pointer<T> {
 public:
  static constexpr bool kShared = false;
  TX_FN Global(T* data, const char*) : Pointer<T>(data) {}
};

// A tensor at its planned byte offset in the block's dynamic shared memory.
template <class T>
class Shared : public Pointer<T> {
 public:
  static constexpr bool kShared = true;
  TX_FN Shared(u8* data, int, const char*) : Pointer<T>(reinterpret_cast<T*>(data)) {}
  TX_FN void fresh() const {}
};

// A tensor of one thread, in registers.
template <class T, int kCount>
class Reg {
 public:
  TX_FN explicit Reg(const char*) {}
  TX_FN void fresh() const {}

  TX_FN Value<T> load(int index) const { return decode(data_.get(index)); }
  TX_FN void store(int index, Value<T> value) { data_.set(index, encode<T>(value)); }
  TX_FN void store_unique(int index, Value<T> value) { store(index, value); }
  template <class Op, class V>
  TX_FN void update(int index, V value) {
    data_.set(index, combine<Op>(data_.get(index), value));
  }
  template <class V>
  TX_FN void add_product(int index, V a, V b) {
    data_.set(index, combine_product(data_.get(index), a, b));
  }
  template <class Op, class V>
  TX_FN void atomic(int index, V value) {  // no other thread sees it
    update<Op>(index, value);
  }
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
