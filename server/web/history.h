// The last minutes of a daemon, a point a second: what charts are drawn of.
//
// One thread at a time. Memory is bounded: points, and tenants of a point.
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

// Rates are over the time since the point before.
struct TenantPoint {
  double sm_share = 0;    // of the SMs of all devices, while busy there
  double throttled_share = 0;  // of the time of its sessions together: above 1 with several
  double operations = 0;  // a second
  double tokens = 0;      // a second
  uint64_t device_memory = 0;
  uint64_t bursts = 0;                                 // that ended
  std::vector<SmRange> ranges;                         // where its sessions' work went, each once
  int64_t burst_p50 = 0, burst_p99 = 0, tpot_p99 = 0;  // nanoseconds; 0: there were none
};

struct DevicePoint {
  double busy_share = 0;
  uint64_t used_memory = 0;
};

struct HistoryPoint {
  uint64_t number = 0;  // 1 for the first
  int64_t unix_ms = 0;
  double seconds = 0;  // since the point before
  std::vector<DevicePoint> devices;
  std::map<std::string, TenantPoint> tenants;  // who had sessions or did something
};

// Of one tenant, over the last minute or what there is of it.
struct RecentTenant {
  double seconds = 0;  // how long that is
  WorkTotals work;
  WaitsFor waits_for;
};

class History {
 public:
  static constexpr size_t kMaxPoints = 600;
  static constexpr size_t kMaxRanges = 16;   // of a tenant in a point
  static constexpr size_t kMaxTenants = 32;  // of a point, those that use most

  // Needs a Observation of before to say something, so that the first one makes no point.
  void Add(const Observation& now);

  const std::deque<HistoryPoint>& points() const { return points_; }
  // Up to `now`.
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
