// Device memory and pinned host memory: ring.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare {
using PoolId = uint32_t;  // of a memory pool of one device, which the client gives it; 0 is none
}

namespace detshare::wire {

struct cuMemAlloc_v2 {
  uint64_t bytes;
};
struct cuMemAlloc_v2_Answer {
  uint64_t address;
};

// Answered when the work that was submitted before has completed and the memory is gone.
struct cuMemFree_v2 {
  uint64_t address;
};

// The address is valid for work on any stream that is ordered after `stream`; allocation is immediate.
struct cuMemAllocAsync {
  uint64_t bytes;
  StreamId stream;
  PoolId pool;
};
struct cuMemAllocAsync_Answer {
  uint64_t address;
};

struct cuMemFreeAsync {
  uint64_t address;
  StreamId stream;
  uint32_t reserved;
};

// Memory pools of the record's device: the default one is always there, others are made with ids of the client's choice
// that must be free. A pool that is destroyed keeps its id until its last allocation is freed.
inline constexpr PoolId kDefaultPool = 1;
struct cuMemPoolCreate {
  uint64_t max_bytes;  // 0: no limit of its own
  PoolId pool;
  uint32_t reserved;
};
struct cuMemPoolDestroy {
  PoolId pool;
  uint32_t reserved;
};
struct cuMemPoolSetAttribute {
  uint64_t value;
  PoolId pool;
  uint32_t attribute;  // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, or _RESERVED_MEM_HIGH: value 0 sets it back
};
struct cuMemPoolGetAttribute {
  PoolId pool;
  uint32_t attribute;  // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, _RESERVED_MEM_HIGH
};
struct cuMemPoolGetAttribute_Answer {
  uint64_t value;
};
struct cuMemPoolTrimTo {
  uint64_t keep;
  PoolId pool;
  uint32_t reserved;
};
// Whether work of another device of the session may touch the pool's memory. Taking that away is answered when no work
// that was submitted before can.
struct cuMemPoolSetAccess {
  PoolId pool;
  uint32_t device;
  uint32_t access;  // CUmemAccess_flags: 0 or 3
  uint32_t reserved;
};

struct cuMemGetInfo_v2 {
  uint64_t reserved;
};
struct cuMemGetInfo_v2_Answer {
  uint64_t free;
  uint64_t total;
};

// Makes the file `<session directory>/pinned.<file>` of file_bytes bytes, which the client maps shared at `address`
// (fixed; free in its window), and lets the GPU reach it there. cuMemHostRegister uses it too, and maps it where the
// registered range lies; the GPU's pointer is then `address`.
struct cuMemHostAlloc {
  uint64_t bytes;
  uint32_t flags;  // CU_MEMHOSTALLOC_*
  uint32_t reserved;
};
struct cuMemHostAlloc_Answer {
  uint64_t address;
  uint64_t file_bytes;
  uint32_t file;
  uint32_t reserved;
};

// Memory of the client's that it shares with other processes: the daemon maps the same file. It finds it as mapping
// [mapping_begin, mapping_end) of the process, as a descriptor that the process has open, or by its name in /dev/shm (the
// payload, without a terminator; may be empty). CUDA_ERROR_NOT_SUPPORTED when it does not, or may not. grpc.
struct cuMemHostRegister_v2 {
  uint64_t mapping_begin;
  uint64_t mapping_end;
  uint64_t file_offset;  // whole pages
  uint64_t bytes;        // whole pages
  uint64_t device;       // of the file
  uint64_t inode;
  int32_t descriptor;  // of the client's, open on that file; -1: none
  uint32_t reserved;
};
struct cuMemHostRegister_v2_Answer {
  uint64_t address;  // for the GPU; cuMemFreeHost ends it
};

// Answered when no work that was submitted before can touch it any more.
struct cuMemFreeHost {
  uint64_t address;
};

}  // namespace detshare::wire
