// One device in virtual time: its programs, and a policy that decides about them.
//
// Decisions are carried out by the rules of policy/policy.h, with work as a flow (device_model.h)
// rather than operation by operation: a program that is stopped goes on until what it has in the
// hardware is done, which is its window and one operation (everything that it gave, up to
// kLaunchAhead, if it had no window).
//
// Language models serve by continuous batching: a step is the prompt of the request that waits
// longest, as long as there is room in the batch, or a token of each sequence of the batch. Other
// services do one request after the other.
//
// Long stretches are stepped over: when no request came or ended, and no prompt was read, for
// kStretch and kStretchSteps tokens of every model that works, the mean speeds since then are taken
// to hold until the next such event.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "policy/policy.h"
#include "tools/sim/programs.h"
#include "tools/sim/trace.h"

namespace detshare::sim {

struct Program {
  enum class Kind { kLanguageModel, kService, kTraining };
  Kind kind = Kind::kTraining;
  policy::Tenant tenant;
  LanguageModel model;            // of a language model
  Work step;                      // of a training
  std::vector<Request> requests;  // of the two others, by time
};

struct ProgramResult {
  std::vector<float> latency;  // of requests that ended, seconds
  std::vector<float> ttft, tpot;
  uint64_t unfinished = 0;
  double device_seconds = 0;  // done, as if alone
  double busy_seconds = 0;    // with work
};

struct DeviceResult {
  std::vector<ProgramResult> programs;
  uint64_t decisions = 0;
};

// `policy` is the device's own. Equal arguments give equal results.
DeviceResult SimulateDevice(const policy::DeviceShape& device, policy::Policy& policy,
                            const std::vector<Program>& programs, double hours);

}  // namespace detshare::sim
