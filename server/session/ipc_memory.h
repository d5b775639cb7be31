// The memory that one session exports to other processes of its user (cuIpcGetMemHandle), and the
// memory of other processes that it has opened.
//
// An export covers the whole physical memory behind an allocation. Small allocations share it with
// their neighbours, so the opener also gets the offset of the exported allocation. The session
// keeps the export until the allocation is freed; a process that opened it keeps the memory longer.
// Opened memory is mapped in the window of the device that holds it when the session has that
// device, else in the window of the opening device.
//
// Threading: the session's worker. Destroyed after the session's tasks and before its address
// spaces.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/gpu_coroutine.h"
#include "coroutine_runtime/physical_memory.h"
#include "coroutine_runtime/task.h"
#include "server/session/shared_memory_objects.h"

namespace detshare {

struct SessionDevice;

class IpcMemory {
 public:
  static constexpr size_t kLimit = 1 << 14;  // of exported allocations, and of opened mappings

  // `devices` and `objects` must outlive the object. `user`: the user of the client process.
  IpcMemory(std::vector<SessionDevice>& devices, SharedMemoryObjects& objects, uid_t user)
      : devices_(devices), objects_(objects), user_(user) {}

  // Returns the token of the allocation that contains `address`. Every call returns the same token.
  // CUDA_ERROR_INVALID_VALUE when no allocation contains it.
  absl::StatusOr<ShareTokenValue> Show(SessionDevice& device, DeviceAddress address);
  // Call when an allocation is freed.
  void Forget(DeviceAddress address) { shown_.erase(address); }

  struct Opened {
    DeviceAddress address = 0;  // of the allocation
    uint64_t bytes = 0;
    SessionDevice* device = nullptr;  // the device whose window holds it
  };
  // Opens another process's memory for work of `device`. For memory that is already open, it only
  // increments the count of opens. CUDA_ERROR_INVALID_CONTEXT for memory of this session,
  // CUDA_ERROR_PEER_ACCESS_UNSUPPORTED when the device cannot reach the memory.
  Task<absl::StatusOr<Opened>> Open(SessionDevice& device, ContextId context,
                                    ShareTokenValue token);
  // Completes when no work can use the memory any more. Returns true when opens remain and the
  // memory stays mapped. CUDA_ERROR_INVALID_VALUE for an address that Open() did not return.
  Task<absl::StatusOr<bool>> Close(DeviceAddress address);
  // Closes the memory that the context opened, and drops the exports of its freed allocations. The
  // context's work must be complete on all devices.
  void EndContext(ContextId context);

 private:
  struct Shown {
    ShareTokenValue token;
    std::shared_ptr<PhysicalMemory> memory;
  };
  struct Mapping {
    ShareTokenValue token;
    Opened opened;
    ContextId context = 0;
    DeviceAddress begin = 0;  // of the mapping
    uint64_t bytes = 0;
    std::vector<SessionDevice*> users;  // other devices with access
    int opens = 1;
    bool closing = false;
  };

  absl::Status Allow(SessionDevice& device, Mapping& mapping);
  void Unmap(const Mapping& mapping);

  std::vector<SessionDevice>& devices_;
  SharedMemoryObjects& objects_;
  const uid_t user_;
  std::map<DeviceAddress, Shown> shown_;       // by address of the allocation
  std::map<DeviceAddress, Mapping> mappings_;  // by the address that the client knows
};

}  // namespace detshare
