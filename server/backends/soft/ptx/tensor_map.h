// The software GPU's contents of a tensor map. Programs hold and copy the 128 bytes, and kernels
// read them wherever they lie. So a map may hold any bytes until Check has accepted it.
#pragma once

#include <array>
#include <cstdint>

#include "server/backends/soft/ptx/types.h"

namespace detshare::soft::ptx {

constexpr uint32_t kTensorRanks = 5;

// The numbers are CUtensorMapDataType's.
enum class TensorType : uint8_t {
  kU8,
  kU16,
  kU32,
  kS32,
  kU64,
  kS64,
  kF16,
  kF32,
  kF64,
  kBF16,
  kF32Ftz,
  kTF32,
  kTF32Ftz,
  kCount
};

// The numbers are CUtensorMapSwizzle's.
enum class TensorSwizzle : uint8_t { kNone, k32, k64, k128, kCount };

struct TensorMapBytes {
  static constexpr uint64_t kMagic = 0x3170616d746f6673;  // tells a map from other bytes

  uint64_t magic = kMagic;
  uint64_t address = 0;  // global
  std::array<uint64_t, kTensorRanks - 1>
      strides{};  // bytes from one index to the next; [0]: of dimension 1
  std::array<uint32_t, kTensorRanks> last{};  // the largest index, because 2^32 indices are allowed
  std::array<uint16_t, kTensorRanks> box{};
  std::array<uint8_t, kTensorRanks> element_strides{};  // that of dimension 0 has no effect
  uint8_t rank = 0;
  uint8_t type = 0;     // TensorType
  uint8_t swizzle = 0;  // TensorSwizzle
  uint8_t fill = 0;     // 0: elements outside of the tensor are zero, 1: NaN
  uint8_t interleave = 0;
  std::array<uint8_t, 40> unused{};
};
static_assert(sizeof(TensorMapBytes) == 128);

// Returns null if a device of compute capability 9.0 can use the map, otherwise the reason.
const char* CheckTensorMap(const TensorMapBytes& map);

// The type of a register that holds an element; kNone for an unknown type.
Type ElementType(TensorType type);

// What a map says about the bytes of a box in shared memory. For a map that CheckTensorMap accepts.
struct TensorBox {
  explicit TensorBox(const TensorMapBytes& map);

  uint32_t element_bytes;
  uint32_t row_bytes;                           // of dimension 0
  uint32_t pitch;                               // from one row to the next
  std::array<uint32_t, kTensorRanks> counts{};  // of indices in each dimension; 1 beyond the rank
  uint64_t rows;
  uint64_t payload_bytes() const { return rows * row_bytes; }  // what arrives at the mbarrier
  uint64_t shared_bytes() const { return rows * pitch; }
};

// The place of the 16 bytes that would lie at a shared address without the swizzle.
constexpr uint64_t Swizzled(uint64_t address, TensorSwizzle swizzle) {
  switch (swizzle) {
    case TensorSwizzle::k32:
      return address ^ ((address >> 7 & 1) << 4);
    case TensorSwizzle::k64:
      return address ^ ((address >> 7 & 3) << 4);
    case TensorSwizzle::k128:
      return address ^ ((address >> 7 & 7) << 4);
    default:
      return address;
  }
}

}  // namespace detshare::soft::ptx
