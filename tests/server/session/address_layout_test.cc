#include "server/session/address_layout.h"

#include <catch2/catch.hpp>

namespace detshare {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

AddressWindows Usual(int slots) {
  AddressWindows windows;
  windows.device_base = 0x060000000000;
  windows.slots = slots;
  return windows;
}

void CheckApart(const AddressWindows& windows) {
  const uint64_t slots = static_cast<uint64_t>(windows.slots);
  CHECK(windows.device_base + slots * windows.device_bytes <= windows.pinned_base);
  CHECK(windows.pinned_base + slots * windows.pinned_bytes <= kManagedBegin);
}

TEST_CASE("Sixty-four sessions of a large card have a terabyte each, nearly") {
  const AddressWindows windows = LayOut(Usual(64), {141 * kGiB});
  CHECK(windows.slots == 64);
  CHECK(windows.pinned_bytes == 256 * kGiB);
  CHECK(windows.device_bytes > 970 * kGiB);
  CHECK(DevicePart(windows, 1) == windows.device_bytes);
  CheckApart(windows);
}

TEST_CASE("Several hundred sessions fit, with fewer addresses each") {
  for (const int slots : {1, 60, 128, 256, 500, 1024}) {
    const AddressWindows windows = LayOut(Usual(slots), {4 * kGiB});
    CHECK(windows.slots == slots);
    CHECK(windows.device_bytes >= 12 * kGiB);
    CHECK(windows.pinned_bytes >= kGiB);
    CheckApart(windows);
  }
}

TEST_CASE("Every device has three times its memory, even if that makes the sessions fewer") {
  const AddressWindows windows = LayOut(Usual(64), std::vector<uint64_t>(8, 141 * kGiB));
  CHECK(DevicePart(windows, 8) >= 3 * 141 * kGiB);
  CHECK(windows.slots == 21);
  CheckApart(windows);
}

TEST_CASE("Given windows are kept, and bound the number of sessions") {
  AddressWindows wanted;
  wanted.device_base = 0x7E9000000000;
  wanted.device_bytes = kGiB;
  wanted.pinned_base = 0x7EA000000000;
  wanted.pinned_bytes = kGiB / 4;
  wanted.slots = 1000;
  const AddressWindows windows = LayOut(wanted, {kGiB / 2});
  CHECK(windows.device_bytes == kGiB);
  CHECK(windows.pinned_base == wanted.pinned_base);
  CHECK(windows.slots == 64);
}

}  // namespace
}  // namespace detshare
