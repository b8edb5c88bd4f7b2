#line 2 "/texpr/include/texpr/host/registers.hpp"
// What products of a warpgroup on their way do to the registers of a fragment: nobody reads or writes them before the
// wait and settle(), and wgmma_fence() stands between writing them and the next product.
#pragma once
#include "texpr/host/machine.hpp"

namespace tx::host {

struct Registers {
  int on_the_way = 0;
  bool settled = true;
  u32 fence = machine.running->fences + 1;  // the number that the fence after the last write has, or a later one

  void check_settled(Site site) const {
    if (settled) return;
    found(TX_HOST_RACE, site,
          on_the_way > 0 ? "accumulators are touched, and nothing waits for their product"
                         : "accumulators are touched before settle(), which stands between the wait and the first use");
    give_up();
  }
  void check_write(Site site) {
    check_settled(site);
    fence = machine.running->fences + 1;
  }
  void check_fenced(Site site) const {
    if (!settled || machine.running->fences >= fence) return;
    found(TX_HOST_RACE, site, "registers of a product were written, and no wgmma_fence stands between");
    give_up();
  }
};

}  // namespace tx::host
