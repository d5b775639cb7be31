// Fatbin wrappers: programs pass them to cuLibraryLoadData. A wrapper holds pointers into the
// program's memory, so only the client process can read it. Header-only, without dependencies.
//
//   0  u32      magic 0x466243B1
//   4  u32      version: 1, or 2 for a program that nvlink has linked (-rdc=true)
//   8  pointer  the fatbin
//  16  pointer  version 1: unused
//               version 2: an array of pointers to the fatbins that were linked; a null pointer
//               ends it
//
// The fatbin of version 2 holds only linked machine code. The array's fatbins hold the PTX of its
// parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace detshare::images {

inline constexpr uint32_t kFatbinWrapperMagic = 0x466243B1;

struct FatbinWrapper {
  uint32_t magic;
  uint32_t version;
  const void* fatbin;
  const void* const* linked;
};

// The bytes of the fatbin at `fatbin`, with the size from its header. Empty when there is no
// fatbin.
inline std::span<const std::byte> FatbinBytes(const void* fatbin) {
  if (fatbin == nullptr) return {};
  uint32_t magic;
  uint16_t header_bytes;
  uint64_t entry_bytes;
  const auto* bytes = static_cast<const std::byte*>(fatbin);
  std::memcpy(&magic, bytes, sizeof(magic));
  if (magic != 0xBA55ED50) return {};
  std::memcpy(&header_bytes, bytes + 6, sizeof(header_bytes));
  std::memcpy(&entry_bytes, bytes + 8, sizeof(entry_bytes));
  return {bytes, header_bytes + entry_bytes};
}

// The fatbins of a wrapper, the linked one first. Concatenated, with each padded to 8 bytes, they
// are an image that the daemon understands (fatbin.h). Empty when it is no wrapper or has an
// unknown version.
inline std::vector<std::span<const std::byte>> WrappedFatbins(const void* wrapper) {
  std::vector<std::span<const std::byte>> fatbins;
  FatbinWrapper header;
  std::memcpy(&header, wrapper, sizeof(header));
  if (header.magic != kFatbinWrapperMagic || header.version < 1 || header.version > 2)
    return fatbins;
  const auto add = [&](const void* fatbin) {
    const std::span<const std::byte> bytes = FatbinBytes(fatbin);
    if (!bytes.empty()) fatbins.push_back(bytes);
  };
  add(header.fatbin);
  if (header.version == 2 && header.linked != nullptr) {
    for (const void* const* part = header.linked; *part != nullptr; ++part) add(*part);
  }
  return fatbins;
}

}  // namespace detshare::images
