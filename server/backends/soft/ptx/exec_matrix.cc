// wmma's loads and stores, ldmatrix, stmatrix and movmatrix.
#include <array>
#include <cstring>

#include "server/backends/soft/ptx/converge.h"
#include "server/backends/soft/ptx/matrix_fragments.h"
#include "server/backends/soft/ptx/matrix_math.h"
#include "server/backends/soft/ptx/memory_access.h"
#include "server/backends/soft/ptx/transpose.h"

namespace detshare::soft::ptx {
namespace {

// Calls f(pointer, line, length) for each row or column of a matrix in memory. Returns false after a
// fault.
template <class F>
bool ForLines(Context& c, const Instr& in, const MatrixShape& shape, uint32_t size, bool write,
              F f) {
  const bool by_columns = shape.saturate;
  const uint32_t lines = by_columns ? shape.n : shape.m, length = by_columns ? shape.m : shape.n;
  const uint64_t stride = in.b == kNoOperand ? length : c.Src<uint32_t>(in.b)[0];
  const auto pointer = [&](uint64_t address, uint64_t bytes) {
    return static_cast<Space>(in.aux) == Space::kShared
               ? SharedPointer(c, address, bytes)
               : GenericPointer(c, 0, address, bytes, write);
  };
  const uint64_t begin = c.Src<uint64_t>(in.a)[0];
  // Usually the gaps between the lines may be accessed, too.
  uint8_t* const all =
      begin % size == 0 ? pointer(begin, ((lines - 1) * stride + length) * size) : nullptr;
  for (uint32_t line = 0; line < lines; ++line) {
    if (all != nullptr) {
      f(all + line * stride * size, line, length);
      continue;
    }
    uint64_t address = begin + line * stride * size;
    uint8_t* const p = pointer(address, uint64_t{length} * size);
    if (p == nullptr || address % size != 0) {
      while (p == nullptr && pointer(address, size) != nullptr) address += size;
      RaiseFault(c, in, p == nullptr ? FaultKind::kIllegalAddress : FaultKind::kMisalignedAddress,
                 address, 0);
      return false;
    }
    f(p, line, length);
  }
  return true;
}

// The sides of fragments are constants for the compiler, which copies so little faster than memcpy().
template <class T>
void CopyLine(void* to, const void* from, uint32_t length) {
  switch (length) {
    case 4:
      std::memcpy(to, from, 4 * sizeof(T));
      return;
    case 8:
      std::memcpy(to, from, 8 * sizeof(T));
      return;
    case 16:
      std::memcpy(to, from, 16 * sizeof(T));
      return;
    default:
      std::memcpy(to, from, length * sizeof(T));
  }
}

// Row-major, without gaps.
template <class T>
using Elements = T[kMaxMatrixSide * kMaxMatrixSide];

// T: an element in memory. Lane: in a register.
template <class T, class Lane>
void LoadMatrix(Context& c, const Instr& in, const MatrixShape& shape) {
  Elements<T> of_lines, of_rows;
  const int32_t* registers = c.frame->function->extras.data() + in.extra;
  constexpr uint32_t kPer = sizeof(Lane) / sizeof(T);
  const uint32_t distinct = uint32_t{shape.m} * shape.n / (kLanes * kPer);
  const bool by_columns = shape.saturate;
  // Whether the first register has the whole row-major matrix as it is.
  const bool in_place = kPer == 1 && distinct == 1;
  T* const rows = in_place ? c.Dst<T>(registers[0]) : of_rows;
  T* const lines = by_columns ? of_lines : rows;
  const bool read = ForLines(c, in, shape, sizeof(T), false,
                             [&](const uint8_t* p, uint32_t line, uint32_t length) {
                               CopyLine<T>(lines + line * length, p, length);
                             });
  if (!read) return;
  if (by_columns) Transpose(lines, shape.n, shape.m, rows);
  const T* next = rows;
  for (uint32_t r = in_place ? 1 : 0; r < in.count; ++r) {
    Lane* const to = c.Dst<Lane>(registers[r]);
    // A fragment may hold its matrix several times.
    if (r >= distinct) {
      std::memcpy(to, c.Src<Lane>(registers[r - distinct]), kLanes * sizeof(Lane));
      continue;
    }
    Lane words[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      Lane word = next[lane];
      for (uint32_t j = 1; j < kPer; ++j)
        word |= Lane{next[j * kLanes + lane]} << 8 * sizeof(T) * j;
      words[lane] = word;
    }
    std::memcpy(to, words, sizeof(words));
    next += kPer * kLanes;
  }
}

template <class T, class Lane>
void StoreMatrix(Context& c, const Instr& in, const MatrixShape& shape) {
  Elements<T> matrix, transposed;
  const int32_t* registers = c.frame->function->extras.data() + in.extra;
  ForWmmaFragment(uint32_t{shape.m} * shape.n, shape.a, in.count,
                  [&](uint32_t r, uint32_t j, uint32_t first) {
                    const Lane* const lanes = c.Dst<Lane>(registers[r]);
                    for (uint32_t lane = 0; lane < kLanes; ++lane)
                      matrix[first + lane] = static_cast<T>(lanes[lane] >> 8 * sizeof(T) * j);
                  });
  const bool by_columns = shape.saturate;
  if (by_columns) Transpose(matrix, shape.m, shape.n, transposed);
  const T* const lines = by_columns ? transposed : matrix;
  ForLines(c, in, shape, sizeof(T), true, [&](uint8_t* p, uint32_t line, uint32_t length) {
    CopyLine<T>(p, lines + line * length, length);
  });
}

template <bool kStore>
void WmmaMemory(Context& c, const Instr& in, uint32_t mask) {
  Converge(c, in, mask, true, [&](uint32_t lanes) {
    if (lanes != kFullMask)
      return RaiseFault(c, in, FaultKind::kIllegalInstruction, 0, FirstLane(lanes));
    const MatrixShape shape = MatrixShape::Unpack(in.imm);
    const uint64_t size = shape.a == Type::kTF32 ? 4 : SizeOf(shape.a);
    if (size == 1) {
      kStore ? StoreMatrix<uint8_t, uint32_t>(c, in, shape)
             : LoadMatrix<uint8_t, uint32_t>(c, in, shape);
    } else if (size == 2) {
      kStore ? StoreMatrix<uint16_t, uint32_t>(c, in, shape)
             : LoadMatrix<uint16_t, uint32_t>(c, in, shape);
    } else if (size == 4) {
      kStore ? StoreMatrix<uint32_t, uint32_t>(c, in, shape)
             : LoadMatrix<uint32_t, uint32_t>(c, in, shape);
    } else {
      kStore ? StoreMatrix<uint64_t, uint64_t>(c, in, shape)
             : LoadMatrix<uint64_t, uint64_t>(c, in, shape);
    }
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
    const bool generic = (in.aux & 4) != 0;
    // Shared memory alone has rows of matrices.
    const bool reaches = !generic || address - kSharedWindow < kWindowSize;
    uint8_t* const p =
        reaches ? SharedPointer(c, generic ? address - kSharedWindow : address, 16) : nullptr;
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
