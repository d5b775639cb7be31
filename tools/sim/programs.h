// The work of the simulated programs.
#pragma once

#include <cstdint>

#include "policy/policy.h"
#include "tools/sim/device_model.h"

namespace detshare::sim {

// A language model on one device. Arithmetic and traffic for each token follow from the number of
// parameters, on a device like an H200: 500 TFLOPS in matrix products, 3.8 TB/s.
struct LanguageModel {
  double billions = 8;     // of parameters, two bytes each
  int max_sequences = 64;  // in a batch

  uint64_t bytes() const { return static_cast<uint64_t>(billions * 2e9); }
  // The work of reading all tokens of a prompt at once.
  Work Prefill(double tokens) const {
    return {tokens * ArithmeticPerToken(), WeightTraffic() + tokens * CacheTraffic()};
  }
  // The work of making a token for each of `sequences`, whose contexts have `context` tokens in
  // all.
  Work Decode(double sequences, double context) const {
    return {sequences * ArithmeticPerToken(), WeightTraffic() + context * CacheTraffic()};
  }

 private:
  double ArithmeticPerToken() const { return 2 * billions * 1e9 / 500e12 * 1e9; }
  double WeightTraffic() const { return 2 * billions * 1e9 / 3.8e12 * 1e9; }
  // 16 KiB for each token and each billion of parameters.
  double CacheTraffic() const { return billions * 16384 / 3.8e12 * 1e9; }
};

// The lengths of a program's operations.
struct Operations {
  policy::Nanoseconds typical = 0, longest = 0;
};

inline constexpr Operations kDecodeOperations = {20 * policy::kMicrosecond,
                                                 200 * policy::kMicrosecond};
inline constexpr Operations kPrefillOperations = {150 * policy::kMicrosecond, policy::kMillisecond};
inline constexpr Operations kTrainingOperations = {30 * policy::kMicrosecond, policy::kMillisecond};
inline constexpr Operations kFunctionOperations = {50 * policy::kMicrosecond,
                                                   500 * policy::kMicrosecond};

// One step of a training, which takes 57 ms alone on the whole device.
inline Work TrainingStep(bool memory_bound) {
  return memory_bound ? Work{30e6, 57e6} : Work{57e6, 25e6};
}

}  // namespace detshare::sim
