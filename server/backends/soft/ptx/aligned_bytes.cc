#include "server/backends/soft/ptx/aligned_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace detshare::soft::ptx {

namespace {
constexpr size_t kAlignment = 64;
// Clearing so much takes less time than new pages from the kernel.
constexpr size_t kMaxCleared = 32 << 10;
}  // namespace

// The address of calloc's block is stored in front of the aligned bytes.
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

void SparseFree::operator()(uint8_t* p) const {
  mapped == 0 ? AlignedFree()(p) : static_cast<void>(munmap(p, mapped));
}

SparseBytes AllocateSparse(size_t bytes) {
  if (bytes <= kMaxCleared) return SparseBytes(AllocateAligned(bytes).release(), SparseFree());
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return SparseBytes();
  return SparseBytes(static_cast<uint8_t*>(pages), SparseFree{bytes});
}

}  // namespace detshare::soft::ptx
