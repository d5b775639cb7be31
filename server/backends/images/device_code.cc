#include "server/backends/images/device_code.h"

#include <algorithm>
#include <string>
#include <vector>

#include "proto/images/image_kind.h"

namespace detshare::images {
namespace {

constexpr uint64_t kLargestCode = 1ull << 30;

}  // namespace

bool ForEachDeviceCode(std::span<const std::byte> image, int device_sm,
                       const std::function<void(const DeviceCode&)>& visit) {
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  const ImageKind kind = SniffImage(image);
  if (kind != ImageKind::kFatbin) {
    visit({kind == ImageKind::kElf ? EntryKind::kElf : EntryKind::kPtx, bytes, nullptr});
    return true;
  }
  std::vector<FatbinEntry> entries;
  std::string error;
  if (!ParseFatbins(image, &entries, &error)) return false;
  std::erase_if(entries, [&](const FatbinEntry& entry) { return !RunsOn(entry, device_sm); });
  const bool has_elf = std::any_of(entries.begin(), entries.end(), [](const FatbinEntry& entry) {
    return entry.kind == EntryKind::kElf;
  });
  for (const FatbinEntry& entry : entries) {
    if (has_elf != (entry.kind == EntryKind::kElf)) continue;
    std::string code;
    if (!DecodeEntry(entry, kLargestCode, &code, &error)) return false;
    visit({entry.kind, code, &entry});
  }
  return true;
}

}  // namespace detshare::images
