// Memory operands of native code: fields of the Context, and constants.
#pragma once

#include <asmjit/asmjit.h>

#include <cstddef>
#include <cstdint>

#include "server/backends/soft/ptx/context.h"
#include "server/backends/soft/ptx/ir.h"

namespace detshare::soft::ptx {

struct alignas(64) NativeConstants {
  uint32_t steps32[5][kLanes];  // lane * (1, 2, 4, 8, 16)
  uint64_t steps64[5][kLanes];
  // Indices into two vectors. deal2[k] and deal2_64[k] pick each second element from element k, and
  // deal4[k] picks each fourth, for eight lanes. mix2[j] and mix4[j] are the inverse: the parts of the
  // lanes in vector j of a row.
  uint32_t deal2[2][16], deal4[4][16], mix2[2][16], mix4[4][16];
  uint64_t deal2_64[2][8], mix2_64[2][8];
  uint32_t nan = 0x7fffffff, sign = 0x80000000, exponent = 0x7f800000, magnitude = 0x7fffffff;
  uint32_t shift_mask = 31;
  float zero = 0, one = 1.0f, two_to_31 = 0x1p31f, two_to_126 = 0x1p126f,
        minus_two_to_126 = -0x1p126f;
  alignas(8) double one64 = 1.0, half64 = 0.5, three_eighths64 = 0.375;
  uint64_t sign64 = uint64_t{1} << 63, magnitude64 = ~(uint64_t{1} << 63), ones = ~uint64_t{0};
  // The bits of an f64 that an f32 drops, and those values of them that are near the middle.
  uint64_t low29 = 0x1fffffff, below_tie = 0x10000000 - 0x4000, around_tie = 0x8000;
  uint64_t three = 3;
  uint64_t shared_window = kSharedWindow;
  NativeConstants();
};
extern const NativeConstants kNativeConstants;

// rbx holds the Context, and r14 the address of kNativeConstants.
inline asmjit::x86::Mem ContextField(size_t offset, size_t size) {
  asmjit::x86::Mem m = asmjit::x86::ptr(asmjit::x86::rbx, static_cast<int32_t>(offset));
  m.setSize(static_cast<uint32_t>(size));
  return m;
}
inline asmjit::x86::Mem ConstantAt(size_t offset) {
  return asmjit::x86::ptr(asmjit::x86::r14, static_cast<int32_t>(offset));
}

constexpr uint32_t kUnordered = 3;  // a predicate of vcmpps

// The AddressKind of a checked address register (NativeEmitter::KnownAddress).
inline asmjit::x86::Mem KindWord(uint32_t slot) {
  return asmjit::x86::dword_ptr(asmjit::x86::rsp, static_cast<int32_t>(16 * slot + 8));
}

#define DETSHARE_CONTEXT(field) ContextField(offsetof(Context, field), sizeof(Context::field))
#define DETSHARE_CONSTANT(name) ConstantAt(offsetof(NativeConstants, name))
#define DETSHARE_BROADCAST32(name) DETSHARE_CONSTANT(name)._1to16()
#define DETSHARE_BROADCAST64(name) DETSHARE_CONSTANT(name)._1to8()

}  // namespace detshare::soft::ptx
