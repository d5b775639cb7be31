// Device memory and pinned host memory. Transport: ring, unless the op says control.
#pragma once

#include <cstdint>

#include "proto/ring_abi.h"

namespace detshare {
using PoolId = uint32_t;  // a memory pool of one device; the client chooses the id; 0 is no pool
}

namespace detshare::wire {

struct cuMemAlloc_v2 {
  uint64_t bytes;
};
struct cuMemAlloc_v2_Reply {
  uint64_t address;
};

// The reply comes when all work that was submitted before has completed and the memory is free.
struct cuMemFree_v2 {
  uint64_t address;
};

// The daemon allocates at once. The address is valid for work that is ordered after `stream`, on
// any stream.
struct cuMemAllocAsync {
  uint64_t bytes;
  StreamId stream;
  PoolId pool;
};
struct cuMemAllocAsync_Reply {
  uint64_t address;
};

struct cuMemFreeAsync {
  uint64_t address;
  StreamId stream;
  uint32_t reserved;
};

// Memory pools of the record's device. The default pool always exists. The client makes other pools
// with ids that it chooses and that must be free. A destroyed pool keeps its id until its last
// allocation is freed.
inline constexpr PoolId kDefaultPool = 1;
struct cuMemPoolCreate {
  uint64_t max_bytes;  // 0: the pool has no limit of its own
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
  uint32_t attribute;  // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, or _RESERVED_MEM_HIGH (value 0: reset)
};
struct cuMemPoolGetAttribute {
  PoolId pool;
  uint32_t attribute;  // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, _RESERVED_MEM_HIGH
};
struct cuMemPoolGetAttribute_Reply {
  uint64_t value;
};
struct cuMemPoolTrimTo {
  uint64_t keep;
  PoolId pool;
  uint32_t reserved;
};
// Sets whether work of another device of the session may access the pool's memory. When this
// removes the access, the reply comes when no earlier work can access the memory.
struct cuMemPoolSetAccess {
  PoolId pool;
  uint32_t device;
  uint32_t access;  // CUmemAccess_flags: 0 or 3
  uint32_t reserved;
};

struct cuMemGetInfo_v2 {
  uint64_t reserved;
};
struct cuMemGetInfo_v2_Reply {
  uint64_t free;
  uint64_t total;
};

// Makes the file `<session directory>/pinned.<file>` of file_bytes bytes and lets the GPU access it
// at `address`. The client maps the file shared at `address`, which is free in its range of
// addresses. cuMemHostRegister also uses this op, but the client maps the file over the registered
// range; the GPU's pointer is then `address`.
struct cuMemHostAlloc {
  uint64_t bytes;
  uint32_t flags;  // CU_MEMHOSTALLOC_*
  uint32_t reserved;
};
struct cuMemHostAlloc_Reply {
  uint64_t address;
  uint64_t file_bytes;
  uint32_t file;
  uint32_t reserved;
};

// Transport: control. Registers memory that the client shares with other processes. The daemon maps
// the same file. It finds the file as the process's mapping [mapping_begin, mapping_end), as a
// descriptor that the process has open, or by its name in /dev/shm. The payload is this name,
// without a terminator; it may be empty. CUDA_ERROR_NOT_SUPPORTED when the daemon does not find the
// file or may not open it.
struct cuMemHostRegister_v2 {
  uint64_t mapping_begin;
  uint64_t mapping_end;
  uint64_t file_offset;  // whole pages
  uint64_t bytes;        // whole pages
  uint64_t device;       // of the file
  uint64_t inode;
  int32_t descriptor;   // the client's descriptor of that file; -1: none
  uint32_t first_page;  // where the memory begins in the mapping
};
// Memory in the session's pinned range keeps its address if nothing else has it.
struct cuMemHostRegister_v2_Reply {
  uint64_t address;  // for the GPU; cuMemFreeHost frees it
};

// The reply comes when no earlier work can access the memory. The memory is that of cuMemHostAlloc,
// cuMemHostRegister_v2 or cuMemAllocManaged.
struct cuMemFreeHost {
  uint64_t address;
};

// Reserves addresses for managed memory whose pages move. The client has connected to the socket
// `<session directory>/managed`, where it finds a descriptor after the first reply. It maps this
// descriptor shared at `address`, with the address as the offset. CUDA_ERROR_NOT_SUPPORTED: the daemon
// does not offer such memory, or the client has no connection.
struct cuMemAllocManaged {
  uint64_t bytes;
};
struct cuMemAllocManaged_Reply {
  uint64_t address;
  uint64_t bytes;  // to map; at least those asked for
};

// The place of managed memory: a device of the session, or kPlaceHost.
inline constexpr int32_t kPlaceHost = -1;

// For a part of an allocation of cuMemAllocManaged that the client has mapped.
struct cuMemPrefetchAsync_v2 {
  uint64_t address;
  uint64_t bytes;
  uint32_t stream;
  int32_t place;
};
struct cuMemAdvise_v2 {
  uint64_t address;
  uint64_t bytes;
  uint32_t advice;  // CUmem_advise
  int32_t place;
};

}  // namespace detshare::wire
