#line 2 "/texpr/include/texpr/host/host.hpp"
// Forced in before an emitted kernel (`g++ -include texpr/host/host.hpp -x c++ kernel.cu`): the words of CUDA C++ that
// the text uses, with their meaning on the CPU.
#pragma once
#define TX_HOST 1
#define __global__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define TX_DYN_SMEM(name) tx::u8* const name = tx::host::machine.shared
// The entry of a kernel whose blocks only have barriers, and of one whose blocks do more: `way` is a tx::Launched
// (host/crew.hpp).
#define TX_EXPORT(symbol) TX_EXPORT_AS(symbol, tx::host::Alone())
#define TX_EXPORT_AS(symbol, way)                                                                                      \
  extern "C" __attribute__((visibility("default"))) int tx_host_launch_##symbol(                                       \
      const tx_host_argument* arguments, int count, const long long* grid, int block, int shared_bytes, unsigned seed, \
      tx_host_report* report) {                                                                                        \
    return tx::host::launch(way, symbol, arguments, count, grid, block, shared_bytes, seed, report);                   \
  }                                                                                                                    \
  static_assert(true, "")
