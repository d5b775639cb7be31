// Arithmetic with times that stops at the ends of the range instead of overflowing. The times in a
// snapshot depend on what programs do, so they can have any value.
#pragma once

#include "policy/policy.h"

namespace detshare::policy {

inline Nanoseconds Plus(Nanoseconds a, Nanoseconds b) {
  Nanoseconds sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a > 0 ? kForever : std::numeric_limits<Nanoseconds>::min();
}

inline Nanoseconds Minus(Nanoseconds a, Nanoseconds b) {
  Nanoseconds difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a > b ? kForever : std::numeric_limits<Nanoseconds>::min();
}

// `factor` is finite and not negative.
inline Nanoseconds Times(Nanoseconds time, double factor) {
  const double product = static_cast<double>(time) * factor;
  if (product >= 9.2e18) return kForever;
  if (product <= -9.2e18) return std::numeric_limits<Nanoseconds>::min();
  return static_cast<Nanoseconds>(product);
}

}  // namespace detshare::policy
