// What a device does in how much time: the simulator's model of the hardware.
//
// Work is arithmetic and memory traffic at once. Alone on the whole device each takes so many
// nanoseconds, and the work takes the longer of the two. Then:
//
//   - On s of S SMs the arithmetic takes S / s times as long. SMs that lie in the partitions of
//     several programs that run are shared equally.
//   - s SMs draw at most Bandwidth(s / S) of the device's bandwidth, a curve through measured
//   points
//     (an H200: 8 of 132 SMs draw 20 %, 64 draw 97 %): few SMs draw much.
//   - What all draw together is at most the bandwidth; nobody gets less than an equal part of it
//     unless he wants less.
//   - Nothing that is in the hardware is taken back.
//
// It knows no caches, no launch overhead and no effect of clocks.
#pragma once

#include <vector>

#include "policy/policy.h"

namespace detshare::sim {

struct Work {
  double arithmetic = 0, memory = 0;  // nanoseconds, alone on the whole device
  double alone() const { return arithmetic > memory ? arithmetic : memory; }
};

// Of the whole device's bandwidth, what this share of its SMs can draw. 0 to 1.
double Bandwidth(double share_of_sms);

// Something that runs.
struct Running {
  policy::SmRange range;
  Work work;
};

// rates[i]: how much faster or slower than alone on the whole device running[i] goes on: 1 is as
// fast.
void Rates(const policy::DeviceShape& device, const std::vector<Running>& running,
           std::vector<double>* rates);

}  // namespace detshare::sim
