#line 2 "/texpr/include/texpr/elements.cuh"
// What stands for an element without being its value, such as one that is checked when it is read, or that lies in a
// word with others: it is read where it is used as a value, and written where something is assigned to it. Its type is
// `is_element`, and `value()` reads it.
#pragma once
#include "texpr/update.cuh"

namespace tx {

template <class T>
TX_FN auto value_of(const T& what) {
  if constexpr (is_element<T>) {
    return what.value();
  } else {
    return what;
  }
}

// Functions of values, where some of these are elements.
template <class... A>
using IfElements = typename Holds<(is_element<A> || ...)>::type;
#define TX_ON_ELEMENTS(function)              \
  template <class... A, IfElements<A...> = 0> \
  TX_FN auto function(const A&... a) {        \
    return function(value_of(a)...);          \
  }
TX_ON_ELEMENTS(wrap_add)
TX_ON_ELEMENTS(wrap_sub)
TX_ON_ELEMENTS(wrap_mul)
TX_ON_ELEMENTS(wrap_neg)
TX_ON_ELEMENTS(floor_div)
TX_ON_ELEMENTS(floor_mod)
TX_ON_ELEMENTS(ceil_div)
TX_ON_ELEMENTS(shl)
TX_ON_ELEMENTS(shr)
TX_ON_ELEMENTS(min)
TX_ON_ELEMENTS(max)
TX_ON_ELEMENTS(abs)
TX_ON_ELEMENTS(fma)
TX_ON_ELEMENTS(less)
TX_ON_ELEMENTS(div)
TX_ON_ELEMENTS(xlogy)
TX_ON_ELEMENTS(sigmoid)
#undef TX_ON_ELEMENTS
template <class To, class A, IfElements<A> = 0>
TX_FN To cast(const A& a) {
#if !defined(TX_HOST)
  if constexpr (is_byte_in_word<A> && (same<To, f32> || is_narrow<To>)) return cast<To>(a.as_f32());
#endif
  return cast<To>(value_of(a));
}

}  // namespace tx
