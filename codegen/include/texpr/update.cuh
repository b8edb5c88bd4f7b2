#line 2 "/texpr/include/texpr/update.cuh"
// The operators of accumulations, and what an accumulation does to an element: the old value is widened to the type of
// the new one, combined there, and rounded once into the element's type.
#pragma once
#include "texpr/math.cuh"

namespace tx {

struct Add {
  template <class V>
  static TX_FN V apply(V a, V b) {
    if constexpr (is_float<V>) {
      return a + b;
    } else {
      return wrap_add(a, b);
    }
  }
};
struct Mul {
  template <class V>
  static TX_FN V apply(V a, V b) {
    if constexpr (is_float<V>) {
      return a * b;
    } else {
      return wrap_mul(a, b);
    }
  }
};
struct Max {
  template <class V>
  static TX_FN V apply(V a, V b) {
    return max(a, b);
  }
};
struct Min {
  template <class V>
  static TX_FN V apply(V a, V b) {
    return min(a, b);
  }
};

template <class Op, class T, class V>
TX_FN T combine(T old, V value) {
  if constexpr (is_narrow<V>) {
    return encode<T>(cast<Value<T>>(narrow<V>(Op::apply(widen(cast<V>(decode(old))), widen(value)))));
  } else {
    return encode<T>(cast<Value<T>>(Op::apply(cast<V>(decode(old)), value)));
  }
}

}  // namespace tx
