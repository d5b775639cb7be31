// Matrix instructions: mma, wmma, ldmatrix, stmatrix and movmatrix.
#pragma once

#include "server/backends/soft/ptx/float_ops.h"
#include "server/backends/soft/ptx/instr.h"

namespace detshare::soft::ptx {

// The contents of Instr::imm.
struct MatrixShape {
  uint8_t m = 0, n = 0;
  uint16_t k = 0;  // of single bits: words of 32
  Type a = Type::kNone, b = Type::kNone, c = Type::kNone, d = Type::kNone;
  bool wmma = false;      // opaque fragments: slot s of a lane has element s * 32 + lane
  bool saturate = false;  // .satfinite of integer accumulators
  Rounding rounding = Rounding::kNone;  // of each multiply-add on f64
  uint8_t selector = 0;                 // of a sparse A: which lanes of four have its metadata

  int64_t Pack() const {
    static_assert(static_cast<uint32_t>(Type::kB1) < 64);
    return static_cast<int64_t>(uint64_t{m} | uint64_t{n} << 8 | uint64_t{k} << 16 |
                                static_cast<uint64_t>(a) << 32 | static_cast<uint64_t>(b) << 38 |
                                static_cast<uint64_t>(c) << 44 | static_cast<uint64_t>(d) << 50 |
                                uint64_t{wmma} << 56 | uint64_t{saturate} << 57 |
                                static_cast<uint64_t>(rounding) << 58 | uint64_t{selector} << 62);
  }
  static MatrixShape Unpack(int64_t packed) {
    const uint64_t v = static_cast<uint64_t>(packed);
    MatrixShape s;
    s.m = v & 0xff;
    s.n = v >> 8 & 0xff;
    s.k = v >> 16 & 0xffff;
    s.a = static_cast<Type>(v >> 32 & 0x3f);
    s.b = static_cast<Type>(v >> 38 & 0x3f);
    s.c = static_cast<Type>(v >> 44 & 0x3f);
    s.d = static_cast<Type>(v >> 50 & 0x3f);
    s.wmma = (v >> 56 & 1) != 0;
    s.saturate = (v >> 57 & 1) != 0;
    s.rounding = static_cast<Rounding>(v >> 58 & 0xf);
    s.selector = v >> 62 & 3;
    return s;
  }
};

// The number of elements of a type in one register.
constexpr uint32_t ElementsPerRegister(Type type) {
  switch (type) {
    case Type::kS4:
    case Type::kU4:
      return 8;
    case Type::kS8:
    case Type::kU8:
    case Type::kE4M3:
    case Type::kE5M2:
      return 4;
    case Type::kF16:
    case Type::kBF16:
      return 2;
    default:
      return 1;
  }
}

// extras: the registers of d, a, b and c. aux: their counts, one byte each, d in the lowest. e: the
// member mask.
void ExecMma(Context& c, const Instr& in, uint32_t mask);
// A is sparse: the registers of a hold half of its elements. a: the metadata, which says where they
// belong.
void ExecSparseMma(Context& c, const Instr& in, uint32_t mask);
// On single bits: counts the bits of a ^ b or a & b.
void ExecMmaXor(Context& c, const Instr& in, uint32_t mask);
void ExecMmaAnd(Context& c, const Instr& in, uint32_t mask);

// wmma.load and wmma.store. a: the 64-bit address. b: the stride in elements, or kNoOperand.
// extras: the fragment. imm: a MatrixShape in which m and n are the rows and columns of the matrix,
// a is its type, and saturate is set when the matrix is stored by columns. aux: the Space.
void ExecWmmaLoad(Context& c, const Instr& in, uint32_t mask);
void ExecWmmaStore(Context& c, const Instr& in, uint32_t mask);

// a: the address in shared memory, of 32 or 64 bits (aux bit 1), with aux bit 2 a generic one. imm:
// its offset. aux bit 0: transposed.
// extras: a register for each matrix.
void ExecLdmatrix(Context& c, const Instr& in, uint32_t mask);
void ExecStmatrix(Context& c, const Instr& in, uint32_t mask);

// d: the transposed matrix. a: the matrix.
void ExecMovmatrix(Context& c, const Instr& in, uint32_t mask);

}  // namespace detshare::soft::ptx
