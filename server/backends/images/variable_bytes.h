// How much device memory the variables of an image take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace detshare::images {

// Bytes of the global and constant variables in the code of `image` that compute capability
// `device_sm` (90 for 9.0) would run. 0 for what is not understood: whoever loads it will say so.
// Sums that would overflow end at UINT64_MAX.
uint64_t VariableBytes(std::span<const std::byte> image, int device_sm);

}  // namespace detshare::images
