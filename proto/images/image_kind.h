// Finds the kind of a module image from its first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace detshare::images {

enum class ImageKind {
  kUnknown,
  kElf,      // machine code
  kPtx,      // text
  kFatbin,   // one or more concatenated fatbins (fatbin.h)
  kWrapper,  // a fatbin wrapper, which only its own process can read (fatbin_wrapper.h)
};

// Never reads outside `image`. Text is PTX when its first word, after comments and white space, is
// `.version`.
ImageKind SniffImage(std::span<const std::byte> image);

// Reads the header of an ELF file. Nullopt when it is not a 64-bit little-endian ELF file of CUDA
// machine code.
struct CubinInfo {
  int sm = 0;          // 90 for sm_90
  uint64_t bytes = 0;  // end of the last section or header that the file header names
};
std::optional<CubinInfo> ReadCubinHeader(std::span<const std::byte> image);

}  // namespace detshare::images
