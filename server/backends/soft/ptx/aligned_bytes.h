// Aligned memory for registers, stacks, shared memory and constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace detshare::soft::ptx {

struct AlignedFree {
  void operator()(uint8_t* p) const;
};
using AlignedBytes = std::unique_ptr<uint8_t[], AlignedFree>;
// Allocates at least one byte, zeroed and aligned to 64 bytes. Null when memory is used up.
AlignedBytes AllocateAligned(size_t bytes);

struct SparseFree {
  size_t mapped = 0;  // bytes; 0: AlignedFree frees it
  void operator()(uint8_t* p) const;
};
using SparseBytes = std::unique_ptr<uint8_t[], SparseFree>;
// The same for memory of which mostly little is used: the rest takes neither memory nor time.
SparseBytes AllocateSparse(size_t bytes);

}  // namespace detshare::soft::ptx
