// One comparison of PTX, for instructions that compare lane by lane. setp and set, which compare whole rows of
// lanes, have theirs in vector_compare.cc.
#pragma once

#include "server/backends/soft/ptx/vector_ops.h"

namespace detshare::soft::ptx {

// T is float or an integer type. No integer is a NaN.
template <class T>
bool Holds(Compare compare, T a, T b) {
  switch (compare) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a < b || a > b;
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
    case Compare::kGt:
      return a > b;
    case Compare::kGe:
      return a >= b;
    case Compare::kEqu:
      return !(a < b || a > b);
    case Compare::kNeu:
      return !(a == b);
    case Compare::kLtu:
      return !(a >= b);
    case Compare::kLeu:
      return !(a > b);
    case Compare::kGtu:
      return !(a <= b);
    case Compare::kGeu:
      return !(a < b);
    case Compare::kNum:
      return a == a && b == b;
    case Compare::kNan:
      return a != a || b != b;
  }
  return false;
}

}  // namespace detshare::soft::ptx
