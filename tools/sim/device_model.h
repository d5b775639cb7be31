// The simulator's model of a GPU: how fast programs that share the device make progress.
//
// Work is arithmetic and memory traffic at once. Alone on the whole device, each of the two takes a
// time, and the work takes the longer time. Beside other work:
//
//   - On s of S SMs the arithmetic takes S / s times as long. Running programs share equally the
//     SMs that lie in several of their partitions.
//   - s SMs draw at most Bandwidth(s / S) of the device's bandwidth, so few SMs draw much of it.
//     The curve goes through points that were measured on an H200: 8 of 132 SMs draw 20 %, 64 draw
//     97 %.
//   - All programs together draw at most the device's bandwidth. A program that gets less than an
//     equal part of it gets all that it wants.
//   - Work that is in the hardware is not taken back. Devices that preempt stop it for a while
//     (turns.h).
//
// The model has no caches, no launch overhead and no effect of clocks.
#pragma once

#include <vector>

#include "policy/policy.h"

namespace detshare::sim {

struct Work {
  double arithmetic = 0, memory = 0;  // nanoseconds, each alone on the whole device
  // Nanoseconds that the work takes alone on the whole device.
  double alone() const { return arithmetic > memory ? arithmetic : memory; }
};

// The share of the device's bandwidth that this share of its SMs can draw. Both are 0 to 1.
double Bandwidth(double share_of_sms);

// A running program: the SMs that it may use and the work that it does.
struct Running {
  policy::SmRange range;
  Work work;
};

// Sets rates[i] to the speed of running[i], relative to its speed alone on the whole device. It is
// at most 1, and 0 for a program that has no SM.
void Rates(const policy::DeviceShape& device, const std::vector<Running>& running,
           std::vector<double>* rates);

}  // namespace detshare::sim
