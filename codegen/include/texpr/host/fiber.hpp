#line 2 "/texpr/include/texpr/host/fiber.hpp"
// A switch between stacks: the callee-saved registers and the stack pointer. One fiber is one CUDA thread.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#if !defined(__x86_64__)
#define TX_HOST_UCONTEXT 1  // the portable way, slower by a system call for each switch
#endif
#if defined(TX_HOST_UCONTEXT)
#include <ucontext.h>
#endif

namespace tx::host {

constexpr size_t kStackBytes = 1024 * 1024;  // address space; pages are taken when touched

// The stacks of one block's threads, mapped together.
struct Stacks {
  unsigned char* base = nullptr;
  size_t bytes = 0;

  bool map(int threads) {
    bytes = static_cast<size_t>(threads) * kStackBytes;
    void* const got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base = got == MAP_FAILED ? nullptr : static_cast<unsigned char*>(got);
    return base != nullptr;
  }
  void unmap() {
    if (base != nullptr) munmap(base, bytes);
    base = nullptr;
  }
  unsigned char* of(int thread) const { return base + static_cast<size_t>(thread) * kStackBytes; }
};

#if !defined(TX_HOST_UCONTEXT)

extern "C" void tx_host_switch(void** from, void* to);
asm(R"(
    .text
    .type tx_host_switch, @function
tx_host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size tx_host_switch, .-tx_host_switch
)");

struct Fiber {
  void* stack_pointer = nullptr;

  // Makes the next switch to this fiber call `entry`, which must not return.
  void prepare(unsigned char* stack, void (*entry)()) {
    void** const top = reinterpret_cast<void**>(stack + kStackBytes);
    top[-1] = nullptr;  // the return address that `entry` does not use: keeps the alignment of a call
    top[-2] = reinterpret_cast<void*>(entry);
    for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
    stack_pointer = top - 8;
  }
  void switch_to(Fiber& next) { tx_host_switch(&stack_pointer, next.stack_pointer); }
};

#else

struct Fiber {
  ucontext_t context;

  void prepare(unsigned char* stack, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
  }
  void switch_to(Fiber& next) { swapcontext(&context, &next.context); }
};

#endif

}  // namespace tx::host
