#line 2 "/texpr/include/texpr/host/cluster.hpp"
// cluster.cuh on the CPU.
#pragma once
#include "texpr/host/mbarrier.hpp"

namespace tx {

TX_ONCE int cluster_rank(Here here = Here::now()) { return host::self(here).block->rank; }
TX_ONCE int cluster_size(Here here = Here::now()) {
  return static_cast<int>(host::self(here).block->cluster->blocks.size());
}

namespace host {

TX_ONCE void arrive_at_cluster(Runner& me, const Known& says, Site site) {
  Cluster& cluster = *me.block->cluster;
  if (me.at_cluster)
    refuse(TX_HOST_PHASE, site, "block %lld thread %d arrives twice at the cluster's barrier", machine.block, me.index);
  me.at_cluster = true;
  me.cluster_round = cluster.meeting.round;
  cluster.meeting.gathered.join(says);
  ++cluster.meeting.arrived;
  open_cluster_if_all(cluster);
}

}  // namespace host

TX_ONCE void cluster_arrive(Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::pause(me);
  host::Known says;
  host::release_into(says, me);
  host::arrive_at_cluster(me, says, here);
}
TX_ONCE void cluster_arrive_relaxed(Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::pause(me);
  host::arrive_at_cluster(me, me.inited, here);
}
TX_ONCE void cluster_wait(Here here = Here::now()) {
  host::Runner& me = host::self(here);
  host::Cluster& cluster = *me.block->cluster;
  if (!me.at_cluster) {
    host::refuse(TX_HOST_PHASE, here, "block %lld thread %d waits at the cluster's barrier and has not arrived",
                 host::machine.block, me.index);
  }
  host::wait_until(
      me, &cluster, here, [&] { return cluster.meeting.round != me.cluster_round; },
      [&](char* text, size_t size) {
        std::snprintf(text, size, "at the cluster's barrier (%d of %d threads came)", cluster.meeting.arrived,
                      cluster.live);
      });
  me.at_cluster = false;
  me.known.join(cluster.opened);
}

template <class T>
class Remote {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "remote accesses are of elements of 4 or 8 bytes");

 public:
  Remote(host::Block& block, host::Spot<T> spot, i64 place) : block_(&block), spot_(spot), place_(place) {}

  Value<T> load(int index, Here here = Here::now()) const {
    T element;
    std::memcpy(&element, touched(index, host::Mode::kRead, host::as_thread(host::self(here), here)), sizeof element);
    return decode(element);
  }
  void store(int index, Value<T> value, Here here = Here::now()) const {
    const T element = encode<T>(value);
    std::memcpy(touched(index, host::Mode::kWrite, host::as_thread(host::self(here), here)), &element, sizeof element);
  }
  void store_async(int index, Value<T> value, Mbarrier full, int rank, Here here = Here::now()) const {
    const T element[1] = {encode<T>(value)};
    send_async(index, element, full, rank, here);
  }
  template <int kCount>
  void send_async(int index, const T (&from)[kCount], Mbarrier full, int rank, Here here = Here::now()) const {
    host::Runner& me = host::self(here);
    const host::Counted counted = full.counted(me, full.peer(me, rank, here), host::Proxy::kCopy, here);
    u8* const first = touched(index, host::Mode::kWrite, counted.actor);
    host::check_alignment(first, sizeof from, spot_.name, index, here);
    host::Copy* const copy = new host::Copy{&me, here};
    copy->is_read = true;
    copy->staged.resize(sizeof from);
    std::memcpy(copy->staged.data(), from, sizeof from);
    for (int i = 1; i < kCount; ++i) touched(index + i, host::Mode::kWrite, counted.actor);
    copy->pieces.push_back({first, nullptr, sizeof from});
    host::counted_by(*copy, counted.at, sizeof from);
    host::pause(me);
  }

 private:
  u8* touched(int index, host::Mode mode, const host::Actor& now) const {
    host::check_bounds(index, spot_.bytes / static_cast<i64>(sizeof(T)), spot_.name, now.site);
    host::enter(*block_, now);
    u8* const p = block_->shared + place_ + index * static_cast<i64>(sizeof(T));
    host::touch_bytes(p, sizeof(T), mode, now, {spot_.name, index, sizeof(T)});
    return p;
  }
  host::Block* block_;
  host::Spot<T> spot_;
  i64 place_;
};

template <class T, class Where>
inline Remote<T> remote(const Shared<T, Where>& tensor, int rank, Here here = Here::now()) {
  host::Runner& me = host::self(here);
  const host::Spot<T> spot = tensor.at(0, here.file, here.line);
  return Remote<T>(host::block_of(me, rank, here), spot, reinterpret_cast<u8*>(spot.data) - host::machine.shared);
}

}  // namespace tx
