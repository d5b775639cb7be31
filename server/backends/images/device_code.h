// Visits the codes in an image that a device may run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "proto/images/fatbin.h"

namespace detshare::images {

struct DeviceCode {
  EntryKind kind = EntryKind::kPtx;
  std::string_view bytes;              // decompressed; valid during the visit
  const FatbinEntry* entry = nullptr;  // null: the image itself is this code
};

// More than the code of any program. A small image may be compressed code of any size.
inline constexpr uint64_t kLargestImageCode = uint64_t{2} << 30;

// Visits, one after the other, the codes of an ELF image, a PTX text or fatbins that compute
// capability `device_sm` (90 for 9.0) can run. Of fatbins it visits the machine codes, or the PTX
// texts if there are no machine codes, which is the driver's preference. An image that is neither
// ELF nor fatbin counts as text. Returns false and sets *error, if it is not null, if the image, which
// may be hostile, is malformed, or if the codes of its fatbins together have more than `limit` bytes;
// some codes may have been visited by then.
bool ForEachDeviceCode(std::span<const std::byte> image, int device_sm,
                       const std::function<void(const DeviceCode&)>& visit,
                       std::string* error = nullptr, uint64_t limit = kLargestImageCode);

}  // namespace detshare::images
