// What a module image is, from its first bytes.
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
  kFatbin,   // one fatbin or several, one after the other (fatbin.h)
  kWrapper,  // a fatbin wrapper: pointers, so it means something in its own process only
             // (fatbin_wrapper.h)
};

// Never reads outside `image`. Text counts as PTX when its first word, after comments and white
// space, is `.version`.
ImageKind SniffImage(std::span<const std::byte> image);

// What the header of an ELF file says about it. Nullopt when it is not a 64-bit little-endian ELF
// of CUDA machine code.
struct CubinInfo {
  int sm = 0;          // 90 for sm_90
  uint64_t bytes = 0;  // end of the last section or header that the file header names
};
std::optional<CubinInfo> ReadCubinHeader(std::span<const std::byte> image);

}  // namespace detshare::images
