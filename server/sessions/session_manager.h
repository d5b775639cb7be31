// Opens, finds and ends all sessions of the daemon, and holds the devices that they share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/by_tenant.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/host_store.h"
#include "coroutine_runtime/scheduler_state.h"
#include "policy/placement.h"
#include "proto/mutex.h"
#include "server/access/tenant_endpoint.h"
#include "server/base/activity.h"
#include "server/base/event_log.h"
#include "server/session/server_options.h"
#include "server/session/session_config.h"
#include "server/sessions/device_names.h"
#include "server/sessions/ended_work.h"
#include "server/sessions/load_board.h"
#include "server/sessions/session_admission.h"
#include "server/sessions/session_placement.h"
#include "server/sessions/tenant_habits.h"
#include "server/sessions/tenant_use.h"
#include "server/sessions/use_sampler.h"
#include "server/tenants/tenant_accounts.h"

namespace detshare {

class Device;
class DeviceScheduler;
class ImageStore;
class MemoryBroker;
class MemoryMover;
class QueuePool;
class SessionWorker;
class SharedEvents;
class SharedMemoryObjects;

// A request for a session. What the client says about itself serves only for display.
struct SessionRequest {
  Owner owner;                 // from SO_PEERCRED, like `pid`
  int pid = 0;                 // 0: in a foreign pid namespace
  uint64_t pid_namespace = 0;  // as in Peer
  std::string ticket;          // as in Peer
  std::string tenant, program;
  std::vector<std::string> device_ids;  // indices or UUIDs; empty: all devices
  uint32_t device_count = 0;            // how many of them; 0: as many as the tenant may have
  std::string run;                      // as PlacementGroup::run
  // Which of the granted devices are visible, in the words of CUDA_VISIBLE_DEVICES; empty: all.
  std::vector<std::string> visible_ids;
  // The tenant endpoint through which the client came; null: it came by the daemon's own socket.
  std::shared_ptr<const TenantEndpoint> endpoint;
};

// Any thread may call it.
class SessionManager {
 public:
  // Callbacks about one session. The session's thread calls `granted` and later `ended`, or it
  // calls `refused`. `result` is as in SessionWorker. They hold no shared pointer to the worker.
  struct Listener {
    std::function<void(SessionWorker& worker, uint64_t file_bytes)> granted;
    std::function<void(const absl::Status& why)> refused;
    std::function<void(uint64_t session, int result, const std::string& reason)> ended;
    // May be null. Once, when the tenant's limit first refuses something.
    std::function<void(const std::string& why)> limited;
  };
  struct SessionInfo {
    uint64_t id = 0;
    SessionRequest request;
    int64_t age_ms = 0;
    SessionCounters counters;
    std::string state;
    bool open = false;        // the session runs, or has had a fault
    CoroutineState schedule;  // on its first device
    // On all of its devices, in the session's order; the first element is a position in devices().
    std::vector<std::pair<size_t, CoroutineState>> places;
  };

  // Creates the manager and the policy's partitions. Removes what an earlier daemon left in the
  // directory of the sessions. The devices outlive the manager. Returns NotFound for an unknown
  // policy.
  static absl::StatusOr<std::unique_ptr<SessionManager>> Create(std::vector<Device*> devices,
                                                                const ServerOptions& options);
  // Ends all sessions and waits for them.
  ~SessionManager();

  // Begins to open a session and returns its worker. The listener learns the result. Returns at
  // once the errors of DevicesOf(), NotFound if visible_ids names none of the devices,
  // ResourceExhausted if a limit is reached, and Unavailable if the daemon opens no sessions.
  absl::StatusOr<std::shared_ptr<SessionWorker>> Open(const SessionRequest& request,
                                                      Listener listener);
  std::shared_ptr<SessionWorker> Find(uint64_t id);

  // Returns the positions in devices() of the devices that such a client may use, before
  // visible_ids is applied. If the client may have some of the devices that it may see, but not
  // all, the placement chooses. The same client gets the same devices again (session_placement.h).
  // Returns InvalidArgument for devices that do not exist, PermissionDenied for more devices than
  // the tenant may have, and ResourceExhausted if they have no room.
  absl::StatusOr<std::vector<int>> DevicesOf(const SessionRequest& request);
  // Sets the placement for clients that are placed from this call on.
  void SetPlacement(std::unique_ptr<policy::DevicePlacement> placement);

  // Ends the sessions that `which` chooses and returns their numbers. `who` names the requester in
  // the log and in events. Returns PermissionDenied, and ends none, if `may` does not allow one of
  // them. Returns NotFound if `which` chooses none.
  absl::StatusOr<std::vector<uint64_t>> EndSome(
      const std::function<bool(uint64_t id, const SessionRequest& request)>& which,
      const std::function<bool(const SessionRequest& request)>& may, const std::string& who);
  // Sets whom Open() asks before it opens a session; the numbers of sessions come from there too.
  // Must be called before the first session. `admission` outlives the manager. Without this call
  // the manager decides alone.
  void SetAdmission(SessionAdmission* admission) { admission_ = admission; }
  // Sets the limits of sessions that are opened from this call on, and how many sessions there may
  // be at a time; 0: as many as there are slots.
  void SetLimits(const SessionLimits& limits, uint32_t max_sessions);

  // Refuses new sessions with `reason` and ends all open ones; their calls return `result`. Waits
  // at most `timeout` until every session has told its client.
  void EndAll(int result, const std::string& reason, std::chrono::milliseconds timeout);
  // Waits until all sessions are gone. Returns false if some remain after `timeout`.
  bool WaitUntilEmpty(std::chrono::milliseconds timeout);
  // Ends the sessions that came through the endpoint. The endpoint is marked as closed before. Does
  // not wait.
  void EndThrough(const TenantEndpoint& endpoint, int result, const std::string& reason);

  std::vector<SessionInfo> Sessions();
  // Returns the open sessions, each with its request. The caller keeps the workers only for a
  // moment, because the last owner of a worker joins its thread.
  std::vector<std::pair<SessionRequest, std::shared_ptr<SessionWorker>>> Workers();
  // Keyed by the names that ByTenant gives to tenants.
  std::map<std::string, TenantUse> Use();
  // Counts a client that got no session.
  void CountRefusal(absl::StatusCode why);
  std::map<absl::StatusCode, uint64_t> Refusals() const;
  // Returns OkStatus while all devices work. Otherwise returns the error of the lost device, with
  // the CUresult that all work on it ends with.
  // With ServerOptions::replaceable, kernels that run on after their session are such an error.
  absl::Status DeviceHealth();
  // Calls `changed` when it changes whether work of sessions runs on after their end, until
  // kOutlived. `changed` must not wait. Called before there are sessions.
  void OnEndedWork(std::function<void(EndedWork)> changed) {
    ended_work_changed_ = std::move(changed);
  }
  // Looks how long such work has run. Must be called every few milliseconds while there are sessions.
  void WatchEndedWork();
  // Shows other processes on the devices what sessions of this one do. Must be called about once a
  // second while there are sessions.
  void PublishLoads();
  // Another process on the devices wants device memory. Sessions of this process make room for it,
  // if it is their turn.
  void LookForRoom();
  // Shows the limits of tenants to other processes that serve them.
  TenantBoard& tenant_board() { return tenant_board_; }
  std::vector<PartitionView> Partitions(size_t device) const;
  // One for each device, in the order of devices().
  std::vector<DeviceScheduler*> Schedulers() const;
  const std::vector<Device*>& devices() const { return devices_; }
  // Finds devices by their positions in devices(), or by UUIDs.
  const DeviceNames& device_names() const { return device_names_; }
  const ServerOptions& options() const { return options_; }
  ImageStore& image_store() { return *image_store_; }
  // The use and the limits of tenants; device i is devices()[i].
  TenantAccounts& tenant_accounts() { return tenant_accounts_; }
  // The host memory that holds device memory of sessions.
  const HostStore& host_store() const { return host_store_; }
  // Sessions that may have work on a device are active in it.
  Activity& activity() { return activity_; }
  EventLog& events() { return events_; }
  uint64_t next_session() const;
  // The number of sessions that may be open at a time.
  size_t max_sessions() const;

 private:
  // Of the session whose work has run on for the longest time.
  EndedWork ended_work() const;
  struct Entry {
    std::shared_ptr<SessionWorker> worker;
    SessionRequest request;
    std::chrono::steady_clock::time_point begin;
    int slot = 0;
    AdmittedSession admitted;
    std::vector<int> devices;                 // positions in devices_
    std::optional<PlacementGroup> placed_as;  // empty: the session has all devices that it may see
    QuotaCharge charge;                       // counts as one of the tenant's sessions
    bool killed = false;                      // EndSome() chose it
    bool told = false;                        // its client knows that it has ended
    bool finished = false;                    // its thread can be joined
  };

  SessionManager(std::vector<Device*> devices,
                 std::vector<std::unique_ptr<DeviceScheduler>> schedulers,
                 std::unique_ptr<policy::DevicePlacement> placement, const ServerOptions& options);
  // Leaves `placed_as` alone if all visible devices are granted.
  absl::StatusOr<std::vector<int>> Grant(const SessionRequest& request,
                                         std::optional<PlacementGroup>* placed_as)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns an error if the work of a session that ends does not end, for too long.
  absl::Status EndlessWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  policy::PlacementRequest PlacementRequestOf(const std::string& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The sessions of this process, and the memory that tenants other than `except` were promised.
  std::vector<LoadBoard::Load> OwnLoads(const std::string& except)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Publishes OwnLoads(), if other processes are there.
  void ShowLoads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What there is on the devices when a session of `tenant` looks for some.
  SessionPlacement::Devices Loads(const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns a free slot. Returns Unavailable if the daemon opens no sessions or the request's
  // endpoint is closed, and ResourceExhausted if all slots are taken or there are max_sessions_
  // sessions.
  absl::StatusOr<int> FreeSlot(const SessionRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Describes a session in `slot` with the devices at `devices`, positions in devices_.
  SessionConfig ConfigOf(uint64_t id, int slot, const SessionRequest& request,
                         const std::shared_ptr<TenantAccount>& account,
                         const std::vector<int>& devices) const;
  // A session's worker calls these on its thread: HandleOpened() and later HandleEnded(), or only
  // HandleRefused(). `where` says in the event on which devices the session was placed.
  void HandleOpened(uint64_t id, const SessionRequest& request, const Listener& listener,
                    const std::string& where, uint64_t file_bytes);
  void HandleRefused(uint64_t id, const SessionRequest& request, const Listener& listener,
                     const absl::Status& why);
  void HandleEnded(uint64_t id, const Listener& listener, int result, const std::string& reason);
  // Notes how a session ended. Called on its worker's thread, before the session gives anything
  // back.
  void NoteEnd(uint64_t id, const std::string& reason);
  // Counts for endpoints which of their sessions have work on a device at this moment, and their
  // memory. `passed` is the time since the last call.
  void SampleUse(std::chrono::nanoseconds passed);
  void Reap();

  const std::vector<Device*> devices_;
  const DeviceNames device_names_;
  const ServerOptions options_;
  const std::string sessions_directory_;
  const std::unique_ptr<ImageStore> image_store_;
  Activity activity_;
  EventLog events_;
  // One for each device. The queues belong to the schedulers' partitions.
  const std::vector<std::unique_ptr<DeviceScheduler>> schedulers_;
  std::vector<std::unique_ptr<QueuePool>> queues_;
  TenantBoard tenant_board_;
  TenantAccounts tenant_accounts_;
  HostStore host_store_;
  LoadBoard load_board_ ABSL_GUARDED_BY(mutex_);
  int64_t published_at_ ABSL_GUARDED_BY(mutex_) = 0;
  // One for each device; empty if memory does not leave the cards.
  std::vector<std::unique_ptr<MemoryMover>> movers_;
  std::vector<std::unique_ptr<MemoryBroker>> brokers_;
  const std::unique_ptr<SharedMemoryObjects> shared_memory_objects_;
  const std::unique_ptr<SharedEvents> shared_events_;
  SessionAdmission* admission_ = nullptr;

  Mutex ended_work_mutex_;  // orders the calls of ended_work_changed_
  std::function<void(EndedWork)> ended_work_changed_;
  EndedWork ended_work_ ABSL_GUARDED_BY(ended_work_mutex_) = EndedWork::kNone;
  mutable Mutex mutex_;
  // Notified when a session is told, finished or gone, or the manager stops.
  CondVar changed_;
  std::map<uint64_t, Entry> sessions_ ABSL_GUARDED_BY(mutex_);
  SessionPlacement placement_ ABSL_GUARDED_BY(mutex_);
  TenantHabits habits_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> slots_ ABSL_GUARDED_BY(mutex_);  // whether a slot is taken
  uint64_t next_session_ ABSL_GUARDED_BY(mutex_);
  uint32_t max_sessions_ ABSL_GUARDED_BY(mutex_);
  SessionLimits limits_ ABSL_GUARDED_BY(mutex_);  // for sessions that are opened next
  // Why no session is opened. Empty: sessions are opened.
  std::string refusing_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ByTenant<TenantUse> use_ ABSL_GUARDED_BY(mutex_);  // work of sessions that are gone
  std::map<absl::StatusCode, uint64_t> refusals_ ABSL_GUARDED_BY(mutex_);
  std::thread reaper_;
  UseSampler use_sampler_;  // of the sessions behind endpoints
};

}  // namespace detshare
