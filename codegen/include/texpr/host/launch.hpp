#line 2 "/texpr/include/texpr/host/launch.hpp"
// Runs a grid: unpacks the arguments by the kernel's own parameter types, then block after block in a seeded order.
#pragma once
#include <utility>

#include "texpr/host/race.hpp"

namespace tx::host {

template <class P>
struct IsPointer {
  static constexpr bool value = false;
};
template <class P>
struct IsPointer<P*> {
  static constexpr bool value = true;
};

template <class P>
inline P argument_value(const tx_host_argument& argument) {
  if constexpr (IsPointer<P>::value) {
    return static_cast<P>(argument.data);
  } else {
    P value;
    std::memcpy(&value, argument.data, sizeof value);
    return value;
  }
}

TX_ONCE bool add_tensor(const void* data, i64 bytes) {
  if (machine.tensor_count == kMaxTensors || bytes < 0) return false;
  machine.tensors[machine.tensor_count++] = {data, bytes, nullptr};
  return true;
}

// The arrays that a value of type P brings with it: none, but for a tensor map (tma.hpp).
template <class P>
struct ArraysOf {
  static bool add(const void*) { return true; }
};

template <class P>
inline bool argument_fits(const tx_host_argument& argument) {
  if constexpr (IsPointer<P>::value) {
    return add_tensor(argument.data, argument.bytes);
  } else {
    return argument.bytes == static_cast<i64>(sizeof(P)) && ArraysOf<P>::add(argument.data);
  }
}

template <class... P>
struct Call {
  void (*kernel)(P...);
  const tx_host_argument* arguments;

  template <size_t... I>
  void run(std::index_sequence<I...>) const {
    kernel(argument_value<P>(arguments[I])...);
  }
  static void body(const void* self) { static_cast<const Call*>(self)->run(std::index_sequence_for<P...>{}); }
};

TX_ONCE void free_launch(Stacks& stacks) {
  stacks.unmap();
  for (int i = 0; i < machine.tensor_count; ++i) std::free(machine.tensors[i].cells);
  std::free(machine.shared);
  std::free(machine.shared_cells);
  std::free(machine.shared_defined);
}

TX_ONCE bool allocate_launch(Stacks& stacks) {
  machine.shared = nullptr;
  machine.shared_cells = nullptr;
  machine.shared_defined = nullptr;
  if (!stacks.map(machine.threads)) return false;
  if (machine.shared_bytes == 0) return true;
  const size_t bytes = static_cast<size_t>(machine.shared_bytes);
  machine.shared = static_cast<u8*>(std::aligned_alloc(1024, (bytes + 1023) / 1024 * 1024));
  machine.shared_cells = static_cast<Cell*>(std::calloc(bytes, sizeof(Cell)));
  machine.shared_defined = static_cast<u8*>(std::calloc(bytes, 1));
  return machine.shared != nullptr && machine.shared_cells != nullptr && machine.shared_defined != nullptr;
}

TX_ONCE void stand_at_block(i64 block) {
  machine.block = block;
  machine.block_at[0] = static_cast<int>(block % machine.grid[0]);
  machine.block_at[1] = static_cast<int>(block / machine.grid[0] % machine.grid[1]);
  machine.block_at[2] = static_cast<int>(block / machine.grid[0] / machine.grid[1]);
}

TX_ONCE void run_grid(const Stacks& stacks, u32 seed) {
  const i64 blocks = machine.grid[0] * machine.grid[1] * machine.grid[2];
  const Order order(blocks, seed);
  for (i64 k = 0; k < blocks && !machine.failed; ++k) {
    stand_at_block(order.at(k));
    run_block(stacks, seed);
  }
}

// Runs the launch that the machine holds, block after block.
struct Alone {
  void run(u32 seed) const {
    Stacks stacks;
    if (allocate_launch(stacks)) {
      run_grid(stacks, seed);
    } else {
      found(TX_HOST_LAUNCH, Site{}, "not enough memory to run the launch with checks");
    }
    free_launch(stacks);
  }
};

// The exported entry of a kernel; `way` says how its blocks are run. Not for two threads at once: the machine is one.
template <class Way, class... P>
inline int launch(const Way& way, void (*kernel)(P...), const tx_host_argument* arguments, int count,
                  const long long* grid, int block, int shared_bytes, unsigned seed, tx_host_report* report) {
  std::memset(report, 0, sizeof *report);
  const Call<P...> call{kernel, arguments};
  machine.body = Call<P...>::body;
  machine.body_data = &call;
  machine.threads = block;
  machine.shared_bytes = shared_bytes;
  machine.tensor_count = 0;
  machine.report = report;
  machine.failed = false;
  machine.company = nullptr;
  bool fits = count == static_cast<int>(sizeof...(P)) && block > 0 && block <= kMaxThreads && shared_bytes >= 0;
  for (int axis = 0; axis < 3; ++axis) {
    machine.grid[axis] = grid[axis];
    fits = fits && grid[axis] >= 0 && grid[axis] <= 0x7fffffff;
  }
  int next = 0;
  if (fits) ((fits = argument_fits<P>(arguments[next++]) && fits), ...);
  if (!fits) {
    found(TX_HOST_LAUNCH, Site{}, "the arguments or the launch shape do not fit the kernel");
    return report->kind;
  }
  way.run(seed);
  return report->kind;
}

}  // namespace tx::host
