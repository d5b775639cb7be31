// Virtual memory management: ring. Sizes and addresses of memory are whole units of kPhysicalUnit.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

inline constexpr uint64_t kPhysicalUnit = 2 << 20;

// Physical memory that the session has created or imported; the daemon gives it out, 0 is none.
using PhysicalId = uint32_t;

// What travels between processes in the place of memory: random, given out by the daemon.
inline constexpr uint32_t kShareTokenBytes = 16;
struct ShareToken {
  uint8_t bytes[kShareTokenBytes];
};

// A range of the window of the record's device. `address`: 0, or where it should be.
struct cuMemAddressReserve {
  uint64_t bytes;
  uint64_t alignment;  // 0, or a power of two
  uint64_t address;
};
struct cuMemAddressReserve_Answer {
  uint64_t address;
};

struct cuMemAddressFree {
  uint64_t address;
  uint64_t bytes;
};

// Memory of the record's device.
struct cuMemCreate {
  uint64_t bytes;
};
struct cuMemCreate_Answer {
  PhysicalId memory;
  uint32_t reserved;
};

// The name is gone; mappings stay.
struct cuMemRelease {
  PhysicalId memory;
  uint32_t reserved;
};

struct cuMemMap {
  uint64_t address;
  uint64_t bytes;
  PhysicalId memory;
  uint32_t reserved;
};

// Answered when no work that was submitted before can touch it any more.
struct cuMemUnmap {
  uint64_t address;
  uint64_t bytes;
};

// For every device of the session whose bit is set in `devices`: two bits of `access` from bit 2 * device on, as
// CUmemAccess_flags has them (0 none, 1 read, 3 read and write).
struct cuMemSetAccess {
  uint64_t address;
  uint64_t bytes;
  uint32_t devices;
  uint32_t access;
};

struct cuMemExportToShareableHandle {
  PhysicalId memory;
  uint32_t reserved;
};
struct cuMemExportToShareableHandle_Answer {
  ShareToken token;
};

// `device` of the answer is where the memory is; the record's device does not matter.
struct cuMemImportFromShareableHandle {
  ShareToken token;
};
struct cuMemImportFromShareableHandle_Answer {
  uint64_t bytes;
  PhysicalId memory;
  uint32_t device;
};

}  // namespace detshare::wire
