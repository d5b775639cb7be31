// HMAC with MD2 (RFC 1319, RFC 2104; block size 16). With it the CUDA runtime distinguishes a
// driver from something else. Do not use it for anything that must be secure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace detshare::shim {

using Md2Digest = std::array<uint8_t, 16>;

Md2Digest Md2(std::span<const uint8_t> message);

// `key` has at most 16 bytes.
Md2Digest HmacMd2(std::span<const uint8_t> key, std::span<const uint8_t> message);

}  // namespace detshare::shim
