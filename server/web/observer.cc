#include "server/web/observer.h"

#include <cuda.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_scheduler.h"
#include "proto/admin.pb.h"
#include "proto/device_uuid.h"

namespace detshare {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBusyPeriod(100), kIdlePeriod(1000);
constexpr std::chrono::milliseconds kPointPeriod(1000);

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
  // The clock is in kilohertz and the width in bits; there are two transfers per clock.
  return 2e3 * value(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) *
         value(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8;
}

double SecondsOf(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

SessionObservation Describe(const SessionManager::SessionInfo& info) {
  SessionObservation session;
  session.id = info.id;
  session.tenant = info.request.tenant;
  session.program = info.request.program;
  session.pid = info.request.pid;
  session.state = info.state;
  session.open = info.open;
  session.age_ms = info.age_ms;
  session.device_memory = info.counters.device_memory;
  session.operations = info.counters.operations;
  session.kernels = info.counters.kernels;
  for (const auto& [device, state] : info.places) {
    PlaceObservation& place = session.places.emplace_back();
    place.device = static_cast<int>(device);
    place.partition = state.partition;
    place.first_sm = state.first_sm;
    place.sm_count = state.sm_count;
    place.followed = state.followed;
    place.throttled = state.followed && state.figures.throttled_since != 0;
    place.rank = state.followed ? state.figures.rank : 0;
    place.bound = state.bound;
  }
  return session;
}

}  // namespace

Observer::Observer(SessionManager& manager, const SettingsStore& settings, const Owners& owners,
                   Options options)
    : manager_(manager),
      settings_(settings),
      owners_(owners),
      options_(std::move(options)),
      sampler_(manager.devices().size()),
      pages_([this] { return Observe(); },
             [this]() -> absl::Status {
               if (manager_.DeviceHealth().ok()) return absl::OkStatus();
               return absl::UnavailableError("a device is lost; the daemon restarts");
             },
             options_.dashboard) {
  if (options_.own_thread) thread_ = std::thread([this] { Run(); });
}

Observer::~Observer() {
  {
    const MutexLock lock(&stop_mutex_);
    stop_ = true;
  }
  stopped_.SignalAll();
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
    MutexLock lock(&stop_mutex_);
    if (stopped_.WaitUntil(&stop_mutex_, std::min(now + period, std::max(next_point, now)),
                           [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(stop_mutex_) { return stop_; }))
      return;
  }
}

void Observer::Look(double seconds, bool point) {
  {
    const MutexLock lock(&mutex_);
    sampler_.Look(manager_, seconds);
  }
  if (point) pages_.Note();
}

Observation Observer::Observe() {
  const MutexLock lock(&mutex_);
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
  for (const SessionManager::SessionInfo& session : manager_.Sessions())
    seen.sessions.push_back(Describe(session));
  seen.max_sessions = manager_.max_sessions();
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
    one.preemption = properties.preemption;
    one.beside_native = schedulers[i]->BesideNative();
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
    if (tenant == seen.tenants.end()) continue;
    tenant->second.quota = account->limits();
    for (size_t i = 0; i < seen.devices.size(); ++i)
      tenant->second.charged_memory.push_back(account->memory_used(i));
  }
  for (const auto& [name, samples] : sampler_.tenants()) seen.tenants[name].samples = samples;
  for (auto& [name, tenant] : seen.tenants) {
    tenant.tenant.name = name;
    tenant.owner = owners_.OfTenant(name);
  }
  return seen;
}

}  // namespace detshare
