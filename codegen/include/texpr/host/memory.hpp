#line 2 "/texpr/include/texpr/host/memory.hpp"
// The accessors of memory.cuh with checks: bounds, races, undefined reads. Same names, same calls, same values.
#pragma once
#include "texpr/elements.cuh"
#include "texpr/host/race.hpp"
#include "texpr/packed.cuh"
#include "texpr/strides.cuh"

#define TX_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define TX_HERE \
  tx::host::Site { file, line }

namespace tx {

namespace host {

TX_ONCE void check_bounds(i64 index, i64 count, const char* name, Site site) {
  if (index >= 0 && index < count) return;
  char text[200];
  std::snprintf(text, sizeof text, "%s[%lld] is outside its %lld elements", name, index, count);
  found(TX_HOST_BOUNDS, site, text, index);
  give_up();
}

TX_ONCE void check_alignment(const void* address, int bytes, const char* name, i64 index, Site site) {
  const u64 past = reinterpret_cast<u64>(address) % static_cast<u64>(bytes);
  if (past == 0) return;
  char text[200];
  std::snprintf(text, sizeof text, "an access of %d bytes at %s[%lld], which lies %d bytes behind a multiple of that",
                bytes, name, index, static_cast<int>(past));
  found(TX_HOST_ALIGNMENT, site, text, index);
  give_up();
}

// Where an element lies, for copies that begin there; `bytes` are left in its tensor from there.
template <class T>
struct Spot {
  T* data;
  i64 bytes;
  const char* name;
  i64 index;
};

TX_ONCE void found_undefined(const char* name, i64 index, Site site) {
  char text[200];
  std::snprintf(text, sizeof text, "%s[%lld] is read before anything wrote it", name, index);
  found(TX_HOST_UNDEFINED, site, text, index);
  give_up();
}

// A subscript, and the line that wrote it.
struct At {
  i64 index;
  Site site;

  template <class I>
  At(I i, TX_SITE) : index(static_cast<i64>(i)), site{file, line} {}
};

}  // namespace host

// An element that the text names: it is read where it is used as a value, and written where something is assigned to it.
template <class T>
class Ref {
 public:
  using Find = T* (*)(const void* memory, i64 index, host::Mode mode, host::Site site, bool unique);

  Ref(const void* memory, Find find, i64 index, host::Site site)
      : memory_(memory), find_(find), index_(index), site_(site) {}
  Ref(const Ref&) = default;

  Value<T> value() const { return decode<T>(*at(host::Mode::kRead)); }
  operator Value<T>() const { return value(); }
  void operator=(Value<T> value) const { *at(host::Mode::kWrite) = encode<T>(value); }
  void operator=(const Ref& other) const { *this = other.value(); }
  void operator+=(Value<T> value) const { *this = this->value() + value; }
  void operator*=(Value<T> value) const { *this = this->value() * value; }

  T* at(host::Mode mode, bool unique = false) const { return find_(memory_, index_, mode, site_, unique); }

 private:
  const void* memory_;
  Find find_;
  i64 index_;
  host::Site site_;
};

template <class T>
constexpr bool is_element<Ref<T>> = true;
template <class T>
inline void store_unique(const Ref<T>& element, Value<T> value) {
  *element.at(host::Mode::kWrite, true) = encode<T>(value);
}
template <class Op, class T, class V>
inline void atomic(const Ref<T>& element, const V& value) {
  T* const p = element.at(host::Mode::kAtomic);
  *p = combine<Op>(*p, value_of(value));
}

namespace host {

// What all accessors do with an element once its place is found and checked; `Place` says how that is done.
template <class Place, class T>
class Accessor {
 public:
  using Element = typename RemoveConst<T>::type;

  Value<T> load(i64 index, TX_SITE) const { return decode<Element>(*found(index, Mode::kRead, TX_HERE)); }
  void store(i64 index, Value<T> value, TX_SITE) const {
    *found(index, Mode::kWrite, TX_HERE) = encode<Element>(value);
  }

 protected:
  // The value of an element of memory that is only read, else the element.
  auto named(i64 index, Site site) const {
    if constexpr (same<T, Element>) {
      return Ref<T>(
          this, [](const void* memory, i64 i, Mode mode, Site s, bool unique) { return of(memory).place(i, mode, s, unique); },
          index, site);
    } else {
      return decode<Element>(*found(index, Mode::kRead, site));
    }
  }

 private:
  static const Place& of(const void* memory) { return *static_cast<const Place*>(static_cast<const Accessor*>(memory)); }
  T* found(i64 index, Mode mode, Site site) const { return of(this).place(index, mode, site, false); }
};

}  // namespace host

// What is asked of the L2 changes no value.
template <class T>
TX_FN T* lasting(T* data, bool = true) {
  return data;
}
template <class T>
TX_FN T* passing(T* data, bool = true) {
  return data;
}

template <class T, class Where = Fixed<1>, int kAlign = 16>
class Global : public host::Accessor<Global<T, Where, kAlign>, T> {
 public:
  static constexpr bool kShared = false;
  static constexpr bool kBeginsChunk = kAlign % 16 == 0;

  Global(T* data, const Where& where, const char* name) : Global(data, name) { where_ = where; }
  Global(T* data, const char* name) : data_(data), name_(name), tensor_(nullptr), count_(0) {
    for (int i = 0; i < host::machine.tensor_count; ++i) {
      if (host::machine.tensors[i].data == data) tensor_ = &host::machine.tensors[i];
    }
    if (tensor_ != nullptr) count_ = tensor_->bytes / static_cast<i64>(sizeof(T));
  }
  template <class... Subscripts>
  auto operator()(host::At first, Subscripts... rest) const {
    return this->named(where_.offset(first.index, rest...), first.site);
  }
  T* address(i64 index) const { return data_ + index; }
  const char* name() const { return name_; }
  T* place(i64 index, host::Mode mode, host::Site site, bool unique) const {
    host::check_bounds(index, count_, name_, site);
    if (__builtin_expect(host::machine.company != nullptr, 0)) {
      host::machine.company->touch(data_ + index, sizeof(T), mode, site, name_, index, unique);
      return data_ + index;
    }
    if (tensor_->cells == nullptr) {
      // calloc gives untouched pages, and a cell of zeros is one without accesses
      tensor_->cells = static_cast<host::Cell*>(std::calloc(static_cast<size_t>(count_), sizeof(host::Cell)));
      if (tensor_->cells == nullptr) {
        host::found(TX_HOST_LAUNCH, site, "not enough memory to check an array of this size");
        host::give_up();
      }
    }
    host::check_race(tensor_->cells[index], mode, site, name_, index, false, unique);
    return data_ + index;
  }
  host::Spot<T> at(i64 index, TX_SITE) const {
    host::check_bounds(index, count_, name_, TX_HERE);
    return maybe(index);
  }
  // Of what is outside no byte is left.
  host::Spot<T> maybe(i64 index) const {
    const i64 left = index < 0 || index > count_ ? 0 : count_ - index;
    return {data_ + index, left * static_cast<i64>(sizeof(T)), name_, index};
  }

 private:
  T* data_;
  const char* name_;
  host::Tensor* tensor_;
  i64 count_;
  Where where_{};
};

template <class T, class Where = Fixed<1>>
class Shared : public host::Accessor<Shared<T, Where>, T> {
 public:
  static constexpr bool kShared = true;

  Shared(u8* data, i64 count, const char* name) : data_(data), name_(name), count_(count) {}
  template <class... Subscripts>
  auto operator()(host::At first, Subscripts... rest) const {
    return this->named(Where().offset(first.index, rest...), first.site);
  }
  T* address(i64 index) const { return reinterpret_cast<T*>(data_) + index; }
  const char* name() const { return name_; }
  T* place(i64 index, host::Mode mode, host::Site site, bool unique) const {
    host::check_bounds(index, count_, name_, site);
    const i64 first = data_ - host::machine.shared + index * static_cast<i64>(sizeof(T));
    if (first + static_cast<i64>(sizeof(T)) > host::machine.shared_bytes) {
      host::found(TX_HOST_BOUNDS, site, "the launch gives less shared memory than the kernel uses", index);
      host::give_up();
    }
    if (__builtin_expect(host::machine.company != nullptr, 0)) {
      host::machine.company->touch(host::machine.shared + first, sizeof(T), mode, site, name_, index, unique);
      return reinterpret_cast<T*>(data_) + index;
    }
    for (i64 b = first; b < first + static_cast<i64>(sizeof(T)); ++b) {
      host::check_race(host::machine.shared_cells[b], mode, site, name_, index, true, unique);
      if (mode == host::Mode::kWrite) host::machine.shared_defined[b] = 1;
      if (host::machine.shared_defined[b] == 0) host::found_undefined(name_, index, site);
    }
    return reinterpret_cast<T*>(data_) + index;
  }
  host::Spot<T> at(i64 index, TX_SITE) const {
    host::check_bounds(index, count_, name_, TX_HERE);
    return {reinterpret_cast<T*>(data_) + index, (count_ - index) * static_cast<i64>(sizeof(T)), name_, index};
  }

 private:
  u8* data_;
  const char* name_;
  i64 count_;
};

template <class T, int kCount>
class Reg : public host::Accessor<Reg<T, kCount>, T> {
  static_assert(sizeof(T) * kCount <= host::kStackBytes / 4, "a tensor of one thread is too large for registers");

 public:
  explicit Reg(const char* name) : name_(name) { fresh(); }
  auto operator()(host::At at) const { return this->named(at.index, at.site); }
  void fresh() const {
    std::memset(defined_, 0, sizeof defined_);
    std::memset(static_cast<void*>(data_), 0xCD, sizeof data_);
  }
  void keep() const {}
  T* place(i64 index, host::Mode mode, host::Site site, bool) const {
    host::check_bounds(index, kCount, name_, site);
    if (mode == host::Mode::kWrite) defined_[index] = true;
    if (!defined_[index]) host::found_undefined(name_, index, site);
    return data_ + index;
  }
  template <int kPart>
  Packed<T, kPart> part(int index, TX_SITE) const {
    Packed<T, kPart> found;
    for (int i = 0; i < kPart; ++i) found.set(i, *place(index + i, host::Mode::kRead, TX_HERE, false));
    return found;
  }
  template <int kPart>
  void set_part(int index, Packed<T, kPart> from, TX_SITE) {
    for (int i = 0; i < kPart; ++i) *place(index + i, host::Mode::kWrite, TX_HERE, false) = from.get(i);
  }

 private:
  const char* name_;
  mutable T data_[kCount];
  mutable bool defined_[kCount];
};

template <class Index, class V>
inline Index gathered(V value, i64 extent, TX_SITE) {
  const i64 wide = static_cast<i64>(value);
  if (wide < 0 || wide >= extent) {
    char text[200];
    std::snprintf(text, sizeof text, "a subscript read from data is %lld, the dimension has %lld elements", wide,
                  extent);
    host::found(TX_HOST_GATHER, TX_HERE, text, wide);
    host::give_up();
  }
  return static_cast<Index>(wide);
}

template <class T>
inline void anchor(const T& what) {
  const auto value = value_of(what);
  volatile auto kept = value;
  (void)kept;
}

TX_ONCE void sync_block(int barrier, TX_SITE) { host::wait_at(host::Wait::kBlock, barrier, TX_HERE); }
TX_ONCE void sync_warp(int barrier, TX_SITE) { host::wait_at(host::Wait::kWarp, barrier, TX_HERE); }

TX_ONCE int thread() { return host::machine.current; }
TX_ONCE int lane() { return host::machine.current % 32; }
TX_ONCE int warp() { return host::machine.current / 32; }
TX_ONCE int warpgroup() { return host::machine.current / 128; }
TX_ONCE int block_x() { return host::machine.block_at[0]; }
TX_ONCE int block_y() { return host::machine.block_at[1]; }
TX_ONCE int block_z() { return host::machine.block_at[2]; }

}  // namespace tx
