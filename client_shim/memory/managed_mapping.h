// This process's mappings of the daemon's managed memory, whose pages move between CPU and GPU
// (proto/wire/memory.h, cuMemAllocManaged).
#pragma once

#include <cstdint>

#include "client_shim/memory/piece_pool.h"
#include "client_shim/objects/objects.h"

namespace detshare::shim {

// Whether the daemon offers such memory.
bool ManagedPagesMove();

// Allocates at least `bytes` in the context and maps them. CUDA_ERROR_NOT_SUPPORTED if the daemon does
// not offer such memory, CUDA_ERROR_OUT_OF_MEMORY if it has no room for it or something else is at its
// addresses here. Any thread.
CUresult MapManaged(Context& context, uint64_t bytes, PiecePool::Block* mapped);

// The process exits. If it has no work, nothing needs to keep its memory.
void EndManagedMappings();

// Maps memory that the daemon has allocated. Returns false if that fails.
bool MapManagedRange(const PiecePool::Block& range);

}  // namespace detshare::shim
