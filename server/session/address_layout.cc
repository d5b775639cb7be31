#include "server/session/address_layout.h"

#include <algorithm>

namespace detshare {
namespace {

constexpr uint64_t kUnit = uint64_t{2} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
// A slot has this many addresses per byte of device memory, because programs reserve more addresses
// than they use.
constexpr uint64_t kTimesTheMemory = 3;
constexpr uint64_t kMaxPinned = 256 * kGiB;
constexpr uint64_t kPinnedShare = 4;  // pinned memory gets 1 / kPinnedShare of a slot

uint64_t RoundUp(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// Returns the smallest size of a slot's device addresses, in bytes, for devices with these memory
// sizes.
uint64_t LeastSlot(const std::vector<uint64_t>& memories) {
  uint64_t part = 0;
  for (const uint64_t memory : memories) part = std::max(part, RoundUp(memory * kTimesTheMemory));
  return part * memories.size();
}

int Fewer(int slots, uint64_t room, uint64_t of_one) {
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(slots), room / of_one));
}

}  // namespace

AddressWindows LayOut(const AddressWindows& wanted, const std::vector<uint64_t>& memories) {
  AddressWindows windows = wanted;
  const uint64_t all = kManagedBegin > wanted.device_base ? kManagedBegin - wanted.device_base : 0;
  const uint64_t one = all / static_cast<uint64_t>(std::max(wanted.slots, 1)) / kGiB * kGiB;
  if (windows.pinned_bytes == 0) {
    windows.pinned_bytes = std::clamp(one / kPinnedShare / kGiB * kGiB, kGiB, kMaxPinned);
  }
  if (windows.device_bytes == 0) {
    windows.device_bytes = std::max(one > windows.pinned_bytes ? one - windows.pinned_bytes : kGiB,
                                    LeastSlot(memories));
  } else if (memories.size() > 1) {
    windows.device_bytes = std::max(windows.device_bytes, LeastSlot(memories));
  }
  if (windows.pinned_base == 0) {
    windows.slots = Fewer(windows.slots, all, windows.device_bytes + windows.pinned_bytes);
    windows.pinned_base =
        windows.device_base + static_cast<uint64_t>(windows.slots) * windows.device_bytes;
    return windows;
  }
  if (windows.pinned_base > windows.device_base) {
    windows.slots =
        Fewer(windows.slots, windows.pinned_base - windows.device_base, windows.device_bytes);
  }
  if (windows.pinned_base < kManagedBegin) {
    windows.slots = Fewer(windows.slots, kManagedBegin - windows.pinned_base, windows.pinned_bytes);
  }
  return windows;
}

uint64_t DevicePart(const AddressWindows& laid_out, size_t devices) {
  return laid_out.device_bytes / std::max<size_t>(devices, 1) / kUnit * kUnit;
}

}  // namespace detshare
