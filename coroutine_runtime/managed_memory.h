// Managed memory: pages that move between the CPU and the devices, to where they are used. All of
// them see a page at the same address, and always with the same contents.
//
// The daemon only reserves ranges of addresses. The pages come with the client's mapping: the client
// maps descriptor() at the range's address, shared, with the address as the offset in the file. A
// fault of the client's CPU brings a page to the host, a fault of a device brings it there. When the
// client unmaps the range, the pages are gone.
//
// Whoever has the descriptor can reach all managed memory of this process. So the daemon gives it only
// to clients that may harm each other anyway.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace detshare {

class Device;

// Where pages are or should be. Null: on the host.
using ManagedPlace = const Device*;

// The managed memory of all devices of a backend. Any thread may call it. Nothing here waits for
// work on a device.
class ManagedMemory {
 public:
  struct Range {
    uint64_t address = 0;
    uint64_t bytes = 0;  // that the client may map
  };

  virtual ~ManagedMemory() = default;

  // A client maps this file. It stays open as long as this object exists.
  virtual int descriptor() const = 0;
  // Reserves a range of at least `bytes`, which is not 0, where nothing is mapped.
  // ResourceExhausted if no addresses are left, or as much memory as the devices have is reserved.
  // May wait up to a second for the end of clients that have released theirs.
  virtual absl::StatusOr<Range> Reserve(uint64_t bytes) = 0;
  // No client maps the range any more, and no work uses it. If a client maps it nevertheless, nobody
  // gets its addresses until the client has ended.
  virtual void Release(const Range& range) = 0;
  // Carries out CUmem_advise number `advice` for a part of a range that a client has mapped. Returns
  // the driver's error.
  virtual absl::Status Advise(uint64_t address, uint64_t bytes, int advice, ManagedPlace place) = 0;
};

}  // namespace detshare
