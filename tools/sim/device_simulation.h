// Simulates the programs of one device in virtual time, under a policy.
//
// The simulator carries out decisions by the rules of policy/policy.h, with work as a flow
// (device_model.h) instead of single operations. A stopped program goes on until the work that it
// has in the hardware is done. That work is its window and one operation; for a program without a
// window it is at most kLaunchAhead.
//
// With DeviceShape::preemption every program preempts while its grant is urgent. Urgent programs
// then run on the whole device, in turns with the others (turns.h).
//
// Language models serve by continuous batching. A step is the prompt of the request that waits
// longest, if the batch has room, or a token of each sequence of the batch. Other services do one
// request after the other.
//
// The simulator steps over long stretches. A stretch begins when, for kStretch and for
// kStretchSteps tokens of every working model, no request came or ended and no prompt was read. The
// simulator takes the mean speeds of that time to hold until the next such event.
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
  LanguageModel model;            // kLanguageModel only
  Work step;                      // kTraining only: one step
  std::vector<Request> requests;  // kLanguageModel and kService, by time
};

struct ProgramResult {
  std::vector<float> latency;     // seconds, of each request that ended
  std::vector<float> ttft, tpot;  // seconds, of each request that has them
  uint64_t unfinished = 0;        // requests
  double device_seconds = 0;      // work done, as device time alone on the whole device
  double busy_seconds = 0;        // time with work
};

struct DeviceResult {
  std::vector<ProgramResult> programs;
  uint64_t decisions = 0;
};

// `policy` must not be used for another device. Equal arguments, with policies in equal states,
// give equal results.
DeviceResult SimulateDevice(const policy::DeviceShape& device, policy::Policy& policy,
                            const std::vector<Program>& programs, double hours);

}  // namespace detshare::sim
