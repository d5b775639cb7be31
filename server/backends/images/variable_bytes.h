// Computes how much device memory the variables of an image need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace detshare::images {

// Returns the bytes of the global and constant variables in the code of `image` that compute
// capability `device_sm` (90 for 9.0) would run. Returns 0 for an image that it does not
// understand; loading it will return the error. A sum that would overflow is UINT64_MAX.
uint64_t VariableBytes(std::span<const std::byte> image, int device_sm);

// Returns whether that code is known to have no such variables. False for an image that it does not
// understand. Managed variables are not looked for.
bool HasNoVariables(std::span<const std::byte> image, int device_sm);

}  // namespace detshare::images
