// Memory of one session that other processes of its user open (cuIpcGetMemHandle), and what it has
// opened of theirs.
//
// What is shown is the physical memory behind an allocation, whole: small allocations share it with
// their neighbours, and the opener learns where the one that is meant begins. It is kept until the
// allocation is freed; whoever has opened it keeps it longer. Opened memory is mapped in the window
// of the device on which it lies, when the session has that device, else in the opener's.
//
// Threading: the session's. Ends before the address spaces and after the session's tasks.
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
  static constexpr size_t kLimit = 1 << 14;  // allocations shown, and mappings opened

  // Both outlive the object. `user`: of the session's process.
  IpcMemory(std::vector<SessionDevice>& devices, SharedMemoryObjects& objects, uid_t user)
      : devices_(devices), objects_(objects), user_(user) {}

  // The token of the allocation that contains `address`, always the same.
  // CUDA_ERROR_INVALID_VALUE when there is none.
  absl::StatusOr<ShareTokenValue> Show(SessionDevice& device, DeviceAddress address);
  // An allocation is freed.
  void Forget(DeviceAddress address) { shown_.erase(address); }

  struct Opened {
    DeviceAddress address = 0;  // of the allocation
    uint64_t bytes = 0;
    SessionDevice* device = nullptr;  // in whose window it is
  };
  // Opens another process's memory for work of `device`, or counts once more what is open.
  // CUDA_ERROR_INVALID_CONTEXT for memory of this session, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED where
  // the device does not reach it.
  Task<absl::StatusOr<Opened>> Open(SessionDevice& device, ContextId context,
                                    ShareTokenValue token);
  // Ends when no work can touch it any more; true when it was opened more often, and stays.
  // CUDA_ERROR_INVALID_VALUE for an address that Open did not give.
  Task<absl::StatusOr<bool>> Close(DeviceAddress address);
  // Closes what was opened in a context, whose work is complete on all devices, and forgets its
  // allocations, which are freed.
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
    DeviceAddress begin = 0;  // of what is mapped
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
  std::map<DeviceAddress, Shown> shown_;       // by the allocation's address
  std::map<DeviceAddress, Mapping> mappings_;  // by the address that the client knows
};

}  // namespace detshare
