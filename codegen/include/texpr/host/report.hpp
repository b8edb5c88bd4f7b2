#line 2 "/texpr/include/texpr/host/report.hpp"
// The plain C interface of a launch on the CPU, and the report of what a check found.
#pragma once
#include <cstdio>

#include "texpr/types.cuh"

extern "C" {

// One kernel argument: an array (its first byte and its length in bytes) or a value (where it lies and its size).
struct tx_host_argument {
  void* data;
  long long bytes;
};

enum tx_host_kind {
  TX_HOST_OK = 0,
  TX_HOST_BOUNDS = 1,      // an access outside its tensor
  TX_HOST_RACE = 2,        // two unordered accesses to one element, one of them writing
  TX_HOST_UNDEFINED = 3,   // a read of an element that nothing wrote
  TX_HOST_DIVERGENCE = 4,  // threads that should meet at a barrier do not
  TX_HOST_GATHER = 5,      // a subscript from data outside its dimension
  TX_HOST_UNIQUE = 6,      // the promise #unique is broken
  TX_HOST_LAUNCH = 7,      // arguments or launch shape that do not fit the kernel
  TX_HOST_ALIGNMENT = 8,   // an access at an address that its width does not divide
  TX_HOST_DEADLOCK = 9,    // nobody can go on, or might not be able to
  TX_HOST_PHASE = 10,   // an mbarrier or a cluster's barrier used in another phase, or with other counts, than it has
  TX_HOST_EXITED = 11,  // shared memory of a block that may have ended
};

// The first finding of a launch. `thread` and `block` made it at file:line; the `other_` ones are its counterpart in a
// race or divergence (line 0: none). The buffer's name is in the message.
struct tx_host_report {
  int kind;
  int line;
  int other_line;
  int thread;
  int other_thread;
  long long block;
  long long other_block;
  long long index;
  char file[128];
  char other_file[128];
  char message[256];
};
}

namespace tx::host {

// A place in the program's text. Files are literals of the compiler, so they are compared and kept as pointers.
struct Site {
  const char* file = "";
  int line = 0;

  // As the default of a last parameter: the place of the call.
  static Site now(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

TX_ONCE void copy_text(char* to, size_t size, const char* from) { std::snprintf(to, size, "%s", from); }

}  // namespace tx::host
