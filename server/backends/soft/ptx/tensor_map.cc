#include "server/backends/soft/ptx/tensor_map.h"

namespace detshare::soft::ptx {
namespace {

// The bytes of a row in shared memory between which the swizzle exchanges pieces; 0 without one.
uint32_t SpanOf(TensorSwizzle swizzle) {
  switch (swizzle) {
    case TensorSwizzle::k32:
      return 32;
    case TensorSwizzle::k64:
      return 64;
    case TensorSwizzle::k128:
      return 128;
    default:
      return 0;
  }
}

bool IsFloating(TensorType type) { return type >= TensorType::kF16; }

}  // namespace

Type ElementType(TensorType type) {
  switch (type) {
    case TensorType::kU8:
      return Type::kU8;
    case TensorType::kU16:
      return Type::kU16;
    case TensorType::kU32:
      return Type::kU32;
    case TensorType::kS32:
      return Type::kS32;
    case TensorType::kU64:
      return Type::kU64;
    case TensorType::kS64:
      return Type::kS64;
    case TensorType::kF16:
      return Type::kF16;
    case TensorType::kBF16:
      return Type::kBF16;
    case TensorType::kF64:
      return Type::kF64;
    case TensorType::kF32:
    case TensorType::kF32Ftz:
      return Type::kF32;
    case TensorType::kTF32:
    case TensorType::kTF32Ftz:
      return Type::kTF32;
    default:
      return Type::kNone;
  }
}

const char* CheckTensorMap(const TensorMapBytes& map) {
  if (map.magic != TensorMapBytes::kMagic) return "the bytes are no tensor map";
  if (map.rank < 1 || map.rank > kTensorRanks) return "the rank is not 1 to 5";
  if (map.type >= static_cast<uint8_t>(TensorType::kCount))
    return "the device does not have the type of the elements";
  if (map.swizzle >= static_cast<uint8_t>(TensorSwizzle::kCount))
    return "the device does not have the swizzle";
  if (map.interleave != 0) return "the software GPU does not interleave tensors";
  if (map.fill > 1) return "the device does not have the fill";
  const TensorType type = static_cast<TensorType>(map.type);
  if (map.fill == 1 && !IsFloating(type)) return "elements that are integers cannot be NaN";
  if (map.address % 16 != 0) return "the address is not aligned to 16 bytes";
  for (uint32_t i = 0; i < map.rank; ++i) {
    if (map.box[i] < 1 || map.box[i] > 256) return "a side of the box is not 1 to 256";
    if (map.element_strides[i] < 1 || map.element_strides[i] > 8)
      return "a stride of elements is not 1 to 8";
    if (i > 0 && (map.strides[i - 1] % 16 != 0 || map.strides[i - 1] >= uint64_t{1} << 40))
      return "a stride is not a multiple of 16 bytes below 2^40";
  }
  const uint32_t row = map.box[0] * SizeOf(ElementType(type));
  if (row % 16 != 0) return "a row of the box is not a multiple of 16 bytes";
  const uint32_t span = SpanOf(static_cast<TensorSwizzle>(map.swizzle));
  if (span != 0 && row > span) return "a row of the box is longer than the span of the swizzle";
  return nullptr;
}

TensorBox::TensorBox(const TensorMapBytes& map) {
  element_bytes = SizeOf(ElementType(static_cast<TensorType>(map.type)));
  row_bytes = map.box[0] * element_bytes;
  const uint32_t span = SpanOf(static_cast<TensorSwizzle>(map.swizzle));
  pitch = span == 0 ? row_bytes : span;
  counts.fill(1);
  counts[0] = map.box[0];
  rows = 1;
  for (uint32_t i = 1; i < map.rank; ++i) {
    counts[i] = (map.box[i] + map.element_strides[i] - 1u) / map.element_strides[i];
    rows *= counts[i];
  }
}

}  // namespace detshare::soft::ptx
