// Which contexts of a session may use the memory of which others. The devices' access follows from
// that: all contexts that a session has on a device share its addresses, so a device keeps its
// access as long as one of its contexts has any.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/task.h"

namespace detshare {

struct SessionDevice;

// Used on the session's thread. Ends after the session's tasks.
class PeerAccess {
 public:
  // Work of `context` may touch the allocations that `peer`, a context of another device, has and
  // will have. CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED.
  absl::Status Enable(ContextId context, SessionDevice& device, ContextId peer,
                      SessionDevice& peer_device);
  // Ends when no work can use the access any more. CUDA_ERROR_PEER_ACCESS_NOT_ENABLED.
  Task<absl::Status> Disable(ContextId context, ContextId peer);
  // Everything that a context has or gives, whose work is complete on all devices.
  void ForgetContext(ContextId context);

 private:
  struct Access {
    ContextId context = 0, peer = 0;
    SessionDevice* device = nullptr;
    SessionDevice* peer_device = nullptr;
  };

  // Whether some context of one device has access to some of the other.
  bool Any(const SessionDevice& device, const SessionDevice& peer_device) const;

  std::vector<Access> accesses_;
};

}  // namespace detshare
