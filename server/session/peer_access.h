// Records which contexts of a session may use the memory of which other contexts. All contexts of a
// session on a device share that device's addresses. A device therefore keeps its access as long as
// any of its contexts has access.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/task.h"

namespace detshare {

struct SessionDevice;

// Whether work of the device can use memory of the other one, which may be the same.
bool Reaches(const Device& device, const Device& memory);

// Threading: the session's worker. Destroyed after the session's tasks.
class PeerAccess {
 public:
  // Lets work of `context` use all present and future allocations of `peer`, a context of another
  // device. CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED.
  absl::Status Enable(ContextId context, SessionDevice& device, ContextId peer,
                      SessionDevice& peer_device);
  // Completes when no work can use the access any more. CUDA_ERROR_PEER_ACCESS_NOT_ENABLED.
  Task<absl::Status> Disable(ContextId context, ContextId peer);
  // Removes all access from and to the context. Its work must be complete on all devices.
  void ForgetContext(ContextId context);

 private:
  struct Access {
    ContextId context = 0, peer = 0;
    SessionDevice* device = nullptr;
    SessionDevice* peer_device = nullptr;
  };

  // Whether any context of `device` has access to any context of `peer_device`.
  bool Any(const SessionDevice& device, const SessionDevice& peer_device) const;

  std::vector<Access> accesses_;
};

}  // namespace detshare
