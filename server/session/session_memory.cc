#include "server/session/session_memory.h"

#include <span>
#include <string>

#include "coroutine_runtime/device.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/status_macros.h"
#include "server/session/ipc_memory.h"
#include "server/session/managed_ranges.h"
#include "server/session/peer_access.h"
#include "server/session/pinned_memory.h"
#include "server/session/server_options.h"
#include "server/session/session_config.h"
#include "server/session/session_device.h"
#include "server/session/virtual_memory.h"
#include "server/shared_memory/shared_region.h"

namespace detshare {
namespace {

std::unique_ptr<PinnedWindow> MakeWindow(const SessionConfig& config,
                                         const ServerOptions& options) {
  return std::make_unique<PinnedWindow>(
      config.directory,
      options.windows.pinned_base +
          options.windows.pinned_bytes * static_cast<uint64_t>(config.slot),
      options.windows.pinned_bytes, config.owner, options.limits.pinned, config.pinned_quota);
}

}  // namespace

SessionMemory::SessionMemory(const SessionConfig& config, const ServerOptions& options,
                             SharedRegion& region, std::vector<SessionDevice>& devices)
    : region_(region),
      devices_(devices),
      pinned_(std::make_unique<PinnedMemory>(devices, MakeWindow(config, options), config.label)),
      managed_(std::make_unique<ManagedRanges>(devices, config.directory, config.owner)),
      peer_access_(std::make_unique<PeerAccess>()),
      virtual_memory_(std::make_unique<VirtualMemory>(devices)),
      ipc_(std::make_unique<IpcMemory>(devices, *config.shared_memory_objects, config.owner.uid)) {}

SessionMemory::~SessionMemory() = default;

SessionDevice* SessionMemory::DeviceOf(SessionDevice& here, uint64_t address, uint64_t bytes,
                                       bool write) {
  if (here.space->Contains(address, bytes, write)) [[likely]]
    return &here;
  for (SessionDevice& device : devices_) {
    if (&device != &here && device.space->Contains(address, bytes, write)) return &device;
  }
  return nullptr;
}

absl::Status SessionMemory::UseStaging(uint64_t offset, uint64_t bytes) {
  const uint64_t all = region_.sizes().staging_bytes, first = region_.first_staging();
  if (offset > all || bytes > all - offset)
    return CudaError(kCudaErrorInvalidValue, "a range outside of the staging area");
  if (offset + bytes <= first) return absl::OkStatus();
  if (offset < first)
    return CudaError(kCudaErrorInvalidValue, "a range in both parts of the staging area");
  if (late_staging_registered_) return absl::OkStatus();
  while (!region_.complete()) {
    if (absl::Status space = region_.AllocateSlice(); !space.ok())
      return CudaError(kCudaErrorOutOfMemory, std::string(space.message()));
  }
  const std::span<uint8_t> late = region_.late_part();
  for (SessionDevice& device : devices_)
    DETSHARE_RETURN_IF_ERROR(device.space->RegisterHost(late.data(), late.size()));
  late_staging_registered_ = true;
  return absl::OkStatus();
}

void SessionMemory::EndOnDevices() {
  virtual_memory_.reset();
  ipc_.reset();
}

}  // namespace detshare
