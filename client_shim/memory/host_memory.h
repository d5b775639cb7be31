// Host memory that the GPU reaches: files of the session, which the program and the daemon both
// map.
//
// cuMemHostAlloc maps such a file at an address that the daemon chose. The address is the same in
// both processes.
//
// cuMemHostRegister replaces pages that the program already has with such a file. It copies their
// contents into the file and maps the file over them. It exchanges whole pages, so other data in
// the first and last page moves along. If another thread writes there in the microsecond between
// copy and exchange, that write is lost. The program's own address is not the GPU's;
// cuMemHostGetDevicePointer returns the GPU's.
//
// Smaller allocations and registrations are pieces of larger files (PiecePool), because the number of a
// session's files is limited.
//
// Memory that the program shares with other processes stays where it is. The daemon maps the same
// file instead, if it can find the file (wire::cuMemHostRegister_v2 says which files it finds).
// Otherwise the memory is registered by name only. So is memory that has a page in common with
// memory that is already registered. The GPU does not reach such memory (cuMemHostGetDevicePointer
// returns CUDA_ERROR_NOT_SUPPORTED), and copies of it are staged like those of ordinary memory.
// Shared memory that the program has mapped in the session's pinned range has the same address for
// the GPU.
#pragma once

#include <cstdint>

#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// Allocates pinned memory in the context. `kind` is kPinned or kManaged. CUDA_ERROR_OUT_OF_MEMORY:
// the file cannot be mapped.
CUresult AllocateHostMemory(Context& context, MemoryKind kind, uint64_t bytes, uint32_t flags,
                            void** address);
// Waits for all earlier work, and frees the memory. CUDA_ERROR_INVALID_VALUE: no memory of the kind
// begins at the address.
CUresult FreeHostMemory(MemoryKind kind, uint64_t address);
// Allocates pinned memory for FreeHostBlockLater(), in a file of its own.
CUresult AllocateHostBlock(Context& context, uint64_t bytes, uint32_t flags, void** address);
// Frees it without waiting: the daemon keeps the memory until all earlier work is complete. The caller
// knows that no thread of this process uses the memory any more. Does nothing if context life
// `context`, in which the memory was allocated, has ended: the memory ended with it, and other memory
// may have the address since.
void FreeHostBlockLater(ContextId context, void* address);
// Registers memory of the program. CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: some of it is already
// registered or pinned. CUDA_ERROR_NOT_SUPPORTED: the GPU cannot reach it, and `flags` has
// CU_MEMHOSTREGISTER_DEVICEMAP; or it may be memory of a device (CU_MEMHOSTREGISTER_IOMEMORY).
CUresult RegisterHostMemory(Context& context, void* address, uint64_t bytes, uint32_t flags);
// Waits for the work of all contexts, then makes the memory ordinary again, with the same contents.
// CUDA_ERROR_INVALID_VALUE: the address is inside registered memory, not at its beginning.
// CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: the address is not registered.
CUresult UnregisterHostMemory(void* address);

// Maps a file of pinned memory that the daemon made at `address`, which lies in the pinned range.
// Returns false if that fails.
bool MapPinnedFile(uint32_t file, uint64_t address, uint64_t file_bytes);

// Removes the mapping of an allocation. Called before the daemon is told. Pinned and managed memory
// is unmapped. Registered memory becomes ordinary memory with the same contents, unless the program
// has freed it.
void UnmapHostMemory(const Allocation& allocation);

// Forgets the memory of a context that ends, and unmaps its host memory.
void ForgetMemoryOf(ContextId context);

// For the child of a fork: makes registered memory the child's own, so that the child does not
// write into its parent's memory.
void KeepRegisteredMemoryInChild();

}  // namespace detshare::shim
