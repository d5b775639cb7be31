// The two ways in which code is compressed in fatbins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace detshare::images {

// Both write exactly `bytes` bytes to *out, or return false with *error set: when the data are
// damaged or hold another number of bytes. Memory for the output is taken only as far as the input
// can fill it, so that a small image which claims to be huge costs nothing; the caller limits
// `bytes`.
bool DecompressZstd(std::span<const std::byte> compressed, uint64_t bytes, std::string* out,
                    std::string* error);
// A raw block, as fatbinary's `speed` mode writes it.
bool DecompressLz4Block(std::span<const std::byte> compressed, uint64_t bytes, std::string* out,
                        std::string* error);

}  // namespace detshare::images
