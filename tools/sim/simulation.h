// Simulates many devices: makes programs from a trace, places them on devices, and simulates each
// device under each policy.
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
  std::map<std::string, std::string> parameters;  // each goes to the policies that have it
  policy::DeviceShape device{132, 8, 190 * policy::kMicrosecond};  // an H200
  uint64_t device_memory = 141'000'000'000;                        // bytes
  int devices = 1;
  int trainings = 1;  // on all devices together; every second training is bound by memory
  double hours = 1;
  LanguageModel model;
  double slo_tpot = 0.030, slo_ttft = 1;  // seconds
  uint64_t seed = 1;
  int threads = 1;
};

// The figures of all devices together. Times are in seconds. A quantile is 0 if nothing was
// measured.
struct Summary {
  std::string policy, placement;
  uint64_t programs = 0, unplaced = 0;  // unplaced: their memory fitted on no device
  uint64_t requests = 0, unfinished = 0;
  double latency_p50 = 0, latency_p95 = 0, latency_p99 = 0;
  double ttft_p50 = 0, ttft_p95 = 0, ttft_p99 = 0;
  double tpot_p50 = 0, tpot_p95 = 0, tpot_p99 = 0;
  double ttft_violations = 0, tpot_violations = 0;  // shares of the requests that have them
  double utilisation = 0;  // device time of the work done, alone, divided by the devices' time
  double training = 0;     // speed of the trainings; 1: as fast as alone
  double fairness = 0;     // Jain's index of the speeds that programs have while they have work
  uint64_t decisions = 0;
  std::string warning;  // what is wrong with the policy; "": nothing is known
};

// A summary for each policy and placement, in the order of the options. The number of threads does
// not change the result. `progress` is called at the beginning and after the simulation of each
// device, by one thread at a time. It gets the numbers of these simulations: those that are done, and
// all.
absl::StatusOr<std::vector<Summary>> Simulate(const Options& options, const Trace& trace,
                                              const std::function<void(int, int)>& progress);

}  // namespace detshare::sim
