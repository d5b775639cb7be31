#include "server/backends/soft/ptx/types.h"

#include <iterator>

namespace detshare::soft::ptx {
namespace {

struct NamedType {
  const char* name;
  Type type;
};

constexpr NamedType kNames[] = {
    {"pred", Type::kPred},     {"b8", Type::kB8},       {"b16", Type::kB16},
    {"b32", Type::kB32},       {"b64", Type::kB64},     {"b128", Type::kB128},
    {"u8", Type::kU8},         {"u16", Type::kU16},     {"u32", Type::kU32},
    {"u64", Type::kU64},       {"s8", Type::kS8},       {"s16", Type::kS16},
    {"s32", Type::kS32},       {"s64", Type::kS64},     {"f16", Type::kF16},
    {"f16x2", Type::kF16x2},   {"bf16", Type::kBF16},   {"bf16x2", Type::kBF16x2},
    {"f32", Type::kF32},       {"f64", Type::kF64},     {"tf32", Type::kTF32},
    {"e4m3", Type::kE4M3},     {"e5m2", Type::kE5M2},   {"e4m3x2", Type::kE4M3x2},
    {"e5m2x2", Type::kE5M2x2}, {"u4", Type::kU4},       {"s4", Type::kS4},
    {"b1", Type::kB1},         {"u16x2", Type::kU16x2}, {"s16x2", Type::kS16x2},
};

}  // namespace

Type TypeFromName(std::string_view name) {
  for (const NamedType& n : kNames) {
    if (name == n.name) return n.type;
  }
  return Type::kNone;
}

const char* TypeName(Type type) {
  for (const NamedType& n : kNames) {
    if (type == n.type) return n.name;
  }
  return "none";
}

}  // namespace detshare::soft::ptx
