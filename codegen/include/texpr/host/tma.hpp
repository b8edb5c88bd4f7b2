#line 2 "/texpr/include/texpr/host/tma.hpp"
// tma.cuh on the CPU.
#pragma once
#include "texpr/host/dependent.hpp"
#include "texpr/host/group.hpp"

namespace tx {

// As codegen/host_run.py packs it. Dimensions count from the contiguous one, as those of the device's map do.
struct alignas(64) TensorMap {
  u8* data;
  i64 strides[5];  // in bytes
  u32 extents[5];
  u32 box[5];
  u32 rank;
  u32 element_bytes;
  u32 swizzle_bytes;  // 32, 64, 128; 0: none
  u32 reserved;
};

namespace host {

template <>
struct ArraysOf<TensorMap> {
  static bool add(const void* argument) {
    const TensorMap& map = *static_cast<const TensorMap*>(argument);
    i64 last = map.element_bytes;
    for (u32 d = 0; d < map.rank && d < 5; ++d) last += (static_cast<i64>(map.extents[d]) - 1) * map.strides[d];
    return map.rank >= 1 && map.rank <= 5 && add_tensor(map.data, last);
  }
};

TX_ONCE i64 box_bytes(const TensorMap& map) {
  i64 bytes = map.element_bytes;
  for (u32 d = 0; d < map.rank; ++d) bytes *= map.box[d];
  return bytes;
}

// The bits 4 to 6 of an address in shared memory are mixed with the bits 7 to 9 (the lower ones for smaller swizzles).
TX_ONCE u8* swizzled(u8* place, u32 swizzle_bytes) {
  const u64 address = reinterpret_cast<u64>(place);
  return swizzle_bytes == 0 ? place : reinterpret_cast<u8*>(address ^ ((address >> 7 & (swizzle_bytes / 16 - 1)) << 4));
}

// A run of a box: where it lies in shared and in global memory, and how much of it is inside the tensor.
struct Run {
  u8* shared;
  u8* global;
  i64 bytes, inside;
};

// The runs of the box whose corner is `at` (the contiguous coordinate last), in shared memory from `to` on.
template <int kRank>
inline std::vector<Run> runs_of(const TensorMap& map, u8* to, const int (&at)[kRank], Site site) {
  if (map.rank != kRank)
    refuse(TX_HOST_LAUNCH, site, "a tensor map of %u dimensions is used with %d coordinates", map.rank, kRank);
  const i64 row = static_cast<i64>(map.box[0]) * map.element_bytes;
  if (row % 16 != 0 || (map.swizzle_bytes != 0 && row > map.swizzle_bytes)) {
    refuse(TX_HOST_LAUNCH, site,
           "the rows of a box have %lld bytes; they are multiples of 16, and not longer than the swizzle", row);
  }
  const i64 first = static_cast<i64>(at[kRank - 1]) * map.element_bytes;
  if (first % 16 != 0) {
    refuse(TX_HOST_ALIGNMENT, site,
           "a box whose corner is %lld bytes into its row; the device takes multiples of 16, and copies what is between "
           "them without a tensor map",
           first);
  }
  const i64 step = map.swizzle_bytes == 0 ? row : 16;
  std::vector<Run> runs;
  const i64 rows = box_bytes(map) / row;
  for (i64 r = 0; r < rows; ++r) {
    i64 rest = r, offset = 0;
    bool inside = true;
    for (int d = 1; d < kRank; ++d) {
      const i64 c = at[kRank - 1 - d] + rest % map.box[d];
      rest /= map.box[d];
      inside = inside && c >= 0 && c < map.extents[d];
      offset += c * map.strides[d];
    }
    const i64 end = static_cast<i64>(map.extents[0]) * map.element_bytes;
    for (i64 b = 0; b < row; b += step) {
      // an edge of the tensor in the middle of a run: cut there, so that a run is inside from its first byte on, or not
      const i64 low = first + b, cut = low < 0 ? std::min(-low, step) : 0;
      if (cut > 0) runs.push_back({swizzled(to + r * row + b, map.swizzle_bytes), nullptr, cut, 0});
      const i64 in = inside ? std::max<i64>(0, std::min(low + step, end) - (low + cut)) : 0;
      if (cut < step)
        runs.push_back(
            {swizzled(to + r * row + b, map.swizzle_bytes) + cut, map.data + offset + low + cut, step - cut, in});
    }
  }
  return runs;
}

template <class T, int kRank>
inline void start_box(Block& block, Spot<T> to, const TensorMap& map, Mbarrier full, const int (&at)[kRank],
                      Site site) {
  Runner& me = self(site);
  const Counted counted = full.counted(me, block, Proxy::kAsync, site);
  const Actor& actor = counted.actor;
  const i64 place = own_shared(to, site) - machine.shared;
  Spot<T> there = to;
  there.data = reinterpret_cast<T*>(block.shared + place);
  const i64 bytes = box_bytes(map);
  touch_spot(there, bytes, 128, Mode::kWrite, actor);
  Copy* const copy = new Copy{&me, site};
  for (const Run& run : runs_of(map, block.shared + place, at, site)) {
    if (run.inside > 0) {
      touch_bytes(run.global, run.inside, Mode::kRead, actor, {"tensor map", run.global - map.data, 1});
      copy->pieces.push_back({run.shared, run.global, static_cast<u32>(run.inside)});
    }
    if (run.inside < run.bytes)
      copy->pieces.push_back({run.shared + run.inside, nullptr, static_cast<u32>(run.bytes - run.inside)});
  }
  counted_by(*copy, counted.at, bytes);
}

}  // namespace host

TX_ONCE void settled(const TensorMap& map, Here here = Here::now()) { host::settle(map.data, here); }

TX_ONCE void prefetch_map(const TensorMap&, Here here = Here::now()) { host::self(here); }

template <class T, int kRank>
inline void load_box(host::Spot<T> to, const TensorMap& map, Mbarrier full, const int (&at)[kRank],
                     Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::start_box(*me.block, to, map, full, at, here);
  host::pause(me);
}
template <class T, int kRank>
inline void load_box_to(u32 ranks, host::Spot<T> to, const TensorMap& map, Mbarrier full, const int (&at)[kRank],
                        Here here = Here::now()) {
  host::Runner& me = host::self(here);
  for (int rank = 0; rank < 16; ++rank) {
    if ((ranks >> rank & 1) != 0) host::start_box(host::block_of(me, rank, here), to, map, full, at, here);
  }
  host::pause(me);
}

template <class T, int kRank>
inline void store_box(const TensorMap& map, host::Spot<T> from, const int (&at)[kRank], Here here = Here::now()) {
  host::Runner& me = host::self(here);
  for (int d = 0; d < kRank; ++d) {
    if (at[d] < 0)
      host::refuse(TX_HOST_ALIGNMENT, here,
                   "a box is stored to a corner before the array (coordinate %d is %d); the device takes corners from 0 on",
                   d, at[d]);
  }
  u8* const source = host::own_shared(from, here);
  const host::Actor reads{host::agent_of(me.stores.read_agent), ++me.stores.started, &me, host::Proxy::kAsync, here};
  host::Actor writes = reads;
  writes.agent = host::agent_of(me.stores.agent);
  host::touch_spot(from, host::box_bytes(map), 128, host::Mode::kRead, reads);
  host::Copy* const copy = new host::Copy{&me, here, &me.stores, me.stores.started};
  for (const host::Run& run : host::runs_of(map, source, at, here)) {
    if (run.inside == 0) continue;
    host::touch_bytes(run.global, run.inside, host::Mode::kWrite, writes, {"tensor map", run.global - map.data, 1});
    copy->pieces.push_back({run.global, run.shared, static_cast<u32>(run.inside)});
  }
  host::crew.copies.push_back(copy);
  host::pause(me);
}

template <class T, class S>
inline void load_bulk(host::Spot<T> to, host::Spot<S> from, int bytes, Mbarrier full, Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::need_sixteens(bytes, here);
  const host::Counted counted = full.counted(me, *me.block, host::Proxy::kAsync, here);
  u8* const target = host::own_shared(to, here);
  host::touch_spot(from, bytes, 16, host::Mode::kRead, counted.actor);
  host::touch_spot(to, bytes, 16, host::Mode::kWrite, counted.actor);
  host::Copy* const copy = new host::Copy{&me, here};
  copy->pieces.push_back({target, reinterpret_cast<const u8*>(from.data), static_cast<u32>(bytes)});
  host::counted_by(*copy, counted.at, bytes);
  host::pause(me);
}
template <class T, class S>
inline void store_bulk(host::Spot<T> to, host::Spot<S> from, int bytes, Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::need_sixteens(bytes, here);
  const u8* const source = host::own_shared(from, here);
  const host::Actor reads{host::agent_of(me.stores.read_agent), ++me.stores.started, &me, host::Proxy::kAsync, here};
  host::Actor writes = reads;
  writes.agent = host::agent_of(me.stores.agent);
  host::touch_spot(from, bytes, 16, host::Mode::kRead, reads);
  host::touch_spot(to, bytes, 16, host::Mode::kWrite, writes);
  host::Copy* const copy = new host::Copy{&me, here, &me.stores, me.stores.started};
  copy->pieces.push_back({reinterpret_cast<u8*>(to.data), source, static_cast<u32>(bytes)});
  host::crew.copies.push_back(copy);
  host::pause(me);
}

}  // namespace tx
