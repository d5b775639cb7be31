// Bulk copies of the boxes of tensors, and changes of tensor maps.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "server/backends/soft/ptx/bulk_access.h"
#include "server/backends/soft/ptx/bulk_ops.h"
#include "server/backends/soft/ptx/tensor_map.h"

namespace detshare::soft::ptx {
namespace {

constexpr uint32_t kLongestRow = 256 * 8;
constexpr uint16_t kNanFill = 0x7ff7;  // repeated; a NaN of every type

struct Tensor {
  TensorMapBytes map;
  std::array<int64_t, kTensorRanks> at{};  // the indices of the box's first element
};

// Reads the map and the coordinates of a lane. Returns false after a fault.
bool ReadTensor(Context& c, const Instr& in, uint32_t lane, Tensor* tensor) {
  const uint64_t address = c.Src<uint64_t>(in.b)[lane];
  if (address % 64 != 0) {
    RaiseFault(c, in, FaultKind::kMisalignedAddress, address, lane);
    return false;
  }
  if (!ReadGeneric(c, lane, address, sizeof(tensor->map), &tensor->map)) {
    RaiseFault(c, in, FaultKind::kIllegalAddress, address, lane);
    return false;
  }
  if (CheckTensorMap(tensor->map) != nullptr || tensor->map.rank != in.count) {
    RaiseFault(c, in, FaultKind::kIllegalInstruction, address, lane);
    return false;
  }
  const int32_t* registers = c.frame->function->extras.data() + in.extra;
  for (uint32_t i = 0; i < in.count; ++i) tensor->at[i] = c.Src<int32_t>(registers[i])[lane];
  // Boxes begin at multiples of 16 bytes of a row, also outside of the tensor.
  const int64_t element_bytes = TensorBox(tensor->map).element_bytes;
  if (tensor->at[0] * element_bytes % 16 != 0) {
    RaiseFault(c, in, FaultKind::kIllegalInstruction, address, lane);
    return false;
  }
  return true;
}

// The part of a row of the box that lies in the tensor.
struct Row {
  uint64_t shared;   // offset of the row in shared memory, before the swizzle
  uint64_t global;   // address of the part
  uint32_t skipped;  // bytes of the row before the part
  uint32_t bytes;    // 0: the row lies outside of the tensor
};

// Calls f(row) for each row of the box until it returns false.
template <class F>
void ForEachRow(const Tensor& tensor, const TensorBox& box, F f) {
  const TensorMapBytes& map = tensor.map;
  const int64_t first = std::max<int64_t>(tensor.at[0], 0);
  const int64_t end = std::min<int64_t>(tensor.at[0] + box.counts[0], int64_t{map.last[0]} + 1);
  std::array<uint32_t, kTensorRanks> index{};
  for (uint64_t i = 0; i < box.rows; ++i) {
    Row row{i * box.pitch, map.address, 0, 0};
    bool inside = first < end;
    for (uint32_t d = 1; d < map.rank; ++d) {
      const int64_t at = tensor.at[d] + int64_t{index[d]} * map.element_strides[d];
      inside = inside && at >= 0 && at <= map.last[d];
      row.global += static_cast<uint64_t>(at) * map.strides[d - 1];
    }
    if (inside) {
      row.global += static_cast<uint64_t>(first) * box.element_bytes;
      row.skipped = static_cast<uint32_t>(first - tensor.at[0]) * box.element_bytes;
      row.bytes = static_cast<uint32_t>(end - first) * box.element_bytes;
    }
    if (!f(row)) return;
    for (uint32_t d = 1; d < map.rank && ++index[d] == box.counts[d]; ++d) index[d] = 0;
  }
}

// Calls f(offset in the row, offset in shared memory) for each 16 bytes of a row that begins at a
// shared address.
template <class F>
void ForEachPiece(const TensorBox& box, TensorSwizzle swizzle, uint64_t address, F f) {
  for (uint32_t at = 0; at < box.row_bytes; at += 16) f(at, Swizzled(address + at, swizzle));
}

// Rounds to the 10 bits of mantissa of tf32.
float RoundToTf32(float value, bool flush) {
  if (value != value) return std::bit_cast<float>(0x7fffe000u);
  if (flush && std::abs(value) < std::numeric_limits<float>::min())
    return std::copysign(0.0f, value);
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits += 0xfff + (bits >> 13 & 1);
  return std::bit_cast<float>(bits & ~0x1fffu);
}

void ConvertLoaded(TensorType type, uint8_t* row, uint32_t bytes) {
  if (type != TensorType::kTF32 && type != TensorType::kTF32Ftz) return;
  for (uint32_t at = 0; at < bytes; at += 4) {
    float value;
    std::memcpy(&value, row + at, 4);
    value = RoundToTf32(value, type == TensorType::kTF32Ftz);
    std::memcpy(row + at, &value, 4);
  }
}

void LoadBox(Context& c, const Instr& in, uint32_t lane) {
  Tensor tensor;
  if (!ReadTensor(c, in, lane, &tensor)) return;
  const TensorBox box(tensor.map);
  const auto swizzle = static_cast<TensorSwizzle>(tensor.map.swizzle);
  const auto type = static_cast<TensorType>(tensor.map.type);
  // The shared memory of each target, and the place that it has in its block.
  std::array<uint8_t*, 16> targets;
  size_t target_count = 0;
  const uint64_t to = c.Src<uint64_t>(in.a)[lane];
  const bool good = ForEachTarget(c, in, lane, to, [&](uint64_t address, uint64_t) {
    uint8_t* const p = BulkShared(c, in, lane, address, box.shared_bytes(), 128);
    targets[target_count++] = p;
    return p != nullptr;
  });
  if (!good) return;
  const uint64_t place = to % kClusterStride;
  bool failed = false;
  ForEachRow(tensor, box, [&](const Row& row) {
    alignas(8) uint8_t bytes[kLongestRow];
    const uint16_t fill = tensor.map.fill == 1 ? kNanFill : 0;
    std::fill_n(reinterpret_cast<uint16_t*>(bytes), box.row_bytes / 2, fill);
    if (row.bytes != 0) {
      if (!Allowed(c, row.global, row.bytes, false)) {
        RaiseFault(c, in, FaultKind::kIllegalAddress, row.global, lane);
        failed = true;
        return false;
      }
      CountBulk(c, row.bytes, false);
      std::memcpy(bytes + row.skipped, reinterpret_cast<const uint8_t*>(row.global), row.bytes);
      ConvertLoaded(type, bytes + row.skipped, row.bytes);
    }
    ForEachPiece(box, swizzle, place + row.shared, [&](uint32_t at, uint64_t shared) {
      for (size_t t = 0; t < target_count; ++t)
        std::memcpy(targets[t] + (shared - place), bytes + at, 16);
    });
    return true;
  });
  if (failed) return;
  ForEachTarget(c, in, lane, to, [&](uint64_t, uint64_t barrier) {
    return CompleteBytes(c, in, lane, barrier, static_cast<uint32_t>(box.payload_bytes()));
  });
}

void StoreBox(Context& c, const Instr& in, uint32_t lane) {
  Tensor tensor;
  if (!ReadTensor(c, in, lane, &tensor)) return;
  // An H100 (driver 580) stores and reduces boxes beyond the end of a tensor, but not before its begin.
  if (*std::min_element(tensor.at.begin(), tensor.at.end()) < 0)
    return RaiseFault(c, in, FaultKind::kIllegalInstruction, c.Src<uint64_t>(in.b)[lane], lane);
  const TensorBox box(tensor.map);
  const auto swizzle = static_cast<TensorSwizzle>(tensor.map.swizzle);
  Reduction reduction = nullptr;
  if (in.aux != BulkReduction::kNone) {
    const auto element = static_cast<TensorType>(tensor.map.type);
    reduction = SelectReduction(BulkReduction::Op(in.aux), ElementType(element),
                                /*noftz=*/element == TensorType::kF32);
    if (reduction == nullptr)
      return RaiseFault(c, in, FaultKind::kIllegalInstruction, c.Src<uint64_t>(in.b)[lane], lane);
  }
  const uint64_t from = c.Src<uint64_t>(in.a)[lane];
  const uint8_t* const source = BulkShared(c, in, lane, from, box.shared_bytes(), 128);
  if (source == nullptr) return;
  const uint64_t place = from % kClusterStride;
  ForEachRow(tensor, box, [&](const Row& row) {
    if (row.bytes == 0) return true;
    if (!Allowed(c, row.global, row.bytes, true)) {
      RaiseFault(c, in, FaultKind::kIllegalAddress, row.global, lane);
      return false;
    }
    CountBulk(c, row.bytes, true);
    alignas(8) uint8_t bytes[kLongestRow];
    ForEachPiece(box, swizzle, place + row.shared, [&](uint32_t at, uint64_t shared) {
      std::memcpy(bytes + at, source + (shared - place), 16);
    });
    uint8_t* const to = reinterpret_cast<uint8_t*>(row.global);
    if (reduction == nullptr) {
      std::memcpy(to, bytes + row.skipped, row.bytes);
    } else {
      for (uint32_t at = 0; at < row.bytes; at += box.element_bytes)
        reduction(to + at, bytes + row.skipped + at);
    }
    return true;
  });
}

// Calls f(lane) for each lane until there is a fault.
template <class F>
void ForEachLaneUntilFault(Context& c, uint32_t mask, F f) {
  for (uint32_t m = mask; m != 0 && c.unit->fault.kind == FaultKind::kNone; m &= m - 1)
    f(FirstLane(m));
}

// PTX numbers some types of elements differently than the driver.
uint8_t TypeOfReplacement(uint64_t value) {
  constexpr TensorType kTypes[] = {TensorType::kU8,     TensorType::kU16,  TensorType::kU32,
                                   TensorType::kS32,    TensorType::kU64,  TensorType::kS64,
                                   TensorType::kF16,    TensorType::kF32,  TensorType::kF32Ftz,
                                   TensorType::kF64,    TensorType::kBF16, TensorType::kTF32,
                                   TensorType::kTF32Ftz};
  return static_cast<uint8_t>(value < std::size(kTypes) ? kTypes[value] : TensorType::kCount);
}

uint8_t Small(uint64_t value) { return static_cast<uint8_t>(std::min<uint64_t>(value, 0xff)); }

// Values that no map has make a map that no copy accepts.
void Replace(TensorMapBytes* map, TensorMapField field, uint32_t dimension, uint64_t value) {
  switch (field) {
    case TensorMapField::kAddress:
      map->address = value;
      break;
    case TensorMapField::kRank:
      map->rank = Small(value + 1);
      break;
    case TensorMapField::kBox:
      map->box[dimension] = static_cast<uint16_t>(std::min<uint64_t>(value, 0xffff));
      break;
    case TensorMapField::kDimension:
      map->last[dimension] = static_cast<uint32_t>(value - 1);
      break;
    case TensorMapField::kStride:
      map->strides[dimension] = value;
      break;
    case TensorMapField::kElementStride:
      map->element_strides[dimension] = Small(value);
      break;
    case TensorMapField::kType:
      map->type = TypeOfReplacement(value);
      break;
    case TensorMapField::kInterleave:
      map->interleave = Small(value);
      break;
    case TensorMapField::kSwizzle:
      map->swizzle = Small(value);
      break;
    case TensorMapField::kFill:
      map->fill = Small(value);
      break;
  }
}

}  // namespace

void ExecTensorLoad(Context& c, const Instr& in, uint32_t mask) {
  ForEachLaneUntilFault(c, mask, [&](uint32_t lane) { LoadBox(c, in, lane); });
}

void ExecTensorStore(Context& c, const Instr& in, uint32_t mask) {
  ForEachLaneUntilFault(c, mask, [&](uint32_t lane) { StoreBox(c, in, lane); });
}

void ExecTensorMapReplace(Context& c, const Instr& in, uint32_t mask) {
  ForEachLaneUntilFault(c, mask, [&](uint32_t lane) {
    const uint64_t address = c.Src<uint64_t>(in.a)[lane];
    uint8_t* const p = GenericPointer(c, lane, address, sizeof(TensorMapBytes), true);
    if (p == nullptr || address % 64 != 0) {
      return RaiseFault(c, in,
                        p == nullptr ? FaultKind::kIllegalAddress : FaultKind::kMisalignedAddress,
                        address, lane);
    }
    TensorMapBytes map;
    std::memcpy(&map, p, sizeof(map));
    Replace(&map, static_cast<TensorMapField>(in.aux), static_cast<uint32_t>(in.imm),
            c.Src<uint64_t>(in.b)[lane]);
    std::memcpy(p, &map, sizeof(map));
  });
}

void ExecTensorMapCopy(Context& c, const Instr& in, uint32_t mask) {
  // The lanes of a warp copy the same map together.
  const uint32_t lane = FirstLane(mask);
  const uint8_t* const from =
      BulkShared(c, in, lane, c.Src<uint64_t>(in.b)[lane], sizeof(TensorMapBytes), 128);
  if (from == nullptr) return;
  uint8_t* const to =
      BulkGlobal(c, in, lane, c.Src<uint64_t>(in.a)[lane], sizeof(TensorMapBytes), true);
  if (to != nullptr) std::memcpy(to, from, sizeof(TensorMapBytes));
}

}  // namespace detshare::soft::ptx
