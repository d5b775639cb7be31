#include "tools/sim/device_model.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace detshare::sim {

double Bandwidth(double share_of_sms) {
  struct Point {
    double sms, bandwidth;
  };
  constexpr std::array<Point, 4> kPoints = {{{0, 0}, {8. / 132, 0.20}, {64. / 132, 0.97}, {1, 1}}};
  for (size_t i = 1; i < kPoints.size(); ++i) {
    const Point &low = kPoints[i - 1], &high = kPoints[i];
    if (share_of_sms > high.sms) continue;
    const double part = (share_of_sms - low.sms) / (high.sms - low.sms);
    return low.bandwidth + part * (high.bandwidth - low.bandwidth);
  }
  return 1;
}

void Rates(const policy::DeviceShape& device, const std::vector<Running>& running,
           std::vector<double>* rates) {
  const size_t count = running.size();
  rates->assign(count, 0);
  const int groups = device.groups();
  // The share of the device's SMs that each program has. The programs that share a group of SMs
  // divide it equally.
  const auto begin = [&](const Running& one) { return one.range.whole() ? 0 : one.range.first; };
  const auto end = [&](const Running& one) {
    return one.range.whole() ? device.sm_count : one.range.first + one.range.count;
  };
  std::vector<double> share(count, 0);
  for (int group = 0; group < groups; ++group) {
    const policy::SmRange sms = device.Groups(group, group + 1);
    int sharers = 0;
    for (const Running& one : running) {
      sharers += begin(one) <= sms.first && sms.first + sms.count <= end(one);
    }
    if (sharers == 0) continue;
    const double part = static_cast<double>(sms.count) / sharers / device.sm_count;
    for (size_t i = 0; i < count; ++i) {
      if (begin(running[i]) <= sms.first && sms.first + sms.count <= end(running[i])) {
        share[i] += part;
      }
    }
  }

  // First the rates without the traffic of other programs, and the bandwidth that each program
  // wants at this rate.
  std::vector<double> wanted(count, 0);
  for (size_t i = 0; i < count; ++i) {
    if (share[i] <= 0) continue;
    const Work& work = running[i].work;
    const double time = std::max(work.arithmetic / share[i], work.memory / Bandwidth(share[i]));
    (*rates)[i] = time > 0 ? work.alone() / time : 1;
    if (work.alone() > 0) wanted[i] = work.memory / work.alone() * (*rates)[i];
  }
  double left = 1;
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });
  for (size_t k = 0; k < count; ++k) {
    const size_t i = order[k];
    const double given = std::min(wanted[i], left / static_cast<double>(count - k));
    if (wanted[i] > 0) (*rates)[i] *= given / wanted[i];
    left -= given;
  }
}

}  // namespace detshare::sim
