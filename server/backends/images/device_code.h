// The codes in an image that a device may run.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "proto/images/fatbin.h"

namespace detshare::images {

struct DeviceCode {
  EntryKind kind = EntryKind::kPtx;
  std::string_view bytes;              // decompressed; valid during the visit
  const FatbinEntry* entry = nullptr;  // null: the image is this code
};

// Visits the codes of an ELF image, a PTX text or fatbins, one after the other, that compute
// capability `device_sm` (90 for 9.0) can run: of fatbins the machine codes, or, where there are
// none, the PTX texts, as the driver prefers them. Whatever is no ELF and no fatbin counts as text.
// False when the image, which may be hostile, is not well formed; some codes may have been visited.
bool ForEachDeviceCode(std::span<const std::byte> image, int device_sm,
                       const std::function<void(const DeviceCode&)>& visit);

}  // namespace detshare::images
