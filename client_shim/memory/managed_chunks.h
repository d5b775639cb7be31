// Small pieces of managed memory. As with NVIDIA's driver, they share blocks of 2 MiB, in units of 512
// bytes, and new memory may have the contents of memory that was freed.
//
// Any thread.
#pragma once

#include <cstdint>

#include "client_shim/objects/objects.h"

namespace detshare::shim {

// The largest piece.
inline constexpr uint64_t kMaxManagedPiece = uint64_t{1} << 20;

// Returns the address of a new piece. 0 if there is no memory whose pages move (managed_mapping.h).
// `bytes` is at most kMaxManagedPiece.
uint64_t AllocateManagedPiece(Context& context, uint64_t bytes);
// Frees a piece of the context on the device. No work uses it. Blocks of the context that are no longer
// used go back to the daemon, except for one.
void FreeManagedPiece(uint16_t device, ContextId context, uint64_t address, uint64_t bytes);
// Unmaps the context's pieces. Its work is complete. The daemon frees them with the context.
void ForgetManagedPieces(ContextId context);

}  // namespace detshare::shim
