// Host memory that the GPU reaches: files of the session, mapped by the program and by the daemon.
//
// cuMemHostAlloc maps such a file at an address that the daemon chose, the same on both sides.
// cuMemHostRegister puts one in the place of pages that the program has already: their contents are
// copied into the file, and the file is mapped over them. Whole pages are exchanged, so what else
// lies in the first and last page moves along; another thread that writes there in the microsecond
// between copy and exchange loses that write. The program's own address is not the GPU's
// (cuMemHostGetDevicePointer tells it).
//
// Memory that the program shares with other processes stays where it is: the daemon maps the same
// file (wire::cuMemHostRegister_v2 says which it can find). Where it cannot, or where the memory
// has a page in common with memory that is registered already, it is registered by name only: the
// GPU does not reach it (cuMemHostGetDevicePointer returns CUDA_ERROR_NOT_SUPPORTED), and copies
// are staged as those of ordinary memory are.
#pragma once

#include <cstdint>

#include "client_shim/memory/pointer_map.h"
#include "client_shim/objects/objects.h"
#include "proto/driver_api/cuda_unrenamed.h"

namespace detshare::shim {

// `kind`: kPinned or kManaged.
CUresult AllocateHostMemory(Context& context, MemoryKind kind, uint64_t bytes, uint32_t flags,
                            void** address);
CUresult FreeHostMemory(void* address);
// The same without waiting: the daemon keeps the memory until the work before is over. The caller
// knows that nobody in this process uses it any more.
CUresult FreeHostMemoryLater(void* address);
CUresult RegisterHostMemory(Context& context, void* address, uint64_t bytes, uint32_t flags);
CUresult UnregisterHostMemory(void* address);

// Maps a file of pinned memory, which the daemon made, at its address in the window. False when
// that cannot be done.
bool MapPinnedFile(uint32_t file, uint64_t address, uint64_t file_bytes);

// Takes the mapping of an allocation away, before the daemon is told: pinned and managed memory is
// unmapped, registered memory becomes ordinary memory with the same contents.
void UnmapHostMemory(const Allocation& allocation);

// A context ends: its memory is no longer known, its host memory is unmapped.
void ForgetMemoryOf(ContextId context);

// In the child of a fork: registered memory becomes the child's own, so that it does not write into
// its parent.
void KeepRegisteredMemoryInChild();

}  // namespace detshare::shim
