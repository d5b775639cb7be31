// Virtual memory management. Transport: ring. Sizes and addresses are multiples of kPhysicalUnit.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare::wire {

inline constexpr uint64_t kPhysicalUnit = 2 << 20;

// Physical memory that the session has created or imported. The daemon assigns the id; 0 is none.
using PhysicalId = uint32_t;

// A random value of the daemon. Processes pass it to each other to name shared memory.
inline constexpr uint32_t kShareTokenBytes = 16;
struct ShareToken {
  uint8_t bytes[kShareTokenBytes];
};

// Reserves addresses in the session's address range of the record's device. `address` is the wanted
// address, or 0.
struct cuMemAddressReserve {
  uint64_t bytes;
  uint64_t alignment;  // 0, or a power of two
  uint64_t address;
};
struct cuMemAddressReserve_Reply {
  uint64_t address;
};

struct cuMemAddressFree {
  uint64_t address;
  uint64_t bytes;
};

// Makes physical memory on the record's device.
struct cuMemCreate {
  uint64_t bytes;
};
struct cuMemCreate_Reply {
  PhysicalId memory;
  uint32_t reserved;
};

// Frees the id. Mappings stay.
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

// The reply comes when no earlier work can access the memory.
struct cuMemUnmap {
  uint64_t address;
  uint64_t bytes;
};

// Sets the access of every device of the session whose bit is set in `devices`. The two bits of
// `access` from bit 2 * device on are a CUmemAccess_flags (0 none, 1 read, 3 read and write).
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
struct cuMemExportToShareableHandle_Reply {
  ShareToken token;
};

// The reply's `device` is the device that the memory is on. The record's device does not matter.
struct cuMemImportFromShareableHandle {
  ShareToken token;
};
struct cuMemImportFromShareableHandle_Reply {
  uint64_t bytes;
  PhysicalId memory;
  uint32_t device;
};

}  // namespace detshare::wire
