// PTX scalar types and state spaces.
#pragma once

#include <cstdint>
#include <string_view>

namespace detshare::soft::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBF16,
  kBF16x2,
  kF32,
  kF64,
  kU16x2,
  kS16x2,
  kTF32,
  kE4M3,
  kE5M2,
  kE4M3x2,
  kE5M2x2,
  kU4,
  kS4,
  kB1,  // matrix operands only
};

// Returns kNone when `name` (without the dot) is not a type.
Type TypeFromName(std::string_view name);
const char* TypeName(Type type);

// The bytes of a value in memory; 0 for predicates and sub-byte types.
constexpr uint32_t SizeOf(Type type) {
  switch (type) {
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
    case Type::kE4M3:
    case Type::kE5M2:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBF16:
    case Type::kE4M3x2:
    case Type::kE5M2x2:
      return 2;
    case Type::kB32:
    case Type::kU32:
    case Type::kS32:
    case Type::kF16x2:
    case Type::kBF16x2:
    case Type::kF32:
    case Type::kTF32:
    case Type::kU16x2:
    case Type::kS16x2:
      return 4;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    case Type::kB128:
      return 16;
    default:
      return 0;
  }
}

constexpr bool IsSigned(Type t) {
  return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64;
}
constexpr bool IsUnsigned(Type t) {
  return t == Type::kU8 || t == Type::kU16 || t == Type::kU32 || t == Type::kU64;
}
constexpr bool IsBits(Type t) {
  return t == Type::kB8 || t == Type::kB16 || t == Type::kB32 || t == Type::kB64 ||
         t == Type::kB128;
}
constexpr bool IsFloat(Type t) {
  return t == Type::kF16 || t == Type::kF16x2 || t == Type::kBF16 || t == Type::kBF16x2 ||
         t == Type::kF32 || t == Type::kF64;
}
constexpr bool IsInteger(Type t) { return IsSigned(t) || IsUnsigned(t) || IsBits(t); }

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kConst, kParam, kReg };

// How a register is stored for the 32 lanes of a warp. Values of up to 32 bits have 32-bit lanes; a
// predicate is one mask.
enum class RegClass : uint8_t { kPred, k32, k64, k128 };

constexpr RegClass ClassOf(Type type) {
  if (type == Type::kPred) return RegClass::kPred;
  switch (SizeOf(type)) {
    case 8:
      return RegClass::k64;
    case 16:
      return RegClass::k128;
    default:
      return RegClass::k32;
  }
}

}  // namespace detshare::soft::ptx
