// Which addresses the sessions of a daemon have. Every session has a slot: a range of device
// addresses, and one of pinned host memory, both of which its client must find free.
//
//     device_base       pinned_base                 kProgramsBegin
//     | slot 0 | slot 1 | ...  | pinned 0 | pinned 1 | ... |  Linux's programs, heaps, libraries
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace detshare {

// Where Linux puts position-independent programs, at the lowest.
inline constexpr uint64_t kProgramsBegin = 0x550000000000;

struct AddressWindows {
#if defined(__SANITIZE_ADDRESS__)
  // The sanitizer keeps the usual place for itself.
  uint64_t device_base = 0x100100000000;
#else
  uint64_t device_base = 0x060000000000;
#endif
  uint64_t device_bytes = 0;  // of a slot, divided among the devices; 0: the room is divided
  uint64_t pinned_base = 0;   // 0: behind the device addresses
  uint64_t pinned_bytes = 0;  // of a slot; 0: the room is divided
  int slots = 64;             // wanted; fewer when there is no room for so many
};

// The same with nothing left open: `device_bytes` is a whole slot, of which device i has the part
// that begins at i * DevicePart(). `memories` are the devices' sizes. Depends on nothing else: a
// session's addresses are the same whoever else is there.
AddressWindows LayOut(const AddressWindows& wanted, const std::vector<uint64_t>& memories);

// One device's addresses in a slot that is laid out.
uint64_t DevicePart(const AddressWindows& laid_out, size_t devices);

}  // namespace detshare
