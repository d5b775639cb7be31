// Virtual memory management of one session: the reserved address ranges, the physical memory that
// the session holds, and the mappings between them.
//
//     reserved address --Map--> mapped, without access --SetAccess--> accessible
//            ^                                                             |
//            +------------------Unmap, when earlier work is complete-------+
//
// Physical memory lives as long as a session holds its id or maps it. It counts for the session
// that created it. A range lies in the window of one device, even when memory of other devices is
// mapped there.
//
// Threading: the session's worker. Destroyed after the session's tasks and before its address
// spaces.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coroutine_runtime/device.h"
#include "coroutine_runtime/physical_memory.h"
#include "coroutine_runtime/task.h"

namespace detshare {

struct SessionDevice;

class VirtualMemory {
 public:
  using Id = uint32_t;                         // as in proto/wire/virtual_memory.h
  static constexpr uint32_t kLimit = 1 << 16;  // of ranges, of ids and of mappings

  explicit VirtualMemory(std::vector<SessionDevice>& devices);
  ~VirtualMemory();  // only unmaps the access of other devices
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  // All functions return CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY or the device's error.

  // Like DeviceMemory::Reserve().
  Task<absl::StatusOr<DeviceAddress>> Reserve(SessionDevice& device, uint64_t bytes,
                                              uint64_t alignment, DeviceAddress wanted);
  // The arguments must describe exactly one range without mappings.
  absl::Status FreeReservation(DeviceAddress address, uint64_t bytes);

  // On a full card, waits for the eviction of other sessions' memory if it can make room.
  Task<absl::StatusOr<Id>> Create(SessionDevice& device, uint64_t bytes);
  // Adds memory that another session created. `device` holds it.
  absl::StatusOr<Id> Adopt(std::shared_ptr<PhysicalMemory> memory, SessionDevice& device);
  absl::Status Release(Id id);

  struct Named {
    std::shared_ptr<PhysicalMemory> memory;
    SessionDevice* device = nullptr;  // the device that holds the memory
  };
  // Null when there is no such id.
  const Named* Find(Id id) const;

  // Maps the first `bytes` bytes of the memory. The addresses must lie inside one reserved range.
  absl::Status Map(DeviceAddress address, uint64_t bytes, Id id);
  // Unmaps one mapping, or several adjacent mappings. Completes when no work can use them any more.
  Task<absl::Status> Unmap(DeviceAddress address, uint64_t bytes);
  // Sets the access of work on `device` to one mapping, or to several adjacent mappings.
  absl::Status SetAccess(SessionDevice& device, DeviceAddress address, uint64_t bytes,
                         MemoryAccess access);

  // Whether memory is mapped in any part of the range.
  bool Overlaps(DeviceAddress address, uint64_t bytes) const;

  // Any thread. Bytes of existing physical memory that the session created.
  uint64_t bytes() const { return made_->load(std::memory_order_relaxed); }

 private:
  struct Range {
    uint64_t bytes = 0;
    SessionDevice* owner = nullptr;  // the device whose window holds it
  };
  struct Mapping {
    uint64_t bytes = 0;
    SessionDevice* owner = nullptr;
    uint32_t accessible = 0;  // one bit for each device, set when it has access
    bool unmapping = false;
  };
  using Mappings = std::map<DeviceAddress, Mapping>;

  size_t IndexOf(const SessionDevice& device) const;
  // The range that contains all of the addresses, or null.
  Range* Containing(DeviceAddress address, uint64_t bytes);
  // The mappings that together cover exactly this range. An error when there are none, or one of
  // them is being unmapped.
  absl::StatusOr<std::vector<Mappings::iterator>> Exactly(DeviceAddress address, uint64_t bytes);

  std::vector<SessionDevice>& devices_;
  std::map<DeviceAddress, Range> ranges_;
  Mappings mappings_;
  absl::flat_hash_map<Id, Named> named_;
  Id next_id_ = 1;
  // Shared with the memory that it counts, which may outlive this object. Relaxed: for reports
  // only.
  const std::shared_ptr<std::atomic<uint64_t>> made_;
};

}  // namespace detshare
