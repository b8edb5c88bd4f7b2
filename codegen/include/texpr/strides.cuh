#line 2 "/texpr/include/texpr/strides.cuh"
// Where the element with some subscripts lies, in elements from the first: one stride for each dimension. Numbers are
// in the type, so that compilers see them from their first pass on.
#pragma once
#include "texpr/types.cuh"

namespace tx {

#if defined(TX_HOST)
template <class...>
using Offset = i64;  // also of subscripts that are wrong
#else
template <class... A>
using Offset = decltype((0 + ... + A{}));
#endif

// Strides that are numbers. Offsets are computed in the widest type of the subscripts.
template <int... kStrides>
struct Fixed {
  template <class... A>
  TX_FN Offset<A...> offset(A... at) const {
    static_assert(sizeof...(at) == sizeof...(kStrides), "one subscript for each dimension");
    return (... + (static_cast<Offset<A...>>(at) * kStrides));
  }
};

// Others. Index is `int` where no element lies further away.
template <int kRank, class Index = i64>
struct Strides {
  Index of[kRank];

  template <class... A>
  TX_FN Offset<Index, A...> offset(A... at) const {
    static_assert(sizeof...(at) == kRank, "one subscript for each dimension");
    Offset<Index, A...> total = 0;
    int dim = 0;
    ((total += static_cast<Offset<Index, A...>>(at) * of[dim++]), ...);
    return total;
  }
};

}  // namespace tx
