// Decompresses code in fatbins, which has one of two formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace detshare::images {

// Both functions write exactly `bytes` bytes to *out. They return false and set *error when the
// data are damaged or have another size. They allocate only as much as the input can fill, so a
// small image that claims to be huge costs nothing. The caller limits `bytes`.
bool DecompressZstd(std::span<const std::byte> compressed, uint64_t bytes, std::string* out,
                    std::string* error);
// Decompresses a raw LZ4 block, as fatbinary's `speed` mode writes it.
bool DecompressLz4Block(std::span<const std::byte> compressed, uint64_t bytes, std::string* out,
                        std::string* error);

}  // namespace detshare::images
