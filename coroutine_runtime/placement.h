// Carries out what a policy decides on one device: keeps the partitions, and binds the coroutines
// of sessions to them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/clock.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "policy/policy.h"

namespace detshare {

// Any thread. Outlives the coroutines that it was given, and the queue pool of its device, which
// holds queues of its partitions.
class Placement {
 public:
  struct PartitionView {
    std::string name;  // "all" or "sm0-63"
    int first_sm = 0, sm_count = 0;
    int sessions = 0;
  };

  // Makes all partitions that the policy may name: slow and may drain the device, so when the
  // daemon starts. The clock outlives the placement.
  static absl::StatusOr<std::unique_ptr<Placement>> Create(Device& device,
                                                           std::unique_ptr<policy::Policy> policy,
                                                           std::vector<policy::Tenant> tenants,
                                                           const Clock& clock);

  // A session begins or ends: asks the policy and binds whom it moves. Called on the coroutine's
  // thread, which binds it at once; others follow when their executor polls. A session is removed
  // before its executor and coroutine end.
  void Add(policy::CoroutineId session, const std::string& tenant, GpuCoroutine& coroutine);
  void Remove(policy::CoroutineId session);

  // The whole device first.
  std::vector<PartitionView> Partitions() const;
  // The name of the session's partition, empty for an unknown session.
  std::string PartitionOf(policy::CoroutineId session) const;

 private:
  struct Place {
    policy::SmRange range;
    std::unique_ptr<Partition> owned;  // null for the whole device
    Partition* partition = nullptr;
    std::string name;
  };
  struct Entry {
    policy::CoroutineView view;
    policy::Tenant tenant;
    GpuCoroutine* coroutine = nullptr;
    const Place* place = nullptr;
  };

  Placement(Device& device, std::unique_ptr<policy::Policy> policy,
            std::vector<policy::Tenant> tenants, const Clock& clock)
      : device_(device), policy_(std::move(policy)), tenants_(std::move(tenants)), clock_(clock) {}

  // `caller`: the coroutine whose thread this is, or null.
  void Decide(const GpuCoroutine* caller);

  Device& device_;
  const std::unique_ptr<policy::Policy> policy_;
  const std::vector<policy::Tenant> tenants_;
  const Clock& clock_;
  std::vector<policy::SmRange> ranges_;  // those of places_
  std::vector<Place> places_;            // constant after Create

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // in the order in which the sessions began; guarded by mutex_
};

}  // namespace detshare
