#include "server/backends/soft/ptx/aligned_bytes.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace detshare::soft::ptx {

namespace {
constexpr size_t kAlignment = 64;
}

// The address of calloc's block is stored in front of the aligned bytes. calloc does not touch
// large blocks before their use, so unused stacks of threads take no memory.
void AlignedFree::operator()(uint8_t* p) const {
  void* block;
  std::memcpy(&block, p - sizeof block, sizeof block);
  std::free(block);
}

AlignedBytes AllocateAligned(size_t bytes) {
  void* const block = std::calloc(1, std::max<size_t>(bytes, 1) + 2 * kAlignment);
  if (block == nullptr) return AlignedBytes();
  uint8_t* const p =
      static_cast<uint8_t*>(block) + kAlignment - reinterpret_cast<uintptr_t>(block) % kAlignment;
  std::memcpy(p - sizeof block, &block, sizeof block);
  return AlignedBytes(p);
}

}  // namespace detshare::soft::ptx
