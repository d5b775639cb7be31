// Matrix instructions: mma, wmma and ldmatrix.
#pragma once

#include "server/backends/soft/ptx/instr.h"

namespace detshare::soft::ptx {

// What Instr::imm holds for them.
struct MatrixShape {
  uint8_t m = 0, n = 0, k = 0;
  Type a = Type::kNone, b = Type::kNone, c = Type::kNone, d = Type::kNone;
  bool wmma = false;      // opaque fragments: ours hold element s * 32 + lane in slot s
  bool saturate = false;  // .satfinite of integer accumulators

  int64_t Pack() const {
    return static_cast<int64_t>(uint64_t{m} | uint64_t{n} << 8 | uint64_t{k} << 16 |
                                static_cast<uint64_t>(a) << 24 | static_cast<uint64_t>(b) << 32 |
                                static_cast<uint64_t>(c) << 40 | static_cast<uint64_t>(d) << 48 |
                                uint64_t{wmma} << 56 | uint64_t{saturate} << 57);
  }
  static MatrixShape Unpack(int64_t packed) {
    const uint64_t v = static_cast<uint64_t>(packed);
    MatrixShape s;
    s.m = v & 0xff;
    s.n = v >> 8 & 0xff;
    s.k = v >> 16 & 0xff;
    s.a = static_cast<Type>(v >> 24 & 0xff);
    s.b = static_cast<Type>(v >> 32 & 0xff);
    s.c = static_cast<Type>(v >> 40 & 0xff);
    s.d = static_cast<Type>(v >> 48 & 0xff);
    s.wmma = (v >> 56 & 1) != 0;
    s.saturate = (v >> 57 & 1) != 0;
    return s;
  }
};

// Elements of a type in one register.
constexpr uint32_t ElementsPerRegister(Type type) {
  return type == Type::kS8 || type == Type::kU8      ? 4
         : type == Type::kF16 || type == Type::kBF16 ? 2
                                                     : 1;
}

// extras: the registers of d, a, b, c, whose counts are in the four bytes of aux from the lowest
// on. e: the member mask.
void ExecMma(Context& c, const Instr& in, uint32_t mask);

// wmma.load and wmma.store. a: address (64-bit), b: stride in elements or kNoOperand, extras: the
// fragment. imm: a MatrixShape whose m and n are the matrix's rows and columns, a its type,
// saturate its being stored by columns; aux: Space.
void ExecWmmaLoad(Context& c, const Instr& in, uint32_t mask);
void ExecWmmaStore(Context& c, const Instr& in, uint32_t mask);

// a: shared address, 32 or 64 bits wide (aux bit 1), aux bit 0: transposed; extras: one register
// for each matrix; imm: offset.
void ExecLdmatrix(Context& c, const Instr& in, uint32_t mask);

}  // namespace detshare::soft::ptx
