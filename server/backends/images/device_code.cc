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
                       const std::function<void(const DeviceCode&)>& visit, std::string* error,
                       uint64_t limit) {
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  const ImageKind kind = SniffImage(image);
  if (kind != ImageKind::kFatbin) {
    visit({kind == ImageKind::kElf ? EntryKind::kElf : EntryKind::kPtx, bytes, nullptr});
    return true;
  }
  std::string ignored;
  if (error == nullptr) error = &ignored;
  std::vector<FatbinEntry> entries;
  if (!ParseFatbins(image, &entries, error)) return false;
  std::erase_if(entries, [&](const FatbinEntry& entry) { return !RunsOn(entry, device_sm); });
  const bool has_elf = std::any_of(entries.begin(), entries.end(), [](const FatbinEntry& entry) {
    return entry.kind == EntryKind::kElf;
  });
  for (const FatbinEntry& entry : entries) {
    if (has_elf != (entry.kind == EntryKind::kElf)) continue;
    if (std::max<uint64_t>(entry.payload.size(), entry.uncompressed_bytes) > limit) {
      *error = "the image has too much code for this device: divide it into several images";
      return false;
    }
    std::string code;
    if (!DecodeEntry(entry, kLargestCode, &code, error)) return false;
    limit -= std::min<uint64_t>(limit, code.size());
    visit({entry.kind, code, &entry});
  }
  return true;
}

}  // namespace detshare::images
