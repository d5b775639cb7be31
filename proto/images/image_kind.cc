#include "proto/images/image_kind.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "proto/images/fatbin.h"
#include "proto/images/fatbin_wrapper.h"

namespace detshare::images {
namespace {

constexpr std::string_view kElfMagic =
    "\x7f"
    "ELF";
constexpr uint16_t kMachineCuda = 190;

template <typename T>
T ReadAt(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// The text after leading white space and comments.
std::string_view FirstWord(std::string_view text) {
  while (!text.empty()) {
    if (text.front() == ' ' || (text.front() >= '\t' && text.front() <= '\r')) {
      text.remove_prefix(1);
    } else if (text.starts_with("//")) {
      text.remove_prefix(std::min(text.find('\n'), text.size()));
    } else if (text.starts_with("/*")) {
      const size_t end = text.find("*/", 2);
      text.remove_prefix(end == text.npos ? text.size() : end + 2);
    } else {
      break;
    }
  }
  return text;
}

}  // namespace

ImageKind SniffImage(std::span<const std::byte> image) {
  if (image.size() >= 4) {
    const uint32_t magic = ReadAt<uint32_t>(image, 0);
    if (magic == kFatbinMagic) return ImageKind::kFatbin;
    if (magic == kFatbinWrapperMagic) return ImageKind::kWrapper;
  }
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  if (text.starts_with(kElfMagic)) return ImageKind::kElf;
  if (FirstWord(text).starts_with(".version")) return ImageKind::kPtx;
  return ImageKind::kUnknown;
}

std::optional<CubinInfo> ReadCubinHeader(std::span<const std::byte> image) {
  constexpr size_t kHeaderBytes = 64;
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  if (image.size() < kHeaderBytes || !text.starts_with(kElfMagic)) return std::nullopt;
  constexpr uint8_t k64Bit = 2, kLittleEndian = 1;
  if (ReadAt<uint8_t>(image, 4) != k64Bit || ReadAt<uint8_t>(image, 5) != kLittleEndian)
    return std::nullopt;
  if (ReadAt<uint16_t>(image, 18) != kMachineCuda) return std::nullopt;

  CubinInfo info;
  // From ABI version 8 on, the SM version is in bits 8-15 of e_flags; in older versions in bits
  // 0-7.
  const uint32_t flags = ReadAt<uint32_t>(image, 48);
  info.sm = ReadAt<uint8_t>(image, 8) >= 8 ? (flags >> 8) & 0xff : flags & 0xff;

  const auto table_end = [&](size_t offset_at, size_t entry_at) {
    const uint64_t offset = ReadAt<uint64_t>(image, offset_at);
    const uint64_t bytes =
        uint64_t{ReadAt<uint16_t>(image, entry_at)} * ReadAt<uint16_t>(image, entry_at + 2);
    return offset > UINT64_MAX - bytes ? UINT64_MAX : offset + bytes;
  };
  info.bytes = std::max<uint64_t>(kHeaderBytes, table_end(32, 54));
  info.bytes = std::max(info.bytes, table_end(40, 58));
  return info;
}

}  // namespace detshare::images
