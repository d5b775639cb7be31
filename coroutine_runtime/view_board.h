// Shows a process the coroutines of other processes on one device, and shows others its own.
//
// Each process has the same policy, and decides about its own coroutines only. It sees those of others
// in its snapshots (policy::Snapshot::other_engines).
//
// Threading: one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "coroutine_runtime/engine_page.h"
#include "policy/policy.h"

namespace detshare {

class ViewBoard {
 public:
  // `device` is the device's number in the pages. `own` are this process's words for it. All references
  // outlive the object.
  ViewBoard(ViewWords& own, const EnginePeers& peers, size_t device)
      : own_(own), peers_(peers), device_(device) {}

  // Publishes the coroutines of this process. grants[i] is that of coroutines[i]. Of more than
  // ViewWords::kMaxCoroutines, those of low ranks with work go first.
  void Publish(absl::Span<const policy::CoroutineView> coroutines,
               absl::Span<const policy::Grant> grants);
  // Returns what the other processes have published, valid until the next call.
  absl::Span<const policy::OtherEngineView> Others();

 private:
  ViewWords& own_;
  const EnginePeers& peers_;
  const size_t device_;
  std::vector<policy::OtherEngineView> others_;
  std::vector<policy::Tenant> tenants_;  // of others_
};

}  // namespace detshare
