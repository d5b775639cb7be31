#include "server/web/history.h"

#include <algorithm>
#include <utility>

namespace detshare {
namespace {

constexpr int64_t kMarkPeriod = 10'000'000'000;
constexpr size_t kMaxMarks = 7;

int TotalSms(const Observation& observation) {
  int sms = 0;
  for (const DeviceObservation& device : observation.devices) sms += device.sm_count;
  return std::max(sms, 1);
}

double Rate(uint64_t now, uint64_t then, double seconds) {
  return now > then ? static_cast<double>(now - then) / seconds : 0;
}

TenantPoint PointOf(const TenantObservation& now, const TenantObservation& then, double seconds,
                    int sms) {
  TenantPoint point;
  point.sm_share =
      std::clamp((now.samples.sm_seconds - then.samples.sm_seconds) / seconds / sms, 0.0, 1.0);
  const int64_t throttled = now.work.throttled_by_window + now.work.throttled_by_budget -
                            then.work.throttled_by_window - then.work.throttled_by_budget;
  point.throttled_share = std::max(0.0, static_cast<double>(throttled) / 1e9 / seconds);
  point.operations = Rate(now.use.counters.operations, then.use.counters.operations, seconds);
  point.tokens = Rate(now.work.tokens, then.work.tokens, seconds);
  point.device_memory = now.use.counters.device_memory;
  const DurationCounts bursts = now.work.bursts.Since(then.work.bursts);
  point.bursts = bursts.total();
  point.burst_p50 = bursts.Quantile(0.5);
  point.burst_p99 = bursts.Quantile(0.99);
  point.tpot_p99 = now.work.tokens_apart.Since(then.work.tokens_apart).Quantile(0.99);
  return point;
}

const TenantObservation& Of(const std::map<std::string, TenantObservation>& tenants,
                            const std::string& name) {
  static const TenantObservation* const nothing = new TenantObservation;
  const auto found = tenants.find(name);
  return found != tenants.end() ? found->second : *nothing;
}

}  // namespace

void History::Add(const Observation& now) {
  Totals totals{now.at_ns, now.tenants, {}};
  for (const DeviceObservation& device : now.devices)
    totals.device_busy.push_back(device.busy_seconds);
  if (marks_.empty() || now.at_ns - marks_.back().at_ns >= kMarkPeriod) {
    marks_.push_back(totals);
    if (marks_.size() > kMaxMarks) marks_.pop_front();
  }
  const Totals then = std::exchange(last_, std::move(totals));
  if (then.at_ns == 0 || now.at_ns <= then.at_ns) return;

  HistoryPoint point;
  point.number = points_.empty() ? 1 : points_.back().number + 1;
  point.unix_ms = now.unix_ms;
  point.seconds = static_cast<double>(now.at_ns - then.at_ns) / 1e9;
  for (size_t i = 0; i < now.devices.size(); ++i) {
    // A device that was not there before has done nothing yet.
    const double before =
        i < then.device_busy.size() ? then.device_busy[i] : now.devices[i].busy_seconds;
    const double busy = now.devices[i].busy_seconds - before;
    point.devices.push_back(
        {std::clamp(busy / point.seconds, 0.0, 1.0), now.devices[i].used_memory});
  }
  std::vector<std::pair<std::string, TenantPoint>> tenants;
  for (const auto& [name, tenant] : now.tenants) {
    const TenantPoint one = PointOf(tenant, Of(then.tenants, name), point.seconds, TotalSms(now));
    if (tenant.use.open != 0 || one.operations > 0) tenants.emplace_back(name, one);
  }
  if (tenants.size() > kMaxTenants) {
    std::nth_element(tenants.begin(), tenants.begin() + kMaxTenants, tenants.end(),
                     [](const auto& a, const auto& b) {
                       return std::pair(a.second.sm_share, a.second.operations) >
                              std::pair(b.second.sm_share, b.second.operations);
                     });
    tenants.resize(kMaxTenants);
  }
  point.tenants.insert(tenants.begin(), tenants.end());
  for (const SessionObservation& session : now.sessions) {
    const auto tenant = point.tenants.find(session.tenant);
    if (tenant == point.tenants.end()) continue;
    auto& ranges = tenant->second.ranges;
    for (const PlaceObservation& place : session.places) {
      const SmRange range{place.device, place.first_sm, place.sm_count};
      if (range.sm_count != 0 && ranges.size() < kMaxRanges &&
          std::find(ranges.begin(), ranges.end(), range) == ranges.end())
        ranges.push_back(range);
    }
  }
  points_.push_back(std::move(point));
  if (points_.size() > kMaxPoints) points_.pop_front();
}

std::map<std::string, RecentTenant> History::Recent(const Observation& now) const {
  std::map<std::string, RecentTenant> recent;
  static const Totals* const nothing = new Totals;
  const Totals& then = marks_.empty() ? *nothing : marks_.front();
  for (const auto& [name, tenant] : now.tenants) {
    const TenantObservation& before = Of(then.tenants, name);
    RecentTenant& one = recent[name];
    one.seconds = marks_.empty() ? 0 : static_cast<double>(now.at_ns - then.at_ns) / 1e9;
    WorkTotals& work = one.work;
    work = tenant.work;
    work.throttled_by_window -= before.work.throttled_by_window;
    work.throttled_by_budget -= before.work.throttled_by_budget;
    work.tokens -= before.work.tokens;
    work.late_bursts -= before.work.late_bursts;
    work.late_first_tokens -= before.work.late_first_tokens;
    work.late_tokens -= before.work.late_tokens;
    work.bursts = work.bursts.Since(before.work.bursts);
    work.throttles = work.throttles.Since(before.work.throttles);
    work.operations = work.operations.Since(before.work.operations);
    work.first_tokens = work.first_tokens.Since(before.work.first_tokens);
    work.tokens_apart = work.tokens_apart.Since(before.work.tokens_apart);
    for (const auto& [holder, seconds] : tenant.samples.waits_for) {
      const auto was = before.samples.waits_for.find(holder);
      const double waited = seconds - (was != before.samples.waits_for.end() ? was->second : 0.0);
      if (waited > 0) one.waits_for[holder] = waited;
    }
  }
  return recent;
}

}  // namespace detshare
