// Products of matrices: mma and wmma.mma.
#include <bit>
#include <utility>

#include "absl/types/span.h"
#include "server/backends/soft/ptx/converge.h"
#include "server/backends/soft/ptx/matrix_fragments.h"
#include "server/backends/soft/ptx/matrix_math.h"
#include "server/backends/soft/ptx/rounding_scope.h"

namespace detshare::soft::ptx {
namespace {

// Converts the registers of a fragment to a row-major matrix.
void DecodeFragment(const Context& c, const MatrixMath& math, const MatrixShape& shape, Role role,
                    Type type, absl::Span<const int32_t> registers, double* matrix) {
  const uint32_t count = static_cast<uint32_t>(registers.size());
  if (shape.wmma) {
    ForWmmaFragment(ElementsOf(shape, role), type, count,
                    [&](uint32_t r, uint32_t j, uint32_t first) {
                      math.decode(type, c.Src<uint8_t>(registers[r]), j, matrix + first);
                    });
    return;
  }
  double values[kLanes];
  ForMmaFragment(shape, role, type, count, [&](uint32_t r, uint32_t j, const MmaPlaces& places) {
    math.decode(type, c.Src<uint8_t>(registers[r]), j, values);
    places.ForLanes([&](uint32_t lane, uint32_t place) { matrix[place] = values[lane]; });
  });
}

// Returns a fragment as a row-major matrix: `converted`, or the register that has it so.
const double* ReadFragment(const Context& c, const MatrixMath& math, const MatrixShape& shape,
                           Role role, Type type, absl::Span<const int32_t> registers,
                           double* converted) {
  if (shape.wmma && type == Type::kF64 && ElementsOf(shape, role) == kLanes)
    return c.Src<double>(registers[0]);
  DecodeFragment(c, math, shape, role, type, registers, converted);
  return converted;
}

void WriteAccumulator(const Context& c, const MatrixMath& math, const MatrixShape& shape,
                      const double* matrix, absl::Span<const int32_t> registers) {
  const uint32_t count = static_cast<uint32_t>(registers.size());
  const auto encode = [&](const double* values, uint32_t r, uint32_t j) {
    math.encode(shape.d, values, j, shape.saturate, c.Dst<uint8_t>(registers[r]));
  };
  if (shape.wmma) {
    ForWmmaFragment(uint32_t{shape.m} * shape.n, shape.d, count,
                    [&](uint32_t r, uint32_t j, uint32_t first) { encode(matrix + first, r, j); });
    return;
  }
  double values[kLanes];
  ForMmaFragment(
      shape, Role::kAccumulator, shape.d, count,
      [&](uint32_t r, uint32_t j, const MmaPlaces& places) {
        places.ForLanes([&](uint32_t lane, uint32_t place) { values[lane] = matrix[place]; });
        encode(values, r, j);
      });
}

struct MmaOperands {
  MatrixShape shape;
  absl::Span<const int32_t> d, a, b, c;
};

// Calls f(operands) when all lanes have met.
template <class F>
void ForMma(Context& c, const Instr& in, uint32_t mask, F f) {
  Converge(c, in, mask, true, [&](uint32_t lanes) {
    if (lanes != kFullMask)
      return RaiseFault(c, in, FaultKind::kIllegalInstruction, 0, FirstLane(lanes));
    const int32_t* next = c.frame->function->extras.data() + in.extra;
    const auto take = [&](uint32_t count) {
      return absl::MakeConstSpan(std::exchange(next, next + count), count);
    };
    MmaOperands operands;
    operands.shape = MatrixShape::Unpack(in.imm);
    operands.d = take(in.aux & 0xff);
    operands.a = take(in.aux >> 8 & 0xff);
    operands.b = take(in.aux >> 16 & 0xff);
    operands.c = take(in.aux >> 24);
    f(operands);
  });
}

const MatrixMath& Math() {
  static const MatrixMath& math = *AllMatrixMath().front();
  return math;
}

// The column in the matrix A of an element of its stored half. `metadata` is that of all lanes.
uint32_t SparseColumn(const MatrixShape& shape, const uint32_t* metadata, uint32_t row,
                      uint32_t column) {
  // Four bits of metadata stand for a chunk: two indices of one of four parts each. An index chooses
  // one element, or two of four bits. Of tf32 both indices together choose one element of two.
  const uint32_t per = ElementsPerRegister(shape.a);
  const uint32_t in_chunk = per == 1 ? 1 : per == 8 ? 4 : 2;
  const uint32_t chunk = column / in_chunk, chunks = shape.k / (2 * in_chunk);
  const uint32_t first = row % 8 * 4, upper = row / 8;
  uint32_t lane = 0, shift = 0;
  if (per <= 2) {
    // A lane has four chunks of a row and, in its upper half, of the row eight below.
    lane = first + shape.selector * (chunks / 4) + chunk / 4;
    shift = 16 * upper + 4 * (chunk % 4);
  } else {
    // A lane has eight chunks of a row, the next lane those of the row eight below.
    lane = first + shape.selector * 2 + chunk / 8 * 2 + upper;
    shift = 4 * (chunk % 8);
  }
  const uint32_t indices = metadata[lane] >> shift;
  switch (in_chunk) {
    case 1:
      return chunk * 2 + (indices >> 1 & 1);
    case 2:
      return chunk * 4 + (indices >> 2 * (column % 2) & 3);
    default:
      return chunk * 8 + 2 * (indices >> 2 * (column / 2 % 2) & 3) + column % 2;
  }
}

// The words of a fragment of single bits as a row-major matrix of words.
void ReadWords(const Context& c, const MatrixShape& shape, Role role,
               absl::Span<const int32_t> registers, uint32_t* words) {
  ForMmaFragment(
      shape, role, shape.a, static_cast<uint32_t>(registers.size()),
      [&](uint32_t r, uint32_t, const MmaPlaces& places) {
        const uint32_t* const lanes = c.Src<uint32_t>(registers[r]);
        places.ForLanes([&](uint32_t lane, uint32_t place) { words[place] = lanes[lane]; });
      });
}

template <class F>
void BitMma(Context& c, const Instr& in, uint32_t mask, F combine) {
  ForMma(c, in, mask, [&](const MmaOperands& o) {
    const MatrixShape& shape = o.shape;
    uint32_t a[kMaxMatrixSide * kMaxMatrixSide], b[kMaxMatrixSide * kMaxMatrixSide];
    uint32_t d[kMaxMatrixSide * kMaxMatrixSide];
    ReadWords(c, shape, Role::kA, o.a, a);
    ReadWords(c, shape, Role::kB, o.b, b);
    ReadWords(c, shape, Role::kAccumulator, o.c, d);
    for (uint32_t i = 0; i < shape.m; ++i)
      for (uint32_t j = 0; j < shape.n; ++j)
        for (uint32_t at = 0; at < shape.k; ++at)
          d[i * shape.n + j] += static_cast<uint32_t>(
              std::popcount(combine(a[i * shape.k + at], b[at * shape.n + j])));
    ForMmaFragment(
        shape, Role::kAccumulator, shape.d, static_cast<uint32_t>(o.d.size()),
        [&](uint32_t r, uint32_t, const MmaPlaces& places) {
          uint32_t* const lanes = c.Dst<uint32_t>(o.d[r]);
          places.ForLanes([&](uint32_t lane, uint32_t place) { lanes[lane] = d[place]; });
        });
  });
}

}  // namespace

void ExecMma(Context& c, const Instr& in, uint32_t mask) {
  const MatrixMath& math = Math();
  ForMma(c, in, mask, [&](const MmaOperands& o) {
    const MatrixShape& shape = o.shape;
    MatrixElements of_a, of_b, d;
    const double* const a = ReadFragment(c, math, shape, Role::kA, shape.a, o.a, of_a);
    const double* const b = ReadFragment(c, math, shape, Role::kB, shape.b, o.b, of_b);
    DecodeFragment(c, math, shape, Role::kAccumulator, shape.c, o.c, d);
    {
      const RoundingScope scope(shape.rounding);
      math.multiply_add(a, b, d, shape.m, shape.n, shape.k);
    }
    WriteAccumulator(c, math, shape, d, o.d);
  });
}

void ExecSparseMma(Context& c, const Instr& in, uint32_t mask) {
  const MatrixMath& math = Math();
  ForMma(c, in, mask, [&](const MmaOperands& o) {
    const MatrixShape& shape = o.shape;
    MatrixShape stored = shape;
    stored.k /= 2;
    MatrixElements a, b, d, chosen;
    DecodeFragment(c, math, stored, Role::kA, shape.a, o.a, a);
    DecodeFragment(c, math, shape, Role::kB, shape.b, o.b, b);
    DecodeFragment(c, math, shape, Role::kAccumulator, shape.c, o.c, d);
    const uint32_t* const metadata = c.Src<uint32_t>(in.a);
    for (uint32_t row = 0; row < shape.m; ++row) {
      // The rows of B that meet zeros of A do not count, also not if they are infinite.
      for (uint32_t at = 0; at < stored.k; ++at) {
        const double* const from = b + SparseColumn(shape, metadata, row, at) * shape.n;
        std::copy_n(from, shape.n, chosen + at * shape.n);
      }
      math.multiply_add(a + row * stored.k, chosen, d + row * shape.n, 1, shape.n, stored.k);
    }
    WriteAccumulator(c, math, shape, d, o.d);
  });
}

void ExecMmaXor(Context& c, const Instr& in, uint32_t mask) {
  BitMma(c, in, mask, [](uint32_t a, uint32_t b) { return a ^ b; });
}
void ExecMmaAnd(Context& c, const Instr& in, uint32_t mask) {
  BitMma(c, in, mask, [](uint32_t a, uint32_t b) { return a & b; });
}

}  // namespace detshare::soft::ptx
