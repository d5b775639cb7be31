#include "server/sessions/session_manager.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/engine_page.h"
#include "coroutine_runtime/memory_broker.h"
#include "coroutine_runtime/memory_mover.h"
#include "coroutine_runtime/queue_pool.h"
#include "coroutine_runtime/room_board.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/placement.h"
#include "policy/registry.h"
#include "policy/status_macros.h"
#include "proto/device_uuid.h"
#include "proto/driver_api/error_names.h"
#include "server/base/logging.h"
#include "server/base/remove_tree.h"
#include "server/session/image_store.h"
#include "server/session/session_worker.h"
#include "server/session/shared_events.h"
#include "server/session/shared_memory_objects.h"
#include "server/sessions/session_placement.h"
#include "server/sessions/tenant_habits.h"
#include "server/tenants/session_refusals.h"

namespace detshare {
namespace {

const RealClock kClock;

// Work that runs on for longer may be endless. An engine without other sessions ends then.
constexpr std::chrono::milliseconds kUsualEnd(200);
// The same beside sessions that would end with the engine.
constexpr std::chrono::milliseconds kLongestEndBesideOthers(10'000);

// How often other processes learn what the sessions of this one were seen to do.
constexpr int64_t kPublishPeriod = 500 * policy::kMillisecond;

// The number of threads that copy between a card and the host. One thread copies about 9 GB/s in
// memory, and the bus carries 55 GB/s.
int CopyChannels() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 8);
}

// The host memory for evicted memory is that of all processes on the devices. A hostile one cannot
// claim more than half of it.
Quota::Shared SharedStore(const ServerOptions& options) {
  if (options.engine_page == nullptr) return {};
  return {
      &options.engine_page->evicted, [peers = options.engine_peers, max = options.swap_bytes / 2] {
        uint64_t sum = 0;
        peers->ForEach(
            [&](uint64_t, const EnginePage& page) { sum += std::min(page.evicted.load(), max); });
        return sum;
      }};
}

// Shows the other processes on a device; null: there are none.
std::unique_ptr<RoomBoard> BoardOf(const ServerOptions& options, size_t device) {
  if (options.engine_page == nullptr || device >= EnginePage::kMaxDevices) return nullptr;
  return std::make_unique<RoomBoard>(options.engine_page->devices[device].room,
                                     *options.engine_peers, device, options.wake_engines);
}

const char* StateName(SessionWorker::State state) {
  switch (state) {
    case SessionWorker::State::kOpening:
      return "opening";
    case SessionWorker::State::kRunning:
      return "running";
    case SessionWorker::State::kFaulted:
      return "faulted";
    case SessionWorker::State::kEnding:
    case SessionWorker::State::kFinished:
      break;
  }
  return "ending";
}

DaemonEvent About(uint64_t id, const SessionRequest& request, DaemonEvent::Kind kind,
                  std::string text = "") {
  DaemonEvent event;
  event.kind = kind;
  event.session = id;
  event.tenant = request.tenant;
  event.program = request.program;
  event.pid = request.pid;
  event.uid = request.owner.uid;
  if (request.endpoint != nullptr) event.endpoint = request.endpoint->number;
  event.text = std::move(text);
  return event;
}

// Returns how many files of pinned memory each of `sessions` may have. The kernel limits the
// mappings of a process, and no session may use up those of the others.
uint32_t PinnedFiles(uint32_t wanted, int sessions) {
  constexpr uint64_t kUsualMappings = 65530;
  constexpr uint64_t kOwnMappings = 4096;  // mappings that the daemon itself needs
  uint64_t mappings = 0;
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> mappings)) mappings = kUsualMappings;
  const uint64_t each = (std::max(mappings, 2 * kOwnMappings) - kOwnMappings) /
                        static_cast<uint64_t>(std::max(sessions, 1));
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, each));
}

// Returns `options` with the address windows laid out for the devices.
ServerOptions LaidOut(ServerOptions options, const std::vector<Device*>& devices) {
  std::vector<uint64_t> memories;
  for (const Device* device : devices) memories.push_back(device->properties().total_memory);
  options.windows = LayOut(options.windows, memories);
  options.limits.pinned.files = PinnedFiles(options.limits.pinned.files, options.windows.slots);
  return options;
}

// The most memory that the session's tenant has had on one of the session's devices.
uint64_t PeakMemory(const SessionWorker& worker) {
  uint64_t peak = 0;
  for (const SessionConfig::OnDevice& on : worker.config().devices)
    peak = std::max(peak, on.quota->peak());
  return peak;
}

DeviceNames NamesOf(const std::vector<Device*>& devices) {
  std::vector<std::string> uuids;
  for (const Device* device : devices) uuids.push_back(FormatUuid(device->properties().uuid));
  return DeviceNames(std::move(uuids));
}

// Clients that get this refusal try again, and find an engine that has begun anew.
absl::Status RefusalIfLost(const absl::Status& health) {
  return health.ok()
             ? health
             : absl::UnavailableError(absl::StrCat("the device is lost: ", health.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SessionManager>> SessionManager::Create(
    std::vector<Device*> devices, const ServerOptions& options) {
  std::vector<std::unique_ptr<DeviceScheduler>> schedulers;
  for (Device* device : devices) {
    absl::StatusOr<std::unique_ptr<policy::Policy>> policy =
        policy::CreatePolicy(options.policy, policy::Options{options.policy_parameters},
                             [](const std::string& text) { LogWarning(text); });
    if (!policy.ok()) return policy.status();
    DeviceScheduler::Options how;
    how.migrate_every = options.migrate_every;
    // Migrations after a number of operations use all partitions in turn. Two halves are enough for
    // them.
    how.standard_partitions = options.migrate_every == 0;
    how.page = options.engine_page;
    how.peers = options.engine_peers;
    how.device_number = schedulers.size();
    how.not_opened = [number = schedulers.size()](const absl::Status& why) {
      LogWarning(
          absl::StrCat("device ", number,
                       ": urgent work takes turns with ordinary work, because its time-slice group "
                       "could not be opened: ",
                       why.message()));
    };
    DETSHARE_ASSIGN_OR_RETURN(
        std::unique_ptr<DeviceScheduler> scheduler,
        DeviceScheduler::Create(*device, *std::move(policy), options.tenants, kClock, how));
    schedulers.push_back(std::move(scheduler));
  }
  DETSHARE_ASSIGN_OR_RETURN(std::unique_ptr<policy::DevicePlacement> placement,
                            policy::CreatePlacement(options.placement));
  std::unique_ptr<SessionManager> manager(
      new SessionManager(std::move(devices), std::move(schedulers), std::move(placement), options));
  DETSHARE_RETURN_IF_ERROR(TryRemoveTree(manager->sessions_directory_));
  DETSHARE_RETURN_IF_ERROR(MakeSharedDirectory(manager->sessions_directory_));
  return manager;
}

SessionManager::SessionManager(std::vector<Device*> devices,
                               std::vector<std::unique_ptr<DeviceScheduler>> schedulers,
                               std::unique_ptr<policy::DevicePlacement> placement,
                               const ServerOptions& options)
    : devices_(std::move(devices)),
      device_names_(NamesOf(devices_)),
      options_(LaidOut(options, devices_)),
      sessions_directory_(options.runtime_directory + "/sessions"),
      image_store_(std::make_unique<ImageStore>(options.image_store_bytes)),
      schedulers_(std::move(schedulers)),
      tenant_board_(options.engine_page, options.engine_peers),
      tenant_accounts_(devices_.size(), &tenant_board_),
      host_store_(options.swap_bytes, SharedStore(options)),
      load_board_(options.engine_page, options.engine_peers),
      shared_memory_objects_(std::make_unique<SharedMemoryObjects>()),
      shared_events_(std::make_unique<SharedEvents>([this](uint64_t exporter, uint64_t importer) {
        for (const auto& scheduler : schedulers_) scheduler->Cooperate(exporter, importer);
      })),
      placement_(std::move(placement), kClock),
      slots_(static_cast<size_t>(options_.windows.slots), false),
      next_session_(options.first_session),
      max_sessions_(options.max_sessions),
      limits_(options_.limits),
      use_sampler_([this](std::chrono::nanoseconds passed) { SampleUse(passed); }) {
  tenant_accounts_.SetDefault(options.default_quota);
  for (const auto& [tenant, quota] : options.tenant_quotas) tenant_accounts_.Set(tenant, quota);
  for (const policy::Tenant& tenant : options.tenants) use_.Reserve(tenant.name);
  for (Device* device : devices_) {
    queues_.push_back(std::make_unique<QueuePool>(*device));
    if (options.swap_bytes == 0) continue;
    const size_t number = movers_.size();
    movers_.push_back(std::make_unique<MemoryMover>(*device, *queues_.back(), CopyChannels(),
                                                    schedulers_[number]->turn()));
    brokers_.push_back(std::make_unique<MemoryBroker>(*device, host_store_, *movers_.back(), kClock,
                                                      options.eviction, BoardOf(options, number)));
  }
  reaper_ = std::thread([this] { Reap(); });
}

SessionManager::~SessionManager() {
  EndAll(kCudaErrorSystemNotReady, "the daemon ends", std::chrono::seconds(1));
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  reaper_.join();
  RemoveTree(sessions_directory_);
}

void SessionManager::LookForRoom() {
  for (const std::unique_ptr<MemoryBroker>& broker : brokers_) broker->Look();
}

std::vector<PartitionView> SessionManager::Partitions(size_t device) const {
  return schedulers_[device]->Partitions();
}

size_t SessionManager::max_sessions() const {
  const MutexLock lock(&mutex_);
  return max_sessions_ == 0 ? slots_.size() : std::min<size_t>(slots_.size(), max_sessions_);
}

policy::PlacementRequest SessionManager::PlacementRequestOf(const std::string& tenant) const {
  policy::PlacementRequest request;
  // The settings of a tenant are the same on all devices.
  request.tenant = schedulers_.front()->SettingsOf(tenant);
  const TenantHabit habit = habits_.Of(tenant);
  request.memory_bound = habit.memory_bound;
  request.load = habit.load;
  return request;
}

std::vector<LoadBoard::Load> SessionManager::OwnLoads(const std::string& except) {
  const auto now = kClock.NowNanoseconds();
  std::vector<LoadBoard::Load> loads(devices_.size());
  std::vector<std::set<std::string>> tenants(devices_.size());
  std::map<std::string, std::shared_ptr<TenantAccount>> accounts;
  for (const auto& [id, entry] : sessions_) {
    const std::string& name = entry.request.tenant;
    for (const int index : entry.devices) {
      LoadBoard::Load& load = loads[index];
      policy::PlacementRequest& there = load.sessions.emplace_back(PlacementRequestOf(name));
      if (CoroutineState state; schedulers_[index]->StateOf(id, &state)) {
        const TenantHabit habit = HabitOf(state, now);
        if (habit.memory_bound >= 0) there.memory_bound = habit.memory_bound;
        if (habit.load >= 0) there.load = habit.load;
      }
      if (name == except || !tenants[index].insert(name).second) continue;
      std::shared_ptr<TenantAccount>& account = accounts[name];
      if (account == nullptr) account = tenant_accounts_.Of(name);
      const uint64_t limit = account->limits().memory;
      const uint64_t used = account->memory_used(static_cast<size_t>(index));
      const uint64_t total = devices_[index]->properties().total_memory;
      if (limit != 0 && limit < total && limit > used) load.promised += limit - used;
    }
  }
  for (size_t i = 0; i < loads.size(); ++i)
    loads[i].placed_at = placement_.PlacedAt(static_cast<int>(i));
  return loads;
}

SessionPlacement::Devices SessionManager::Loads(const std::string& tenant) {
  SessionPlacement::Devices devices;
  const std::shared_ptr<TenantAccount> account = tenant_accounts_.Of(tenant);
  std::vector<LoadBoard::Load> own = OwnLoads(tenant);
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device::Memory memory = devices_[i]->memory();
    policy::DeviceLoad& load = devices.loads.emplace_back();
    load.memory = memory.total;
    // A limit holds for all sessions of a tenant together. So the request, which asks for the
    // limit, includes the memory that the tenant has already.
    const uint64_t used_by_tenant = account->memory_used(i);
    load.memory_used = memory.total - std::min(memory.free, memory.total);
    load.memory_used -= std::min(used_by_tenant, load.memory_used);
    // Other tenants were promised more than they use.
    load.memory_used += own[i].promised;
    load.sessions = std::move(own[i].sessions);
  }
  if (load_board_.shared()) devices.promised_by_others = load_board_.AddOthers(&devices.loads);
  if (!brokers_.empty()) {
    devices.more_memory =
        host_store_.limit() - std::min(host_store_.used_by_all(), host_store_.limit());
  }
  return devices;
}

void SessionManager::PublishLoads() {
  const MutexLock lock(&mutex_);
  const int64_t now = kClock.NowNanoseconds();
  if (now - published_at_ < kPublishPeriod) return;
  published_at_ = now;
  ShowLoads();
}

void SessionManager::ShowLoads() {
  if (load_board_.shared()) load_board_.Publish(OwnLoads(""));
}

absl::StatusOr<std::vector<int>> SessionManager::Grant(const SessionRequest& request,
                                                       std::optional<PlacementGroup>* placed_as) {
  absl::StatusOr<std::vector<int>> shown =
      device_names_.Choose(request.device_ids, request.endpoint.get());
  if (!shown.ok()) return shown;
  const std::shared_ptr<TenantAccount> account = tenant_accounts_.Of(request.tenant);
  const uint64_t max = account->devices();
  if (request.device_count > EnginePage::kMaxDevices) {
    return absl::InvalidArgumentError(absl::StrCat(
        "DETSHARE_DEVICE_COUNT is a number from 0 (as many as the program may use) to ",
        EnginePage::kMaxDevices));
  }
  if (request.device_count > shown->size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        request.device_count, " devices were asked for; the program may use ", shown->size()));
  }
  if (max != 0 && request.device_count > max) {
    return absl::PermissionDeniedError(absl::StrCat(
        request.device_count, " devices were asked for; programs of tenant ", request.tenant,
        " may have ", max, ": ask for less, or let an operator allow more: detsharectl tenant set ",
        request.tenant, " --devices N"));
  }
  const uint64_t count = request.device_count != 0 ? request.device_count
                         : max != 0                ? std::min<uint64_t>(max, shown->size())
                                                   : shown->size();
  if (count == shown->size()) return shown;

  PlacementGroup group;
  group.tenant = request.tenant;
  group.uid = request.owner.uid;
  if (request.endpoint != nullptr) group.endpoint = request.endpoint->name;
  group.run = request.run;
  if (group.endpoint.empty() && group.run.empty()) group.pid = request.pid;
  group.among = *std::move(shown);
  group.count = count;
  *placed_as = group;
  if (const std::vector<int>* const known = placement_.Find(group)) return *known;

  policy::PlacementRequest wanted = PlacementRequestOf(request.tenant);
  uint64_t largest = 0;
  for (const int index : group.among)
    largest = std::max(largest, devices_[index]->properties().total_memory);
  // A limit that no device reaches does not tell how much memory the tenant will use.
  const uint64_t limit = account->limits().memory;
  if (limit < largest) wanted.memory = limit;
  absl::StatusOr<std::vector<int>> placed = placement_.Place(group, wanted, Loads(request.tenant));
  ShowLoads();
  return placed;
}

absl::StatusOr<std::vector<int>> SessionManager::DevicesOf(const SessionRequest& request) {
  const MutexLock lock(&mutex_);
  std::optional<PlacementGroup> ignored;
  return Grant(request, &ignored);
}

void SessionManager::SetPlacement(std::unique_ptr<policy::DevicePlacement> placement) {
  const MutexLock lock(&mutex_);
  placement_.SetPlacement(std::move(placement));
}

absl::StatusOr<std::shared_ptr<SessionWorker>> SessionManager::Open(const SessionRequest& request,
                                                                    Listener listener) {
  const std::shared_ptr<TenantAccount> account = tenant_accounts_.Of(request.tenant);
  // Enter() is called without the lock, because it waits for another process.
  SessionAdmission::Decision decision;
  AdmittedSession admitted;
  if (admission_ != nullptr) {
    decision = admission_->Enter(request.tenant);
    if (decision.of_tenant) account->CountRefusal();
    if (!decision.status.ok()) return decision.status;
    admitted = AdmittedSession(admission_, decision.session);
  }

  const MutexLock lock(&mutex_);
  DETSHARE_ASSIGN_OR_RETURN(const int slot, FreeSlot(request));
  DETSHARE_ASSIGN_OR_RETURN(QuotaCharge charge, Quota::Take(TenantAccount::Sessions(account), 1));
  std::optional<PlacementGroup> placed_as;
  DETSHARE_ASSIGN_OR_RETURN(const std::vector<int> granted, Grant(request, &placed_as));
  DETSHARE_ASSIGN_OR_RETURN(const std::vector<int> chosen,
                            device_names_.ChooseVisible(request.visible_ids, granted));
  const uint64_t id = admission_ != nullptr ? decision.session : next_session_++;
  if (sessions_.contains(id)) return absl::InternalError("two sessions got the same number");

  SessionWorker::Events events;
  const std::string where =
      placed_as.has_value() ? absl::StrCat("placed on device ", absl::StrJoin(granted, ", ")) : "";
  events.opened = [this, id, listener, request, where](const absl::Status& status,
                                                       uint64_t file_bytes) {
    if (status.ok()) {
      HandleOpened(id, request, listener, where, file_bytes);
    } else {
      HandleRefused(id, request, listener, status);
    }
  };
  events.faulted = [this, id, request](int result) {
    events_.Add(About(id, request, DaemonEvent::Kind::kFault,
                      absl::StrCat(ErrorText(result), " for all of its later calls")));
  };
  events.limited = [this, id, listener, request](const std::string& why) {
    events_.Add(About(id, request, DaemonEvent::Kind::kLimit, why));
    if (listener.limited) listener.limited(why);
  };
  events.runs_on = [this] { WatchEndedWork(); };
  events.ended = [this, id, listener](int result, const std::string& reason) {
    HandleEnded(id, listener, result, reason);
  };
  events.calm = [this](bool calm) { calm ? activity_.End() : activity_.Begin(); };
  events.finished = [this, id] {
    {
      const MutexLock lock(&mutex_);
      sessions_.at(id).finished = true;
    }
    changed_.SignalAll();
  };

  Entry entry;
  ServerOptions options = options_;
  options.limits = limits_;
  entry.worker = std::make_shared<SessionWorker>(ConfigOf(id, slot, request, account, chosen),
                                                 options, std::move(events));
  entry.request = request;
  entry.begin = std::chrono::steady_clock::now();
  entry.slot = slot;
  entry.admitted = std::move(admitted);
  entry.devices = chosen;
  entry.charge = std::move(charge);
  if (placed_as.has_value()) placement_.Opened(*placed_as);
  entry.placed_as = std::move(placed_as);
  slots_[static_cast<size_t>(slot)] = true;
  std::shared_ptr<SessionWorker> worker = entry.worker;
  use_.Begin(worker->config().tenant, RealClock().NowNanoseconds());
  sessions_.emplace(id, std::move(entry));
  ShowLoads();
  worker->Start();
  return worker;
}

absl::StatusOr<int> SessionManager::FreeSlot(const SessionRequest& request) const {
  if (!refusing_.empty()) return absl::UnavailableError(refusing_);
  for (const Device* device : devices_) DETSHARE_RETURN_IF_ERROR(RefusalIfLost(device->health()));
  // EndThrough() does not see a session that begins after it.
  if (request.endpoint != nullptr && request.endpoint->closed.load(std::memory_order_seq_cst))
    return absl::UnavailableError("the endpoint was closed");
  const auto slot = std::find(slots_.begin(), slots_.end(), false);
  if (slot == slots_.end()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", slots_.size(),
                     " sessions of the daemon are in use: end a program, or let an operator raise "
                     "session_slots of [daemon] in its configuration and restart it"));
  }
  if (max_sessions_ != 0 && sessions_.size() >= max_sessions_) {
    return DaemonIsFull(sessions_.size(), max_sessions_);
  }
  return static_cast<int>(slot - slots_.begin());
}

SessionConfig SessionManager::ConfigOf(uint64_t id, int slot, const SessionRequest& request,
                                       const std::shared_ptr<TenantAccount>& account,
                                       const std::vector<int>& devices) const {
  SessionConfig config;
  config.id = id;
  config.slot = slot;
  config.owner = request.owner;
  config.pid = request.pid;
  config.open_file = [open = options_.open_client_file, ticket = request.ticket](
                         const ClientMapping& mapping, uint64_t bytes) {
    return open ? open(ticket, mapping, bytes) : OpenClientFile(mapping, bytes);
  };
  config.tenant = request.tenant;
  config.label = absl::StrCat("session ", id, " (tenant ", request.tenant, ", pid ", request.pid,
                              ", ", request.program, ")");
  config.pinned_quota = TenantAccount::Pinned(account);
  config.waiting_quota = TenantAccount::Waiting(account);
  config.kept_quota = TenantAccount::Kept(account);
  config.image_store = image_store_.get();
  config.directory = absl::StrCat(
      request.endpoint != nullptr ? request.endpoint->sessions_directory : sessions_directory_, "/",
      id);
  config.shared_memory_objects = shared_memory_objects_.get();
  config.shared_event_tokens = shared_events_.get();
  // Each device of the daemon has its part of the slot, even if the session does not use the
  // device. So addresses do not depend on the session's choice of devices.
  const AddressWindows& windows = options_.windows;
  const uint64_t part = DevicePart(windows, devices_.size());
  for (const int index : devices) {
    SessionConfig::OnDevice on;
    on.device = devices_[index];
    on.queues = queues_[index].get();
    on.scheduler = schedulers_[index].get();
    on.broker = brokers_.empty() ? nullptr : brokers_[index].get();
    on.quota = TenantAccount::Memory(account, static_cast<size_t>(index));
    on.memory_base = windows.device_base + windows.device_bytes * static_cast<uint64_t>(slot) +
                     part * static_cast<uint64_t>(index);
    on.memory_bytes = part;
    config.devices.push_back(on);
  }
  return config;
}

void SessionManager::HandleOpened(uint64_t id, const SessionRequest& request,
                                  const Listener& listener, const std::string& where,
                                  uint64_t file_bytes) {
  // Find() succeeds as soon as Open() has released the lock.
  events_.Add(About(id, request, DaemonEvent::Kind::kOpened, where));
  const std::shared_ptr<SessionWorker> worker = Find(id);
  {
    const MutexLock lock(&mutex_);
    ++use_.At(worker->config().tenant).opened;
  }
  if (request.endpoint != nullptr) {
    request.endpoint->use.Add({.sessions = 1});
    use_sampler_.Begin();
  }
  listener.granted(*worker, file_bytes);
}

void SessionManager::HandleRefused(uint64_t id, const SessionRequest& request,
                                   const Listener& listener, const absl::Status& why) {
  {
    const MutexLock lock(&mutex_);
    sessions_.at(id).told = true;
  }
  events_.Add(About(id, request, DaemonEvent::Kind::kRefused, std::string(why.message())));
  // A lost device can make anything fail.
  const absl::Status lost = RefusalIfLost(DeviceHealth());
  listener.refused(lost.ok() ? why : lost);
  changed_.SignalAll();
}

void SessionManager::HandleEnded(uint64_t id, const Listener& listener, int result,
                                 const std::string& reason) {
  NoteEnd(id, reason);
  listener.ended(id, result, reason);
  {
    const MutexLock lock(&mutex_);
    sessions_.at(id).told = true;
  }
  changed_.SignalAll();
}

std::shared_ptr<SessionWorker> SessionManager::Find(uint64_t id) {
  const MutexLock lock(&mutex_);
  auto found = sessions_.find(id);
  return found != sessions_.end() ? found->second.worker : nullptr;
}

void SessionManager::NoteEnd(uint64_t id, const std::string& reason) {
  TenantHabit habit;
  const std::shared_ptr<SessionWorker> worker = Find(id);
  if (CoroutineState state; worker->config().devices.front().scheduler->StateOf(id, &state))
    habit = HabitOf(state, kClock.NowNanoseconds());
  const MutexLock lock(&mutex_);
  const Entry& entry = sessions_.at(id);
  const SessionCounters counters = entry.worker->counters();
  habits_.Note(entry.request.tenant, habit);
  if (entry.request.endpoint != nullptr) {
    entry.request.endpoint->use.Add({.peak_memory = PeakMemory(*worker)});
    use_sampler_.End();
  }
  const auto age = std::chrono::steady_clock::now() - entry.begin;
  const DaemonEvent::Kind kind = entry.worker->violated() ? DaemonEvent::Kind::kViolation
                                 : entry.killed           ? DaemonEvent::Kind::kKilled
                                                          : DaemonEvent::Kind::kEnded;
  events_.Add(About(
      id, entry.request, kind,
      absl::StrFormat("%s; after %.1f s, %d operations, %d kernels, %d MiB copied, %d migrations",
                      reason, std::chrono::duration<double>(age).count(), counters.operations,
                      counters.kernels, counters.bytes_copied >> 20, counters.migrations)));
}

absl::StatusOr<std::vector<uint64_t>> SessionManager::EndSome(
    const std::function<bool(uint64_t id, const SessionRequest& request)>& which,
    const std::function<bool(const SessionRequest& request)>& may, const std::string& who) {
  std::vector<uint64_t> chosen;
  const MutexLock lock(&mutex_);
  for (const auto& [id, entry] : sessions_) {
    if (entry.told || !which(id, entry.request)) continue;
    if (!may(entry.request)) {
      return absl::PermissionDeniedError(
          absl::StrCat("session ", id,
                       " belongs to another user: only root, the daemon's user and the "
                       "admin group may end it; nothing was ended"));
    }
    chosen.push_back(id);
  }
  if (chosen.empty()) return absl::NotFoundError("there is no such session");
  for (const uint64_t id : chosen) {
    Entry& entry = sessions_.at(id);
    entry.killed = true;
    entry.worker->End(kCudaErrorNotPermitted, absl::StrCat("ended by ", who));
  }
  return chosen;
}

void SessionManager::SetLimits(const SessionLimits& limits, uint32_t max_sessions) {
  const MutexLock lock(&mutex_);
  limits_ = limits;
  limits_.pinned.files = options_.limits.pinned.files;
  max_sessions_ = max_sessions;
}

void SessionManager::EndAll(int result, const std::string& reason,
                            std::chrono::milliseconds timeout) {
  MutexLock lock(&mutex_);
  if (refusing_.empty()) refusing_ = reason;
  for (auto& [id, entry] : sessions_) entry.worker->End(result, reason);
  changed_.WaitFor(&mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::all_of(sessions_.begin(), sessions_.end(),
                       [](const auto& item) { return item.second.told; });
  });
}

void SessionManager::EndThrough(const TenantEndpoint& endpoint, int result,
                                const std::string& reason) {
  const MutexLock lock(&mutex_);
  for (auto& [id, entry] : sessions_) {
    if (entry.request.endpoint.get() != &endpoint) continue;
    endpoint.use.Add({.peak_memory = PeakMemory(*entry.worker)});
    entry.worker->End(result, reason);
  }
}

bool SessionManager::WaitUntilEmpty(std::chrono::milliseconds timeout) {
  MutexLock lock(&mutex_);
  return changed_.WaitFor(&mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return sessions_.empty();
  });
}

void SessionManager::SampleUse(std::chrono::nanoseconds passed) {
  std::map<std::shared_ptr<const TenantEndpoint>, std::vector<std::shared_ptr<SessionWorker>>>
      behind;
  {
    const MutexLock lock(&mutex_);
    for (const auto& [id, entry] : sessions_) {
      if (entry.request.endpoint != nullptr) behind[entry.request.endpoint].push_back(entry.worker);
    }
  }
  for (const auto& [endpoint, workers] : behind) {
    EndpointUse::Figures figures;
    std::set<const Device*> busy;  // sessions that share a device count once
    for (const std::shared_ptr<SessionWorker>& worker : workers) {
      figures.peak_memory = std::max(figures.peak_memory, PeakMemory(*worker));
      for (const SessionDeviceUse& use : worker->device_use()) {
        if (use.busy) busy.insert(use.device);
      }
    }
    figures.gpu_time = passed.count() * static_cast<int64_t>(busy.size());
    endpoint->use.Add(figures);
  }
}

void SessionManager::Reap() {
  MutexLock lock(&mutex_);
  for (;;) {
    auto finished = std::find_if(sessions_.begin(), sessions_.end(),
                                 [](const auto& item) { return item.second.finished; });
    if (finished == sessions_.end()) {
      if (stopping_ && sessions_.empty()) return;
      changed_.Wait(&mutex_);
      continue;
    }
    std::shared_ptr<SessionWorker> worker = finished->second.worker;
    // Keeps the endpoint, and with it its directory's descriptor, until the session's files are
    // gone.
    const std::shared_ptr<const TenantEndpoint> endpoint = finished->second.request.endpoint;
    slots_[finished->second.slot] = false;
    TenantUse& use = use_.At(worker->config().tenant);
    SessionCounters counters = worker->counters();
    counters.swap.out = 0;
    use.Add(counters);
    use.faulted += worker->faulted();
    use.violations += worker->violated();
    use_.End(worker->config().tenant, RealClock().NowNanoseconds());
    if (finished->second.placed_as.has_value()) placement_.Closed(*finished->second.placed_as);
    sessions_.erase(finished);  // the tenant may open another session
    ShowLoads();
    changed_.SignalAll();
    lock.Unlock();
    // Joins the thread. If a call still holds the worker for a moment, that call joins it.
    worker.reset();
    lock.Lock();
  }
}

std::vector<DeviceScheduler*> SessionManager::Schedulers() const {
  std::vector<DeviceScheduler*> schedulers;
  for (const auto& scheduler : schedulers_) schedulers.push_back(scheduler.get());
  return schedulers;
}

std::vector<SessionManager::SessionInfo> SessionManager::Sessions() {
  const MutexLock lock(&mutex_);
  const auto now = std::chrono::steady_clock::now();
  std::vector<SessionInfo> infos;
  for (const auto& [id, entry] : sessions_) {
    SessionInfo& info = infos.emplace_back();
    info.id = id;
    info.request = entry.request;
    info.age_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - entry.begin).count();
    info.counters = entry.worker->counters();
    const SessionWorker::State state = entry.worker->state();
    info.state = StateName(state);
    info.open = state == SessionWorker::State::kRunning || state == SessionWorker::State::kFaulted;
    for (const SessionConfig::OnDevice& on : entry.worker->config().devices) {
      const auto found = std::find(devices_.begin(), devices_.end(), on.device);
      auto& [device, schedule] = info.places.emplace_back();
      device = static_cast<size_t>(found - devices_.begin());
      on.scheduler->StateOf(id, &schedule);
    }
    if (!info.places.empty()) info.schedule = info.places.front().second;
  }
  return infos;
}

std::vector<std::pair<SessionRequest, std::shared_ptr<SessionWorker>>> SessionManager::Workers() {
  const MutexLock lock(&mutex_);
  std::vector<std::pair<SessionRequest, std::shared_ptr<SessionWorker>>> workers;
  for (const auto& [id, entry] : sessions_) workers.emplace_back(entry.request, entry.worker);
  return workers;
}

std::map<std::string, TenantUse> SessionManager::Use() {
  const MutexLock lock(&mutex_);
  std::map<std::string, TenantUse> all = use_.all();
  for (const auto& [id, entry] : sessions_) {
    TenantUse& use = all[use_.NameFor(entry.request.tenant)];
    use.Add(entry.worker->counters());
    use.faulted += entry.worker->faulted();
    use.violations += entry.worker->violated();
    const SessionWorker::State state = entry.worker->state();
    use.open += state == SessionWorker::State::kRunning || state == SessionWorker::State::kFaulted;
  }
  return all;
}

void SessionManager::CountRefusal(absl::StatusCode why) {
  const MutexLock lock(&mutex_);
  ++refusals_[why];
}

std::map<absl::StatusCode, uint64_t> SessionManager::Refusals() const {
  const MutexLock lock(&mutex_);
  return refusals_;
}

EndedWork SessionManager::ended_work() const {
  const MutexLock lock(&mutex_);
  std::chrono::nanoseconds longest{0};
  for (const auto& [id, entry] : sessions_)
    longest = std::max(longest, entry.worker->runs_on_for());
  return longest >= kUsualEnd  ? EndedWork::kOutlived
         : longest.count() > 0 ? EndedWork::kRuns
                               : EndedWork::kNone;
}

void SessionManager::WatchEndedWork() {
  const MutexLock lock(&ended_work_mutex_);
  if (!ended_work_changed_ || ended_work_ == EndedWork::kOutlived) return;
  const EndedWork now = ended_work();
  if (std::exchange(ended_work_, now) != now) ended_work_changed_(now);
}

absl::Status SessionManager::EndlessWork() const {
  const bool others = std::any_of(sessions_.begin(), sessions_.end(), [](const auto& session) {
    return session.second.worker->state() < SessionWorker::State::kEnding;
  });
  const std::chrono::milliseconds longest = others ? kLongestEndBesideOthers : kUsualEnd;
  for (const auto& [id, entry] : sessions_) {
    if (entry.worker->runs_on_for() < longest) continue;
    return CudaError(kCudaErrorLaunchTimeout,
                     absl::StrCat("kernels of ", entry.worker->config().label, " run on ",
                                  longest.count(), " ms after its end"));
  }
  return absl::OkStatus();
}

absl::Status SessionManager::DeviceHealth() {
  for (Device* device : devices_) {
    DETSHARE_RETURN_IF_ERROR(device->health());
  }
  const MutexLock lock(&mutex_);
  if (options_.replaceable) DETSHARE_RETURN_IF_ERROR(EndlessWork());
  if (!options_.lose_device_on_fault) return absl::OkStatus();
  for (const auto& [id, entry] : sessions_) {
    if (entry.worker->faulted()) {
      return CudaError(entry.worker->sticky_error(),
                       "a session's fault makes the device count as lost");
    }
  }
  return absl::OkStatus();
}

uint64_t SessionManager::next_session() const {
  const MutexLock lock(&mutex_);
  return next_session_;
}

}  // namespace detshare
