// Carries out what a policy decides on one device: keeps the partitions, asks the policy, and tells
// the coroutines' entities (sched_entity.h), where each session's worker follows it operation by operation.
//
//     the policy is asked             by
//     a coroutine comes or goes       its worker, in Add() and Remove()
//     a setting changes               whoever changes it
//     work begins, ends, runs out     the scheduler's thread, which a worker wakes
//     of its budget
//     the policy's own time           the scheduler's thread
//
// The thread sleeps without limit while nobody has work or is throttled, and otherwise until the policy's
// own time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/by_tenant.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/scheduler_state.h"
#include "coroutine_runtime/trace_event.h"
#include "coroutine_runtime/work_totals.h"
#include "policy/policy.h"

namespace detshare {

class Device;
class DurationTable;
class GpuCoroutine;
class Partition;
struct SchedBoard;
struct TraceReference;

// Any thread. Outlives the coroutines that it was given, and the queue pool of its device, which
// holds queues of its partitions.
class DeviceScheduler {
 public:
  struct Options {
    // Not 0: every so many operations of a session move to the next partition, whatever the policy
    // says. For verification: results must not depend on it.
    uint32_t migrate_every = 0;
    // Also makes the partitions of policy/partition_pool.h for policies that follow what coroutines
    // do.
    bool standard_partitions = false;
    // Without a thread whoever has the scheduler calls AskIfDue().
    bool own_thread = true;
  };

  // Makes all partitions that the policy may name: slow and may drain the device, so when the
  // daemon starts. The clock outlives the scheduler. InvalidArgument where the policy cannot serve
  // the tenants.
  static absl::StatusOr<std::unique_ptr<DeviceScheduler>> Create(
      Device& device, std::unique_ptr<policy::Policy> policy, std::vector<policy::Tenant> tenants,
      const Clock& clock, Options options);
  ~DeviceScheduler();
  DeviceScheduler(const DeviceScheduler&) = delete;
  DeviceScheduler& operator=(const DeviceScheduler&) = delete;

  // What is said about a tenant; of one that is not configured: its name.
  policy::Tenant SettingsOf(const std::string& tenant) const;

  // What was learned about operations of this device.
  DurationTable& durations() { return *durations_; }

  // A session begins or ends, on its worker's thread. Others are told what follows for them at
  // their next record. A session is removed before its coroutine ends.
  void Add(policy::CoroutineId session, const std::string& tenant, GpuCoroutine& coroutine);
  void Remove(policy::CoroutineId session, GpuCoroutine& coroutine);

  // From now on another policy decides, or the same one about other tenants. Makes the partitions
  // that are missing, which drains the device; none are taken away. On an error nothing has
  // changed.
  absl::Status SetPolicy(std::unique_ptr<policy::Policy> policy);
  absl::Status SetTenants(std::vector<policy::Tenant> tenants);
  // Both at once: a policy that would not do for the tenants before, or they for the policy before.
  absl::Status SetPolicyAndTenants(std::unique_ptr<policy::Policy> policy,
                                   std::vector<policy::Tenant> tenants);

  // From now on all that happens on the device is noted down, until StopTrace(): every operation is
  // timed, which costs it two markers. Waits for the device for a moment; Unavailable when it does
  // not answer. Nothing is kept of an earlier trace.
  absl::Status StartTrace();
  void StopTrace();
  struct Traced {
    policy::CoroutineId session = 0;
    FetchedTrace fetched;
  };
  // What was noted down since the last call. Sessions whose rings nobody empties are traced no
  // longer.
  std::vector<Traced> FetchTrace();

  // What each tenant's coroutines did, those that are gone and those that are there: figures that
  // only grow.
  struct TenantTotals {
    policy::Tenant tenant;  // as it is set now
    WorkTotals work;
  };
  std::map<std::string, TenantTotals> Totals() const;

  // Asks the policy if something has happened, or its time has come. Whether it did. Without a
  // thread.
  bool AskIfDue();

  // The whole device first.
  std::vector<PartitionView> Partitions() const;
  // False for an unknown session.
  bool StateOf(policy::CoroutineId session, CoroutineState* state) const;

 private:
  struct Place;
  struct Entry;

  DeviceScheduler(Device& device, std::unique_ptr<policy::Policy> policy,
                  std::vector<policy::Tenant> tenants, const Clock& clock, Options options);

  // What follows is called with mutex_.
  absl::Status MakePartitions(const policy::Policy& policy,
                              const std::vector<policy::Tenant>& tenants);
  void Decide();
  void Publish(Entry& entry, const policy::Grant& grant, bool followed);
  policy::Tenant TenantOf(const std::string& name) const;
  const Place& PlaceAt(int index) const;
  const Place* PlaceOf(const Partition* partition) const;  // null: none of them
  static WorkTotals TotalsOf(const Entry& entry);

  void Wake();
  void Run();

  Device& device_;
  const Clock& clock_;
  const Options options_;
  const std::unique_ptr<SchedBoard> board_;
  const std::unique_ptr<DurationTable> durations_;

  mutable std::mutex mutex_;  // guards what follows
  std::unique_ptr<policy::Policy> policy_;
  std::vector<policy::Tenant> tenants_;
  std::vector<policy::SmRange> ranges_;          // those of places_
  std::vector<std::unique_ptr<Place>> places_;   // none is ever taken away
  std::vector<std::unique_ptr<Entry>> entries_;  // in the order in which the sessions began
  policy::Nanoseconds ask_at_ = policy::kForever;
  std::shared_ptr<const TraceReference> trace_;  // null: none is taken
  std::vector<Traced> ended_;                    // rest of the traces of sessions that are gone
  ByTenant<WorkTotals> gone_;                    // what sessions did that are gone

  // Taken by workers for a moment only; never together with mutex_.
  std::mutex wake_mutex_;  // guards what follows
  std::condition_variable woken_;
  bool news_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace detshare
