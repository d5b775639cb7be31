// Memory for registers and constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace detshare::soft::ptx {

struct AlignedFree {
  void operator()(uint8_t* p) const;
};
using AlignedBytes = std::unique_ptr<uint8_t[], AlignedFree>;
// Zeroed and aligned to 64; at least one byte.
AlignedBytes AllocateAligned(size_t bytes);

}  // namespace detshare::soft::ptx
