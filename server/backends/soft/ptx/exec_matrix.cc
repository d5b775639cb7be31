#include <algorithm>
#include <array>
#include <cmath>

#include "server/backends/soft/ptx/converge.h"
#include "server/backends/soft/ptx/half.h"
#include "server/backends/soft/ptx/matrix_ops.h"
#include "server/backends/soft/ptx/memory_access.h"

namespace detshare::soft::ptx {
namespace {

// Returns element `j` of a register's lane. Doubles hold integers of up to 32 bits and all floats
// exactly.
double ReadElement(const Context& c, int32_t reg, Type type, uint32_t lane, uint32_t j) {
  if (type == Type::kF64) return c.Src<double>(reg)[lane];
  const uint32_t bits = c.Src<uint32_t>(reg)[lane];
  switch (type) {
    case Type::kF16:
      return HalfToFloat(static_cast<uint16_t>(bits >> (16 * j)));
    case Type::kBF16:
      return Bf16ToFloat(static_cast<uint16_t>(bits >> (16 * j)));
    case Type::kTF32:
      return std::bit_cast<float>(bits & ~0x1fffu);
    case Type::kF32:
      return std::bit_cast<float>(bits);
    case Type::kS8:
      return static_cast<int8_t>(bits >> (8 * j));
    case Type::kU8:
      return static_cast<uint8_t>(bits >> (8 * j));
    default:
      return static_cast<int32_t>(bits);
  }
}

void WriteElement(const Context& c, int32_t reg, const MatrixShape& shape, uint32_t lane,
                  uint32_t j, double value) {
  switch (shape.d) {
    case Type::kF64:
      c.Dst<double>(reg)[lane] = value;
      return;
    case Type::kF16: {
      uint32_t& word = c.Dst<uint32_t>(reg)[lane];
      const uint32_t half = DoubleToSmall(kF16Format, value, SmallRounding::kNearest, false);
      word = j == 0 ? (word & 0xffff0000u) | half : (word & 0xffffu) | half << 16;
      return;
    }
    case Type::kS32: {
      if (shape.saturate) value = std::clamp(value, -2147483648.0, 2147483647.0);
      c.Dst<uint32_t>(reg)[lane] = static_cast<uint32_t>(static_cast<int64_t>(value));
      return;
    }
    default: {
      const float f = static_cast<float>(value);
      c.Dst<uint32_t>(reg)[lane] = f != f ? 0x7fffffffu : std::bit_cast<uint32_t>(f);
    }
  }
}

constexpr uint32_t kMaxSide = 32;
struct Matrix {
  double v[kMaxSide][kMaxSide];
};

// Calls f(row, column, register, lane, element) for each element of a fragment.
enum class Role { kA, kB, kAccumulator };
template <class F>
void ForFragment(const MatrixShape& shape, Role role, Type type, uint32_t registers, F f) {
  const uint32_t per = ElementsPerRegister(type);
  const uint32_t rows = role == Role::kB ? shape.k : shape.m,
                 columns = role == Role::kA ? shape.k : shape.n;
  if (shape.wmma) {
    const uint32_t unique = rows * columns / kLanes;
    for (uint32_t r = 0; r < registers; ++r) {
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        for (uint32_t j = 0; j < per; ++j) {
          const uint32_t index = (r * per + j) % unique * kLanes + lane;
          f(index / columns, index % columns, r, lane, j);
        }
      }
    }
    return;
  }
  for (uint32_t r = 0; r < registers; ++r) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t group = lane / 4, in_group = lane % 4;
      for (uint32_t j = 0; j < per; ++j) {
        if (role == Role::kA) {
          const uint32_t row = shape.m == 16 ? group + 8 * (r & 1) : group;
          f(row, in_group * per + j + (shape.m == 16 ? r / 2 : r) * 4 * per, r, lane, j);
        } else if (role == Role::kB) {
          f(in_group * per + j + r * 4 * per, group, r, lane, j);
        } else {
          const uint32_t slot = r * per + j;
          f(group + 8 * (slot / 2), in_group * 2 + slot % 2, r, lane, j);
        }
      }
    }
  }
}

}  // namespace

void ExecMma(Context& c, const Instr& in, uint32_t mask) {
  Converge(c, in, mask, true, [&](uint32_t lanes) {
    const MatrixShape shape = MatrixShape::Unpack(in.imm);
    const int32_t* registers = c.frame->function->extras.data() + in.extra;
    const uint32_t nd = in.aux & 0xff, na = in.aux >> 8 & 0xff, nb = in.aux >> 16 & 0xff,
                   nc = in.aux >> 24;
    if (lanes != kFullMask)
      return RaiseFault(c, in, FaultKind::kIllegalInstruction, 0, FirstLane(lanes));
    Matrix a, b, d;
    auto read = [&](Role role, Type type, const int32_t* list, uint32_t count, Matrix* out) {
      ForFragment(shape, role, type, count,
                  [&](uint32_t row, uint32_t column, uint32_t r, uint32_t lane, uint32_t j) {
                    out->v[row % kMaxSide][column % kMaxSide] =
                        ReadElement(c, list[r], type, lane, j);
                  });
    };
    read(Role::kA, shape.a, registers + nd, na, &a);
    read(Role::kB, shape.b, registers + nd + na, nb, &b);
    read(Role::kAccumulator, shape.c, registers + nd + na + nb, nc, &d);
    for (uint32_t i = 0; i < shape.m; ++i) {
      for (uint32_t j = 0; j < shape.n; ++j) {
        double sum = d.v[i][j];
        for (uint32_t k = 0; k < shape.k; ++k) sum = std::fma(a.v[i][k], b.v[k][j], sum);
        d.v[i][j] = sum;
      }
    }
    ForFragment(shape, Role::kAccumulator, shape.d, nd,
                [&](uint32_t row, uint32_t column, uint32_t r, uint32_t lane, uint32_t j) {
                  WriteElement(c, registers[r], shape, lane, j,
                               d.v[row % kMaxSide][column % kMaxSide]);
                });
  });
}

namespace {

template <bool kStore>
void WmmaMemory(Context& c, const Instr& in, uint32_t mask) {
  Converge(c, in, mask, true, [&](uint32_t lanes) {
    MatrixShape shape = MatrixShape::Unpack(in.imm);
    const bool by_columns = shape.saturate;
    shape.wmma = true;
    const int32_t* registers = c.frame->function->extras.data() + in.extra;
    if (lanes != kFullMask)
      return RaiseFault(c, in, FaultKind::kIllegalInstruction, 0, FirstLane(lanes));
    const uint64_t base = c.Src<uint64_t>(in.a)[0];
    const uint64_t stride =
        in.b == kNoOperand ? (by_columns ? shape.m : shape.n) : c.Src<uint32_t>(in.b)[0];
    const uint64_t size = shape.a == Type::kTF32 ? 4 : SizeOf(shape.a);
    bool failed = false;
    ForFragment(shape, Role::kAccumulator, shape.a, in.count,
                [&](uint32_t row, uint32_t column, uint32_t r, uint32_t lane, uint32_t j) {
                  if (failed) return;
                  const uint64_t index = by_columns ? column * stride + row : row * stride + column;
                  const uint64_t address = base + index * size;
                  uint8_t* p = static_cast<Space>(in.aux) == Space::kShared
                                   ? SharedPointer(c, address, size)
                                   : GenericPointer(c, lane, address, size, kStore);
                  if (p == nullptr || address % size != 0) {
                    failed = true;
                    return RaiseFault(
                        c, in,
                        p == nullptr ? FaultKind::kIllegalAddress : FaultKind::kMisalignedAddress,
                        address, lane);
                  }
                  uint8_t* lane_bytes =
                      c.Dst<uint8_t>(registers[r]) + (size == 8 ? 8 : 4) * lane + size * j;
                  if (kStore) {
                    std::memcpy(p, lane_bytes, size);
                  } else {
                    std::memcpy(lane_bytes, p, size);
                  }
                });
    (kStore ? c.counters->global_bytes_written : c.counters->global_bytes_read) +=
        uint64_t{shape.m} * shape.n * size;
  });
}

}  // namespace

void ExecWmmaLoad(Context& c, const Instr& in, uint32_t mask) { WmmaMemory<false>(c, in, mask); }
void ExecWmmaStore(Context& c, const Instr& in, uint32_t mask) { WmmaMemory<true>(c, in, mask); }

namespace {

// An 8 by 8 matrix of 16-bit elements. In a register a lane has two neighbours of a row: of the
// matrix or, transposed, of its transpose.
using Matrix8 = std::array<std::array<uint16_t, 8>, 8>;

void Unpack(const uint32_t* lanes, bool transposed, Matrix8* matrix) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    for (uint32_t i = 0; i < 2; ++i) {
      const uint16_t value = static_cast<uint16_t>(lanes[lane] >> 16 * i);
      (transposed ? (*matrix)[column + i][row] : (*matrix)[row][column + i]) = value;
    }
  }
}

void Pack(const Matrix8& matrix, bool transposed, uint32_t* lanes) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    lanes[lane] = transposed
                      ? matrix[column][row] | static_cast<uint32_t>(matrix[column + 1][row]) << 16
                      : matrix[row][column] | static_cast<uint32_t>(matrix[row][column + 1]) << 16;
  }
}

// Calls f(matrix, row, pointer) for the 16 bytes of each row in shared memory. Lane 8 m + r has the
// address of row r of matrix m. Returns false after a fault.
template <class F>
bool ForMatrixRows(Context& c, const Instr& in, F f) {
  for (uint32_t i = 0; i < 8u * in.count; ++i) {
    const uint64_t base = (in.aux & 2) != 0 ? c.Src<uint64_t>(in.a)[i] : c.Src<uint32_t>(in.a)[i];
    const uint64_t address = base + static_cast<uint64_t>(in.imm);
    uint8_t* p = SharedPointer(c, address, 16);
    if (p == nullptr || address % 16 != 0) {
      RaiseFault(c, in, p == nullptr ? FaultKind::kIllegalAddress : FaultKind::kMisalignedAddress,
                 address, i);
      return false;
    }
    f(i / 8, i % 8, p);
  }
  return true;
}

}  // namespace

void ExecLdmatrix(Context& c, const Instr& in, uint32_t mask) {
  Converge(c, in, mask, true, [&](uint32_t lanes) {
    if (lanes != kFullMask)
      return RaiseFault(c, in, FaultKind::kIllegalInstruction, 0, FirstLane(lanes));
    const int32_t* registers = c.frame->function->extras.data() + in.extra;
    std::array<Matrix8, 4> matrices;
    const bool read = ForMatrixRows(c, in, [&](uint32_t m, uint32_t row, const uint8_t* p) {
      std::memcpy(matrices[m][row].data(), p, 16);
    });
    if (!read) return;
    for (uint32_t m = 0; m < in.count; ++m)
      Pack(matrices[m], (in.aux & 1) != 0, c.Dst<uint32_t>(registers[m]));
  });
}

void ExecStmatrix(Context& c, const Instr& in, uint32_t mask) {
  Converge(c, in, mask, true, [&](uint32_t lanes) {
    if (lanes != kFullMask)
      return RaiseFault(c, in, FaultKind::kIllegalInstruction, 0, FirstLane(lanes));
    const int32_t* registers = c.frame->function->extras.data() + in.extra;
    std::array<Matrix8, 4> matrices;
    for (uint32_t m = 0; m < in.count; ++m)
      Unpack(c.Src<uint32_t>(registers[m]), (in.aux & 1) != 0, &matrices[m]);
    ForMatrixRows(c, in, [&](uint32_t m, uint32_t row, uint8_t* p) {
      std::memcpy(p, matrices[m][row].data(), 16);
    });
  });
}

void ExecMovmatrix(Context& c, const Instr& in, uint32_t mask) {
  Converge(c, in, mask, true, [&](uint32_t lanes) {
    if (lanes != kFullMask)
      return RaiseFault(c, in, FaultKind::kIllegalInstruction, 0, FirstLane(lanes));
    Matrix8 matrix;
    Unpack(c.Src<uint32_t>(in.a), false, &matrix);
    Pack(matrix, true, c.Dst<uint32_t>(in.d));
  });
}

}  // namespace detshare::soft::ptx
