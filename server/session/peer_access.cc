#include "server/session/peer_access.h"

#include <algorithm>
#include <map>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/device_memory.h"
#include "coroutine_runtime/executor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/session/session_device.h"

namespace detshare {
namespace {

constexpr int kAccessSupported = 2;             // CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
constexpr int kPeerAccessAlreadyEnabled = 704;  // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
constexpr int kPeerAccessNotEnabled = 705;      // CUDA_ERROR_PEER_ACCESS_NOT_ENABLED

}  // namespace

bool Reaches(const Device& device, const Device& memory) {
  if (&device == &memory) return true;
  const std::map<int, int> attributes = device.PeerAttributes(memory);
  const auto access = attributes.find(kAccessSupported);
  return access != attributes.end() && access->second != 0;
}

bool PeerAccess::Any(const SessionDevice& device, const SessionDevice& peer_device) const {
  return std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& access) {
    return access.device == &device && access.peer_device == &peer_device;
  });
}

absl::Status PeerAccess::Enable(ContextId context, SessionDevice& device, ContextId peer,
                                SessionDevice& peer_device) {
  const bool known = std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& access) {
    return access.context == context && access.peer == peer;
  });
  if (known) return CudaError(kPeerAccessAlreadyEnabled, "the context has access already");
  if (!Any(device, peer_device)) {
    peer_device.coroutine->AddUser(*device.coroutine);
    DETSHARE_RETURN_IF_ERROR(peer_device.memory->Share(*device.space));
  }
  accesses_.push_back({context, peer, &device, &peer_device});
  return absl::OkStatus();
}

Task<absl::Status> PeerAccess::Disable(ContextId context, ContextId peer) {
  const auto is_it = [&](const Access& access) {
    return access.context == context && access.peer == peer;
  };
  auto found = std::find_if(accesses_.begin(), accesses_.end(), is_it);
  if (found == accesses_.end())
    co_return CudaError(kPeerAccessNotEnabled, "the context has no access");
  SessionDevice& device = *found->device;
  DETSHARE_CO_RETURN_IF_ERROR(co_await device.coroutine->Idle());
  // Look again: another call or the end of a context may have removed the access during the wait.
  found = std::find_if(accesses_.begin(), accesses_.end(), is_it);
  if (found == accesses_.end())
    co_return CudaError(kPeerAccessNotEnabled, "the context has no access");
  SessionDevice& peer_device = *found->peer_device;
  accesses_.erase(found);
  if (!Any(device, peer_device)) peer_device.memory->Unshare(*device.space);
  co_return absl::OkStatus();
}

void PeerAccess::ForgetContext(ContextId context) {
  for (size_t i = accesses_.size(); i-- > 0;) {
    const Access access = accesses_[i];
    if (access.context != context && access.peer != context) continue;
    accesses_.erase(accesses_.begin() + static_cast<ptrdiff_t>(i));
    if (!Any(*access.device, *access.peer_device))
      access.peer_device->memory->Unshare(*access.device->space);
  }
}

}  // namespace detshare
