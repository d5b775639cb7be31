// Carries out the policy's decisions on one device. The scheduler keeps the partitions, asks the
// policy, and publishes the policy's grants to the sched entities of the coroutines
// (sched_entity.h). The worker of each session applies them to each operation.
//
//     event                           thread that asks the policy
//     a coroutine comes or goes       its worker, in Add() and Remove()
//     a setting changes               the thread that changes it
//     a budget runs out               the scheduler's thread, which a worker wakes
//     work begins or ends             the same, soon after if that happens often (moderated_wake.h)
//     the time that the policy named  the scheduler's thread
//     while other processes use the device and a coroutine has work: the same, every 5 ms
//     the urgent time-slice group is open     the thread that opened it
//
// A thread opens the urgent group when the policy first calls a coroutine urgent, because this takes long.
// A coroutine that is urgent from its start waits for it, so that nothing binds it to the ordinary group
// before. One that becomes urgent later is moved once the group is open. If opening fails, the work stays
// in the ordinary group, and the next coroutine that begins leads to another attempt.
//
// While no coroutine has work or is throttled, the thread sleeps without limit. Otherwise it sleeps
// until the time that the policy named.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/by_tenant.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/moderated_wake.h"
#include "coroutine_runtime/scheduler_state.h"
#include "coroutine_runtime/trace_event.h"
#include "coroutine_runtime/work_totals.h"
#include "policy/policy.h"
#include "proto/mutex.h"

namespace detshare {

class Device;
class DeviceTurn;
class DurationTable;
class GpuCoroutine;
class Partition;
class ViewBoard;
struct SchedBoard;
struct TraceReference;
struct EnginePage;
struct EnginePeers;

// Threading: any thread. Lifetime: outlives its coroutines, and outlives the queue pool of its
// device, because the pool holds queues of the scheduler's partitions.
class DeviceScheduler {
 public:
  struct Options {
    // If not 0, a session moves to the next partition after this many operations, whatever the
    // policy says. For verification: results must not depend on it.
    uint32_t migrate_every = 0;
    // Also creates the partitions of policy/partition_pool.h, for policies that follow the work of
    // coroutines.
    bool standard_partitions = false;
    // If false, the scheduler has no thread, and its owner calls AskIfDue().
    bool own_thread = true;
    // The words of this process and of the others that use the device, and its number there; null:
    // no other process uses it. They outlive the scheduler.
    EnginePage* page = nullptr;
    const EnginePeers* peers = nullptr;
    size_t device_number = 0;
    // Learns why the urgent group could not be opened; null: nobody does. Any thread.
    std::function<void(const absl::Status&)> not_opened;
  };

  // Creates all partitions that the policy may name. This is slow and may drain the device, so it
  // is done when the daemon starts. The clock must outlive the scheduler. Returns InvalidArgument
  // if the policy cannot serve the tenants.
  static absl::StatusOr<std::unique_ptr<DeviceScheduler>> Create(
      Device& device, std::unique_ptr<policy::Policy> policy, std::vector<policy::Tenant> tenants,
      const Clock& clock, Options options);
  ~DeviceScheduler();
  DeviceScheduler(const DeviceScheduler&) = delete;
  DeviceScheduler& operator=(const DeviceScheduler&) = delete;

  // Returns the settings of a tenant. For a tenant that is not configured, only the name is set.
  policy::Tenant SettingsOf(const std::string& tenant) const;

  // The durations learned for operations of this device.
  DurationTable& durations() { return *durations_; }
  // Null: no other process uses the device.
  DeviceTurn* turn() const { return turn_.get(); }

  // A session begins or ends; called on its worker's thread. Other sessions learn of the
  // consequences at their next record. A session must be removed before its coroutine ends.
  void Add(policy::CoroutineId session, const std::string& tenant, GpuCoroutine& coroutine);
  void Remove(policy::CoroutineId session, GpuCoroutine& coroutine);

  // Two sessions wait for each other's work from now on. Does nothing if one of them is not on the
  // device. Any thread.
  void Cooperate(policy::CoroutineId one, policy::CoroutineId other);

  // Replaces the policy, or the tenants' settings. Creates the partitions that are missing, which
  // drains the device, and keeps all existing ones. The former policy and settings are in force until
  // then. If the call fails, they stay so.
  absl::Status SetPolicy(std::unique_ptr<policy::Policy> policy);
  absl::Status SetTenants(std::vector<policy::Tenant> tenants);
  // Replaces both at once, for a policy and tenants that do not fit the current tenants and policy.
  absl::Status SetPolicyAndTenants(std::unique_ptr<policy::Policy> policy,
                                   std::vector<policy::Tenant> tenants);

  // Traces all operations on the device until StopTrace(). Each operation is timed, which costs two
  // markers. Waits for the device for a moment; returns Unavailable if the device does not respond.
  // Discards any earlier trace.
  absl::Status StartTrace();
  void StopTrace();
  struct Traced {
    policy::CoroutineId session = 0;
    FetchedTrace fetched;
  };
  // Returns the trace since the last call. Tracing stops for sessions whose rings are not emptied.
  std::vector<Traced> FetchTrace();

  // Another process has begun or ended to use the device.
  void NotePeers();

  // The work of each tenant's coroutines, present and past. The figures only grow.
  struct TenantTotals {
    policy::Tenant tenant;  // its current settings
    WorkTotals work;
  };
  std::map<std::string, TenantTotals> Totals() const;

  // Asks the policy if something has happened or its time has come, and returns whether it asked.
  // For schedulers without a thread.
  bool AskIfDue();

  // The first is the whole device.
  std::vector<PartitionView> Partitions() const;
  // Whether programs that the daemon does not serve use the device beside ordinary work, which then has a
  // longer time slice (ProgressGuard).
  bool BesideNative() const;
  // Returns false for an unknown session.
  bool StateOf(policy::CoroutineId session, CoroutineState* state) const;

 private:
  struct Place;
  struct Entry;

  DeviceScheduler(Device& device, std::unique_ptr<policy::Policy> policy,
                  std::vector<policy::Tenant> tenants, const Clock& clock, Options options);

  // The partitions that the policy wants for the tenants, and that do not exist.
  std::vector<policy::SmRange> MissingRanges(const policy::Policy& policy,
                                             const std::vector<policy::Tenant>& tenants) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for the device, for ever if a kernel does not end.
  absl::Status MakePartitions(const std::vector<policy::SmRange>& ranges)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Null or no value: stays.
  absl::Status Replace(std::unique_ptr<policy::Policy> policy,
                       std::optional<std::vector<policy::Tenant>> tenants)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void TakeTenants(std::vector<policy::Tenant> tenants) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Decide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish(Entry& entry, const policy::Grant& grant, bool followed, bool yields)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  policy::Tenant TenantOf(const std::string& name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Place& PlaceAt(int index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the grant's work should run in the urgent time-slice group, which is open then.
  bool Preempts(const policy::Grant& grant) const;
  // Whether its work runs in the urgent time-slice group.
  bool Preempts(const Entry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null if it is not in places_.
  const Place* PlaceOf(const Partition* partition) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The scheduler's mutex is held.
  static WorkTotals TotalsOf(const Entry& entry);

  // Lets a thread open the urgent group, if there is no attempt that has failed or goes on.
  void OpenUrgent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Run();

  Device& device_;
  const Clock& clock_;
  const Options options_;
  const std::unique_ptr<DeviceTurn> turn_;        // null: no other process uses the device
  const std::unique_ptr<ViewBoard> other_views_;  // null: as turn_
  const std::unique_ptr<SchedBoard> board_;
  const std::unique_ptr<DurationTable> durations_;

  mutable Mutex mutex_;
  std::unique_ptr<policy::Policy> policy_ ABSL_GUARDED_BY(mutex_);
  std::vector<policy::Tenant> tenants_ ABSL_GUARDED_BY(mutex_);
  std::vector<policy::SmRange> ranges_ ABSL_GUARDED_BY(mutex_);         // of places_
  std::vector<std::unique_ptr<Place>> places_ ABSL_GUARDED_BY(mutex_);  // never shrinks
  // In the order in which the sessions began.
  std::vector<std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  policy::Nanoseconds ask_at_ ABSL_GUARDED_BY(mutex_) = policy::kForever;
  enum class Opening { kPossible, kNow, kOver };
  Opening opening_ ABSL_GUARDED_BY(mutex_) = Opening::kPossible;  // of the urgent group
  CondVar opened_;                                                // opening_ is not kNow any more
  std::thread opener_ ABSL_GUARDED_BY(mutex_);
  // Null while there is no trace.
  std::shared_ptr<const TraceReference> trace_ ABSL_GUARDED_BY(mutex_);
  std::vector<Traced> ended_ ABSL_GUARDED_BY(mutex_);  // the rest of the traces of ended sessions
  ByTenant<WorkTotals> gone_ ABSL_GUARDED_BY(mutex_);  // the work of ended sessions

  ModeratedWake wake_;  // of the thread
  std::thread thread_;
};

}  // namespace detshare
