// Keeps the last minutes of a daemon, one point a second, for charts.
//
// Its memory is bounded in points and in tenants of a point. One thread at a time uses it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "server/web/observation.h"

namespace detshare {

struct SmRange {
  int device = 0, first_sm = 0, sm_count = 0;
  friend bool operator==(const SmRange&, const SmRange&) = default;
};

// One tenant's work since the point before. Rates are over that time.
struct TenantPoint {
  double sm_share = 0;  // of the SMs of all devices, while busy there
  // Sum of its sessions' shares of the time in which they were throttled; may exceed 1.
  double throttled_share = 0;
  double operations = 0;  // per second
  double tokens = 0;      // per second
  uint64_t device_memory = 0;
  uint64_t bursts = 0;          // bursts that ended
  std::vector<SmRange> ranges;  // where its sessions' work went, each range once
  int64_t burst_p50 = 0, burst_p99 = 0, tpot_p99 = 0;  // nanoseconds; 0: there were none
};

struct DevicePoint {
  double busy_share = 0;
  uint64_t used_memory = 0;
};

struct HistoryPoint {
  uint64_t number = 0;  // 1 for the first point
  int64_t unix_ms = 0;
  double seconds = 0;  // since the point before
  std::vector<DevicePoint> devices;
  std::map<std::string, TenantPoint> tenants;  // tenants that had sessions or did something
};

// One tenant's work over the last minute, or over the time that is recorded.
struct RecentTenant {
  double seconds = 0;  // length of that time
  WorkTotals work;
  WaitsFor waits_for;
};

class History {
 public:
  static constexpr size_t kMaxPoints = 600;
  static constexpr size_t kMaxRanges = 16;   // of one tenant in one point
  static constexpr size_t kMaxTenants = 32;  // of one point: those that use most

  // Adds a point with the difference to the observation before. The first observation makes no
  // point.
  void Add(const Observation& now);

  const std::deque<HistoryPoint>& points() const { return points_; }
  // Returns each tenant's work up to `now`.
  std::map<std::string, RecentTenant> Recent(const Observation& now) const;

 private:
  struct Totals {
    int64_t at_ns = 0;
    std::map<std::string, TenantObservation> tenants;
    std::vector<double> device_busy;
  };

  std::deque<HistoryPoint> points_;
  std::deque<Totals> marks_;  // every ten seconds of the last minute
  Totals last_;
};

}  // namespace detshare
