// Virtual memory management of one session: ranges of addresses that it has reserved, physical
// memory that it holds, and what of this is mapped where.
//
//     reserved address --Map--> mapped, nobody may touch it --SetAccess--> accessible
//            ^                                                                  |
//            +-----------------------Unmap, when the work before is over--------+
//
// Physical memory lives as long as a session holds its name or has it mapped, and counts for the
// session that made it. Ranges lie in the window of one device, whatever is mapped there.
//
// Threading: the session's. Ends before its address spaces and after its tasks.
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
  static constexpr uint32_t kLimit = 1 << 16;  // of ranges, of names, and of mappings

  explicit VirtualMemory(std::vector<SessionDevice>& devices);
  ~VirtualMemory();  // unmaps nothing but the access of other devices
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  // All errors are CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, or the device's.

  // As DeviceMemory::Reserve.
  Task<absl::StatusOr<DeviceAddress>> Reserve(SessionDevice& device, uint64_t bytes,
                                              uint64_t alignment, DeviceAddress wanted);
  // Exactly one range, with nothing mapped in it.
  absl::Status FreeReservation(DeviceAddress address, uint64_t bytes);

  // Waits until others have made room on a full card, if they can.
  Task<absl::StatusOr<Id>> Create(SessionDevice& device, uint64_t bytes);
  // Memory that another session made.
  absl::StatusOr<Id> Adopt(std::shared_ptr<PhysicalMemory> memory, SessionDevice& device);
  absl::Status Release(Id id);

  struct Named {
    std::shared_ptr<PhysicalMemory> memory;
    SessionDevice* device = nullptr;  // where it is
  };
  // Null when there is none.
  const Named* Find(Id id) const;

  // The first `bytes` bytes of the memory, inside one reserved range.
  absl::Status Map(DeviceAddress address, uint64_t bytes, Id id);
  // One mapping, or several that follow each other. Ends when no work can touch it any more.
  Task<absl::Status> Unmap(DeviceAddress address, uint64_t bytes);
  // What work on `device` may do with one mapping, or several that follow each other.
  absl::Status SetAccess(SessionDevice& device, DeviceAddress address, uint64_t bytes,
                         MemoryAccess access);

  // Whether memory is mapped in some of the range.
  bool Overlaps(DeviceAddress address, uint64_t bytes) const;

  // Bytes that the session made and that exist. Any thread.
  uint64_t bytes() const { return made_->load(std::memory_order_relaxed); }

 private:
  struct Range {
    uint64_t bytes = 0;
    SessionDevice* owner = nullptr;  // in whose window it lies
  };
  struct Mapping {
    uint64_t bytes = 0;
    SessionDevice* owner = nullptr;
    uint32_t accessible = 0;  // a bit for each device that has access
    bool unmapping = false;
  };
  using Mappings = std::map<DeviceAddress, Mapping>;

  size_t IndexOf(const SessionDevice& device) const;
  // The range that contains all of it, or null.
  Range* Containing(DeviceAddress address, uint64_t bytes);
  // The mappings that make up exactly this range, none of them being unmapped.
  absl::StatusOr<std::vector<Mappings::iterator>> Exactly(DeviceAddress address, uint64_t bytes);

  std::vector<SessionDevice>& devices_;
  std::map<DeviceAddress, Range> ranges_;
  Mappings mappings_;
  absl::flat_hash_map<Id, Named> named_;
  Id next_id_ = 1;
  // Outlives this object with the memory that it counts. Relaxed: for reports only.
  const std::shared_ptr<std::atomic<uint64_t>> made_;
};

}  // namespace detshare
