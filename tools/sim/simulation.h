// Many devices: programs from a trace, placed, and each device simulated under each policy.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "policy/policy.h"
#include "tools/sim/device_simulation.h"
#include "tools/sim/trace.h"

namespace detshare::sim {

struct Options {
  std::vector<std::string> policies = {"auto"};
  std::vector<std::string> placements = {"workload-aware"};
  std::map<std::string, std::string> parameters;  // for those policies that have them
  policy::DeviceShape device{132, 8};
  uint64_t device_memory = 141'000'000'000;
  int devices = 1;
  int trainings = 1;  // on all devices together; every second one is bound by memory
  double hours = 1;
  LanguageModel model;
  double slo_tpot = 0.030, slo_ttft = 1;  // seconds
  uint64_t seed = 1;
  int threads = 1;
};

// Sums over all devices. Times in seconds; quantiles are 0 where there is nothing to measure.
struct Summary {
  std::string policy, placement;
  uint64_t programs = 0, unplaced = 0;  // programs whose memory fitted nowhere
  uint64_t requests = 0, unfinished = 0;
  double latency_p50 = 0, latency_p95 = 0, latency_p99 = 0;
  double ttft_p50 = 0, ttft_p95 = 0, ttft_p99 = 0;
  double tpot_p50 = 0, tpot_p95 = 0, tpot_p99 = 0;
  double ttft_violations = 0, tpot_violations = 0;  // shares of the requests that have them
  double utilisation = 0;                           // work done, as if alone, by device time
  double training = 0;                              // speed of the trainings, 1: as alone
  double fairness = 0;  // Jain's index of the speeds that programs have while they have work
  uint64_t decisions = 0;
};

// A summary for each policy and placement, in the order in which they are named. The same for every
// number of threads. `progress` is called from one of them at a time, with runs done and all.
absl::StatusOr<std::vector<Summary>> Simulate(const Options& options, const Trace& trace,
                                              const std::function<void(int, int)>& progress);

}  // namespace detshare::sim
