// Assigns address ranges to the sessions of a daemon. Every session has a slot: one range of device
// addresses and one range of pinned host memory. Both must be free in the client's process.
//
//     device_base       pinned_base                   kManagedBegin    kProgramsBegin
//     | slot 0 | slot 1 | ...  | pinned 0 | pinned 1 | ... | managed   |  Linux's programs, heaps, libraries
//
// Managed memory whose pages move has a range of its own, which all sessions of a process share
// (coroutine_runtime/managed_memory.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace detshare {

// The lowest address at which Linux loads position-independent programs.
inline constexpr uint64_t kProgramsBegin = 0x550000000000;
inline constexpr uint64_t kManagedBegin = 0x530000000000,
                          kManagedBytes = kProgramsBegin - kManagedBegin;

struct AddressWindows {
#if defined(__SANITIZE_ADDRESS__)
  // The sanitizer uses the default range itself.
  uint64_t device_base = 0x100100000000;
#else
  uint64_t device_base = 0x060000000000;
#endif
  uint64_t device_bytes = 0;  // of a slot, for all its devices; 0: computed from the space
  uint64_t pinned_base = 0;   // 0: after the device addresses
  uint64_t pinned_bytes = 0;  // of a slot; 0: computed from the space
  int slots = 64;             // at most; fewer when the space is too small
};

// Returns `wanted` with every field computed. `device_bytes` is the size of a whole slot; the part
// of device i begins at i * DevicePart(). `memories` are the sizes of the devices' memory in bytes.
// The result depends only on the arguments, so other sessions do not change a session's addresses.
AddressWindows LayOut(const AddressWindows& wanted, const std::vector<uint64_t>& memories);

// The bytes of addresses that each device has in a slot. `laid_out` comes from LayOut().
uint64_t DevicePart(const AddressWindows& laid_out, size_t devices);

}  // namespace detshare
