// All sessions of the daemon, and the devices that they share.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/by_tenant.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_scheduler.h"
#include "coroutine_runtime/host_store.h"
#include "coroutine_runtime/memory_broker.h"
#include "coroutine_runtime/memory_mover.h"
#include "coroutine_runtime/queue_pool.h"
#include "policy/placement.h"
#include "server/base/activity.h"
#include "server/access/tenant_endpoint.h"
#include "server/base/event_log.h"
#include "server/session/image_store.h"
#include "server/session/server_options.h"
#include "server/sessions/session_admission.h"
#include "server/sessions/session_placement.h"
#include "server/session/session_worker.h"
#include "server/tenants/tenant_accounts.h"
#include "server/sessions/tenant_habits.h"
#include "server/sessions/tenant_use.h"

namespace detshare {

// Who asks for a session. What the client says about itself is for people to read only.
struct SessionRequest {
  Owner owner;  // by SO_PEERCRED, as is `pid`
  int pid = 0;  // 0 in a foreign pid namespace
  std::string tenant, program;
  std::vector<std::string> device_ids;  // empty: all; else indices or UUIDs
  uint32_t device_count = 0;            // how many of them; 0: as many as the tenant may have
  std::string run;                      // as PlacementGroup::run
  // Which of those that are granted, as CUDA_VISIBLE_DEVICES says it; empty: all.
  std::vector<std::string> visible_ids;
  std::shared_ptr<const TenantEndpoint> endpoint;  // through which it came; null: the daemon's own socket
};

// Any thread.
class SessionManager {
 public:
  // What is told about a session, on its thread: `granted` then `ended`, or `refused`. `result` as
  // in SessionWorker. They hold no shared pointer to the worker.
  struct Listener {
    std::function<void(SessionWorker& worker, uint64_t file_bytes)> granted;
    std::function<void(const absl::Status& why)> refused;
    std::function<void(uint64_t session, int result, const std::string& reason)> ended;
  };
  struct SessionInfo {
    uint64_t id = 0;
    SessionRequest request;
    int64_t age_ms = 0;
    Session::Counters counters;
    std::string state;
    bool open = false;                         // it runs, or has had a fault
    DeviceScheduler::CoroutineState schedule;  // on its first device
    // On all of them, in the session's order: positions in devices().
    std::vector<std::pair<size_t, DeviceScheduler::CoroutineState>> places;
  };

  // The devices outlive the manager. Makes the policy's partitions; removes what an earlier daemon
  // left in the directory of the sessions. NotFound for an unknown policy.
  static absl::StatusOr<std::unique_ptr<SessionManager>> Create(std::vector<Device*> devices,
                                                                const ServerOptions& options);
  // Ends all sessions and waits for them.
  ~SessionManager();

  // Begins to open a session and returns its worker; the listener hears how it goes. At once: what
  // DevicesOf() refuses, NotFound when visible_ids names none of the devices, ResourceExhausted and
  // Unavailable.
  absl::StatusOr<std::shared_ptr<SessionWorker>> Open(const SessionRequest& request,
                                                      Listener listener);
  std::shared_ptr<SessionWorker> Find(uint64_t id);
  // Positions in devices() of those that `ids` (indices or UUIDs; none: all) name, in their order.
  // Through an endpoint: of those that it shows, which `ids` count from 0. InvalidArgument.
  absl::StatusOr<std::vector<int>> ChooseDevices(const std::vector<std::string>& ids,
                                                 const TenantEndpoint* endpoint = nullptr) const;

  // Positions in devices() of what such a client may use, before visible_ids: placed, where it may
  // have some of those that it may see and not all. The same client gets the same ones again
  // (session_placement.h). InvalidArgument for devices that are not there, PermissionDenied for
  // more than the tenant may have, ResourceExhausted when they have no room.
  absl::StatusOr<std::vector<int>> DevicesOf(const SessionRequest& request);
  // Who is placed from now on is placed by this.
  void SetPlacement(std::unique_ptr<policy::DevicePlacement> placement);

  // Ends the sessions that `which` chooses; `who` did it, for log and events. PermissionDenied, and
  // none is ended, when `may` does not allow one of them; NotFound when there is none. Their numbers.
  absl::StatusOr<std::vector<uint64_t>> EndSome(
      const std::function<bool(uint64_t id, const SessionRequest& request)>& which,
      const std::function<bool(const SessionRequest& request)>& may, const std::string& who);
  // Whom to ask before a session is opened, and whose numbers sessions have; before any is. It
  // outlives this. Without it the manager decides alone.
  void SetAdmission(SessionAdmission* admission) { admission_ = admission; }
  // What sessions may have that are opened from now on, and how many there may be; 0: as many as fit.
  void SetLimits(const SessionLimits& limits, uint32_t max_sessions);

  // No session is opened any more, and those that are there end; `result` is what their calls
  // answer. Waits at most `timeout` until all of them have told their clients.
  void EndAll(int result, const std::string& reason, std::chrono::milliseconds timeout);
  // ... until all of them are gone. False when some are not.
  bool WaitUntilEmpty(std::chrono::milliseconds timeout);
  // Ends the sessions that came through the endpoint, which is closed. Does not wait.
  void EndThrough(const TenantEndpoint& endpoint, int result, const std::string& reason);

  std::vector<SessionInfo> Sessions();
  // The sessions that are open, with what was asked for each. Held for a moment only: who ends the
  // last hold on a worker joins its thread.
  std::vector<std::pair<SessionRequest, std::shared_ptr<SessionWorker>>> Workers();
  // By tenant, as ByTenant names them.
  std::map<std::string, TenantUse> Use();
  // A client got no session.
  void CountRefusal(absl::StatusCode why);
  std::map<absl::StatusCode, uint64_t> Refusals() const;
  // OkStatus while all devices work; else the error, with the CUresult, that all work on the lost
  // one ends with.
  absl::Status DeviceHealth();
  std::vector<DeviceScheduler::PartitionView> Partitions(size_t device) const {
    return schedulers_[device]->Partitions();
  }
  // One a device.
  std::vector<DeviceScheduler*> Schedulers() const;
  const std::vector<Device*>& devices() const { return devices_; }
  const ServerOptions& options() const { return options_; }
  ImageStore& image_store() { return *image_store_; }
  // What tenants have and may have; device i is devices()[i].
  TenantAccounts& tenant_accounts() { return tenant_accounts_; }
  // Host memory that holds device memory of sessions.
  const HostStore& host_store() const { return host_store_; }
  // Sessions that may have work on a device are active.
  Activity& activity() { return activity_; }
  EventLog& events() { return events_; }
  uint64_t next_session() const;
  // At a time.
  size_t max_sessions() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return max_sessions_ == 0 ? slots_.size() : std::min<size_t>(slots_.size(), max_sessions_);
  }

 private:
  struct Entry {
    std::shared_ptr<SessionWorker> worker;
    SessionRequest request;
    std::chrono::steady_clock::time_point begin;
    int slot = 0;
    AdmittedSession admitted;
    std::vector<int> devices;                 // positions in devices_
    std::optional<PlacementGroup> placed_as;  // nothing: it has all that it may see
    QuotaCharge charge;     // one of the tenant's sessions
    bool killed = false;    // EndSome() chose it
    bool told = false;      // its client knows that it has ended
    bool finished = false;  // its thread can be joined
  };

  SessionManager(std::vector<Device*> devices,
                 std::vector<std::unique_ptr<DeviceScheduler>> schedulers,
                 std::unique_ptr<policy::DevicePlacement> placement, const ServerOptions& options);
  // The one device of `among` whose UUID begins so, as CUDA takes it; -1 when there is none, or
  // several.
  int FindByUuid(const std::string& id, const std::vector<int>& among) const;
  // Of `granted`, by the rules of CUDA_VISIBLE_DEVICES. NotFound when that is none.
  absl::StatusOr<std::vector<int>> ChooseVisible(const std::vector<std::string>& ids,
                                                 const std::vector<int>& granted) const;
  // With mutex_ held. `placed_as` is left alone when all that may be seen is granted.
  absl::StatusOr<std::vector<int>> Grant(const SessionRequest& request,
                                         std::optional<PlacementGroup>* placed_as);
  policy::PlacementRequest PlacementRequestOf(const std::string& tenant) const;
  std::vector<policy::DeviceLoad> Loads(const std::string& tenant);
  // Notes down how a session ended. On its worker's thread, before it gives anything back.
  void NoteEnd(uint64_t id, const std::string& reason);
  void Reap();

  const std::vector<Device*> devices_;
  const ServerOptions options_;
  const std::string sessions_directory_;
  const std::unique_ptr<ImageStore> image_store_;
  Activity activity_;
  EventLog events_;
  // One a device; the queues are of the schedulers' partitions.
  const std::vector<std::unique_ptr<DeviceScheduler>> schedulers_;
  std::vector<std::unique_ptr<QueuePool>> queues_;
  TenantAccounts tenant_accounts_;
  HostStore host_store_;
  // One a device; none when memory does not leave the cards.
  std::vector<std::unique_ptr<MemoryMover>> movers_;
  std::vector<std::unique_ptr<MemoryBroker>> brokers_;
  SharedMemoryObjects shared_memory_objects_;
  SharedEvents shared_events_;
  SessionAdmission* admission_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable changed_;     // told, finished, gone, or stopping
  std::map<uint64_t, Entry> sessions_;  // guarded by mutex_
  SessionPlacement placement_;          // guarded by mutex_
  TenantHabits habits_;                 // guarded by mutex_
  std::vector<bool> slots_;             // guarded by mutex_, but for its size: taken
  uint64_t next_session_;               // guarded by mutex_
  uint32_t max_sessions_;              // guarded by mutex_
  SessionLimits limits_;                // guarded by mutex_: of sessions that are opened next
  std::string refusing_;                // guarded by mutex_: why no session is opened any more
  bool stopping_ = false;               // guarded by mutex_
  ByTenant<TenantUse> use_;             // guarded by mutex_: of sessions that are gone
  std::map<absl::StatusCode, uint64_t> refusals_;  // guarded by mutex_
  std::thread reaper_;
};

// "GPU-8a1b...", as nvidia-smi writes it.
std::string FormatUuid(const std::array<uint8_t, 16>& uuid);

}  // namespace detshare
