#line 2 "/texpr/include/texpr/host/group.hpp"
// group.cuh on the CPU.
#pragma once
#include "texpr/host/collective.hpp"
#include "texpr/host/mbarrier.hpp"

namespace tx {

template <int kBytes, class T, class S>
inline void cp_async(host::Spot<T> to, host::Spot<S> from, int valid = kBytes, Here here = Here::now()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
  host::Runner& me = host::self(here);
  if (valid < 0 || valid > kBytes) {
    host::refuse(TX_HOST_BOUNDS, here, "%d of %d bytes of a cp.async are to be read", valid, kBytes);
  }
  u8* const target = host::own_shared(to, here);
  const host::Actor actor{host::agent_of(me.copies.agent), ++me.copies.started, &me, host::Proxy::kCopy, here};
  if (valid > 0) host::touch_spot(from, valid, kBytes, host::Mode::kRead, actor);
  host::touch_spot(to, kBytes, kBytes, host::Mode::kWrite, actor);
  host::Copy* const copy = new host::Copy{&me, here, &me.copies, me.copies.started};
  copy->pieces.push_back({target, reinterpret_cast<const u8*>(from.data), static_cast<u32>(valid)});
  if (valid < kBytes) copy->pieces.push_back({target + valid, nullptr, static_cast<u32>(kBytes - valid)});
  host::crew.copies.push_back(copy);
}
TX_ONCE void cp_async_close(Here here = Here::now()) { host::close_group(host::self(here).copies); }
template <int kBehind>
inline void cp_async_wait(Here here = Here::now()) {
  host::Runner& me = host::self(here);
  const u32 over = host::over_with(me.copies, kBehind);
  if (over == 0) return;
  host::finish_group(me, me.copies, over, false);
  me.known.raise(host::kOver, me.copies.agent, over);
  host::pause(me);
}

TX_ONCE void bulk_close(Here here = Here::now()) { host::close_group(host::self(here).stores); }
template <int kBehind>
inline void bulk_wait_read(Here here = Here::now()) {
  host::Runner& me = host::self(here);
  const u32 over = host::over_with(me.stores, kBehind);
  if (over == 0) return;
  host::finish_group(me, me.stores, over, true);
  me.known.raise(host::kOver, me.stores.read_agent, over);
  host::pause(me);
}
template <int kBehind>
inline void bulk_wait(Here here = Here::now()) {
  host::Runner& me = host::self(here);
  const u32 over = host::over_with(me.stores, kBehind);
  if (over == 0) return;
  host::finish_group(me, me.stores, over, false);
  me.known.raise(host::kOver, me.stores.read_agent, over);
  me.known.raise(host::kOver, me.stores.agent, over);
  host::pause(me);
}

namespace host {

TX_ONCE void fence_stores(Runner& me, View view) {
  me.known.raise(view, me.agent, me.time);
  if (me.copies.agent != 0) me.known.raise(view, me.copies.agent, me.known.of(kOver, me.copies.agent));
  ++me.time;
}

// A product that a thread of a warpgroup starts reads `bytes` of shared memory; the group that it is in ends that.
template <class T>
inline void product_reads(Spot<T> from, i64 bytes, Site site) {
  Runner& me = self(site);
  own_shared(from, site);
  touch_spot(from, bytes, 16, Mode::kRead,
             {agent_of(me.products.agent), ++me.products.started, &me, Proxy::kAsync, site});
}

// This thread's share of the products up to number `over`: from now on its registers hold them.
TX_ONCE void finish_products(Runner& me, u32 over) {
  size_t done = 0;
  while (done < me.products.shares.size() && me.products.shares[done].first <= over) {
    me.products.shares[done++].second();
  }
  me.products.shares.erase(me.products.shares.begin(), me.products.shares.begin() + static_cast<long>(done));
  me.known.raise(kOver, me.products.agent, over);
}

}  // namespace host

TX_ONCE void fence_async_shared(Here here = Here::now()) { host::fence_stores(host::self(here), host::kFencedShared); }
TX_ONCE void fence_async_global(Here here = Here::now()) { host::fence_stores(host::self(here), host::kFencedGlobal); }

TX_ONCE void wgmma_fence(Here here = Here::now()) { ++host::self(here).thread.fences; }
TX_ONCE void wgmma_close(Here here = Here::now()) { host::close_group(host::self(here).products); }
// The lanes of a warp wait as one: none goes on while another's product still reads.
template <int kBehind>
inline void wgmma_wait(Here here = Here::now()) {
  const auto perform = [](host::Runner* const* warp) {
    for (int lane = 0; lane < 32; ++lane) {
      const u32 over = host::over_with(warp[lane]->products, kBehind);
      if (over > 0) host::finish_products(*warp[lane], over);
    }
  };
  host::gather(32, "wgmma_wait", host::self(here), perform, here);
}

}  // namespace tx
