// What the simulated programs do.
#pragma once

#include <cstdint>

#include "policy/policy.h"
#include "tools/sim/device_model.h"

namespace detshare::sim {

// A language model on one device. Arithmetic and traffic per token follow from the parameters, on a
// device of about an H200: 500 TFLOPS in matrix products, 3.8 TB/s.
struct LanguageModel {
  double billions = 8;  // parameters, of two bytes
  int most_sequences = 64;

  uint64_t bytes() const { return static_cast<uint64_t>(billions * 2e9); }
  // All tokens of a prompt at once.
  Work Prefill(double tokens) const {
    return {tokens * ArithmeticPerToken(), WeightTraffic() + tokens * CacheTraffic()};
  }
  // A token of each of `sequences`, whose contexts have `context` tokens together.
  Work Decode(double sequences, double context) const {
    return {sequences * ArithmeticPerToken(), WeightTraffic() + context * CacheTraffic()};
  }

 private:
  double ArithmeticPerToken() const { return 2 * billions * 1e9 / 500e12 * 1e9; }
  double WeightTraffic() const { return 2 * billions * 1e9 / 3.8e12 * 1e9; }
  // 16 KiB a token for each billion of parameters.
  double CacheTraffic() const { return billions * 16384 / 3.8e12 * 1e9; }
};

// How a program's work is cut into operations.
struct Operations {
  policy::Nanoseconds typical = 0, longest = 0;
};

inline constexpr Operations kDecodeOperations = {20 * policy::kMicrosecond,
                                                 200 * policy::kMicrosecond};
inline constexpr Operations kPrefillOperations = {150 * policy::kMicrosecond, policy::kMillisecond};
inline constexpr Operations kTrainingOperations = {30 * policy::kMicrosecond, policy::kMillisecond};
inline constexpr Operations kFunctionOperations = {50 * policy::kMicrosecond,
                                                   500 * policy::kMicrosecond};

// A training without end: a step takes 57 ms. Every second one is bound by memory.
inline Work TrainingStep(bool memory_bound) {
  return memory_bound ? Work{30e6, 57e6} : Work{57e6, 25e6};
}

}  // namespace detshare::sim
