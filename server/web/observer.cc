#include "server/web/observer.h"

#include <cuda.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/web/dashboard_files.h"
#include "server/web/metrics.h"
#include "server/web/status_json.h"

namespace detshare {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBusyPeriod(100), kIdlePeriod(1000);
constexpr std::chrono::milliseconds kPointPeriod(1000);

constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kJsonType[] = "application/json; charset=utf-8";

std::string TextOf(const proto::PolicySetting& policy) {
  std::string text = policy.name();
  for (const auto& [name, value] : policy.parameters())
    absl::StrAppend(&text, " ", name, "=", value);
  return text;
}

double PeakBandwidth(const DeviceProperties& properties) {
  const auto value = [&](int attribute) {
    const auto found = properties.attributes.find(attribute);
    return found != properties.attributes.end() ? std::max(found->second, 0) : 0;
  };
  // Kilohertz and bits; two transfers a clock.
  return 2e3 * value(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
         value(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8;
}

double SecondsOf(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Observer::Observer(SessionManager& manager, const Settings& settings, Options options)
    : manager_(manager),
      settings_(settings),
      options_(std::move(options)),
      sampler_(manager.devices().size()) {
  if (options_.own_thread) thread_ = std::thread([this] { Run(); });
}

Observer::~Observer() {
  {
    const std::lock_guard<std::mutex> lock(stop_mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Observer::Run() {
  pthread_setname_np(pthread_self(), "observer");
  SteadyClock::time_point last = SteadyClock::now(), next_point = last;
  for (;;) {
    const SteadyClock::time_point now = SteadyClock::now();
    const bool point = now >= next_point;
    if (point) next_point = std::max(next_point + kPointPeriod, now);
    Look(SecondsOf(now - last), point);
    last = now;
    const auto period = manager_.activity().active() ? kBusyPeriod : kIdlePeriod;
    std::unique_lock<std::mutex> lock(stop_mutex_);
    if (stopped_.wait_until(lock, std::min(now + period, std::max(next_point, now)),
                            [this] { return stop_; }))
      return;
  }
}

void Observer::Look(double seconds, bool point) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sampler_.Look(manager_, seconds);
  if (point) history_.Add(ObserveLocked());
}

Observation Observer::Observe() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ObserveLocked();
}

Observation Observer::ObserveLocked() {
  Observation seen;
  seen.at_ns = RealClock().NowNanoseconds();
  seen.unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count();
  seen.backend = options_.backend;
  seen.policy = TextOf(settings_.current().policy());
  seen.uptime_seconds = SecondsOf(SteadyClock::now() - begin_);
  seen.device_losses = options_.device_losses;
  seen.process = ReadProcessFigures();
  seen.sessions = manager_.Sessions();
  seen.most_sessions = manager_.most_sessions();
  seen.swap_limit = manager_.host_store().limit();
  seen.swap_used = manager_.host_store().used();
  seen.refusals = manager_.Refusals();
  for (auto& [name, use] : manager_.Use()) seen.tenants[name].use = use;
  const std::vector<DeviceScheduler*> schedulers = manager_.Schedulers();
  for (size_t i = 0; i < manager_.devices().size(); ++i) {
    Device& device = *manager_.devices()[i];
    const DeviceProperties& properties = device.properties();
    const Device::Memory memory = device.memory();
    DeviceObservation& one = seen.devices.emplace_back();
    one.name = properties.name;
    one.uuid = FormatUuid(properties.uuid);
    one.sm_count = properties.sm_count;
    one.total_memory = memory.total;
    one.used_memory = memory.total - std::min(memory.free, memory.total);
    one.peak_bandwidth = PeakBandwidth(properties);
    one.busy_seconds = sampler_.device_busy()[i];
    one.health = device.health();
    one.partitions = schedulers[i]->Partitions();
    for (auto& [name, totals] : schedulers[i]->Totals()) {
      TenantObservation& tenant = seen.tenants[name];
      tenant.tenant = std::move(totals.tenant);
      tenant.work += totals.work;
      tenant.memory_traffic +=
          static_cast<double>(totals.work.memory_bound) / 1e9 * one.peak_bandwidth;
    }
  }
  for (const auto& account : manager_.tenant_accounts().All()) {
    const auto tenant = seen.tenants.find(account->tenant());
    if (tenant != seen.tenants.end()) tenant->second.quota = account->limits();
  }
  for (const auto& [name, samples] : sampler_.tenants()) seen.tenants[name].samples = samples;
  for (auto& [name, tenant] : seen.tenants) tenant.tenant.name = name;
  return seen;
}

HttpResponse Observer::Answer(const HttpRequest& request) {
  if (request.path == "/metrics") return {200, kMetricsType, MetricsText(Observe())};
  if (request.path == "/healthz") {
    const absl::Status health = manager_.DeviceHealth();
    if (health.ok()) return {200, "text/plain; charset=utf-8", "ok\n"};
    return {503, "text/plain; charset=utf-8", "a device is lost; the daemon begins anew\n"};
  }
  const HttpResponse none = {404, "text/plain; charset=utf-8", "there is nothing here\n"};
  if (!options_.dashboard) return none;
  if (request.path == "/api/v1/status") {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Observation seen = ObserveLocked();
    return {200, kJsonType, StatusJson(seen, history_.Recent(seen))};
  }
  if (request.path == "/api/v1/history") {
    constexpr std::string_view kAfter = "after=";
    uint64_t after = 0;
    if (!request.query.empty()) {
      const std::string_view text =
          request.query.substr(std::min(kAfter.size(), request.query.size()));
      if (!request.query.starts_with(kAfter) ||
          !absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &after))
        return {400, "text/plain; charset=utf-8", "only after=NUMBER is known\n"};
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    return {200, kJsonType, HistoryJson(history_, after)};
  }
  for (const DashboardFile& file : DashboardFiles()) {
    if (request.path == file.path) {
      return {200, std::string(file.type), std::string(file.content), /*cacheable=*/true};
    }
  }
  return none;
}

}  // namespace detshare
