// Textures and surfaces in unified mode: a handle stands for image and sampler.
#include "server/backends/soft/ptx/lower.h"
#include "server/backends/soft/ptx/texture_ops.h"

namespace detshare::soft::ptx {

bool Lowering::TakeGeometry(Geometry* geometry) {
  static constexpr std::pair<std::string_view, Geometry> kNames[] = {
      {"1d", Geometry::k1d},
      {"2d", Geometry::k2d},
      {"3d", Geometry::k3d},
      {"a1d", Geometry::kLayered1d},
      {"a2d", Geometry::kLayered2d},
      {"cube", Geometry::kCube},
      {"acube", Geometry::kLayeredCube}};
  for (const auto& [name, value] : kNames) {
    if (Take(name)) {
      *geometry = value;
      return true;
    }
  }
  return false;
}

// Returns the handle in [handle, coordinates] or [handle].
int32_t Lowering::ImageHandle(const Operand& o) {
  if (o.kind != Operand::Kind::kAddress || o.base_kind != Operand::Kind::kRegister ||
      o.value != 0) {
    Fail("expected the handle of a texture or surface in a register");
    return 0;
  }
  Operand handle;
  handle.kind = Operand::Kind::kRegister;
  handle.vreg = o.vreg;
  return Source(handle, Type::kU64);
}

// Adds the registers of the coordinates in [handle, coordinates]. Skips padding.
bool Lowering::AddCoordinates(const Operand& o, Geometry geometry, Type type,
                              std::vector<int32_t>* registers) {
  const uint32_t count = CoordinateCount(geometry);
  // PTX writes three coordinates as four.
  const uint32_t written = count == 3 ? 4 : count;
  if (o.kind != Operand::Kind::kAddress || (o.child_count != count && o.child_count != written)) {
    Fail("wrong number of coordinates for '" + std::string(statement_->opcode.substr(0, 100)) +
         "'");
    return false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const bool layer = i == 0 && IsLayered(geometry);
    registers->push_back(Source(Child(o, i), layer ? Type::kB32 : type));
  }
  return ok();
}

// Adds the registers of a list. A single operand counts as a list of one element.
bool Lowering::AddList(const Operand& o, uint32_t count, Type type,
                       std::vector<int32_t>* registers) {
  if (o.kind != Operand::Kind::kList) {
    if (count == 1) registers->push_back(Source(o, type));
    if (count != 1) FailUnknown();
    return ok();
  }
  if (o.child_count < count || o.child_count > 4) {
    FailUnknown();
    return false;
  }
  for (uint32_t i = 0; i < count; ++i) registers->push_back(Source(Child(o, i), type));
  return ok();
}

void Lowering::EmitImage(ExecFn fn, int32_t handle, uint32_t aux, uint32_t results,
                         const std::vector<int32_t>& registers) {
  if (!ok()) return;
  LowInstr& low = Emit(fn, CostCounters::kGlobalMemory);
  low.in.a = handle;
  low.in.aux = aux;
  low.in.count = static_cast<uint8_t>(registers.size());
  low.in.extra = static_cast<uint32_t>(low_.extras.size());
  low.extra_defs = static_cast<uint8_t>(results);
  low_.extras.insert(low_.extras.end(), registers.begin(), registers.end());
}

// tex{.base|.level|.grad}.geometry.v4.type.type {d...}, [t, {c...}] {, level | {dx...}, {dy...}}
// {, {offsets}};  tex...v2.f16x2.type {d...}, ...;  tld4.component.2d.v4.type.f32 {d...}, [t, {c...}] {, {offsets}};
void Lowering::LowerTexture() {
  TextureAux aux;
  aux.gather = parts_[0] == "tld4";
  if (aux.gather) {
    const char* const kComponents[] = {"r", "g", "b", "a"};
    bool found = false;
    for (uint8_t i = 0; i < 4 && !found; ++i) {
      found = Take(kComponents[i]);
      aux.component = i;
    }
    if (!found) return FailUnknown();
  } else if (Take("level")) {
    aux.level = TextureAux::Level::kLevel;
  } else if (Take("grad")) {
    aux.level = TextureAux::Level::kGradient;
  } else {
    Take("base");
  }
  if (!TakeGeometry(&aux.geometry)) return FailUnknown();
  const uint32_t vector = TakeVector();
  const Type result = TakeType(), coordinate = TakeType();
  if (result == Type::kF16 && !aux.gather) {
    aux.result = TextureAux::Result::kHalf;
  } else if (result == Type::kF16x2 && !aux.gather) {
    aux.result = TextureAux::Result::kPair;
  } else if (result != Type::kF32 && result != Type::kS32 && result != Type::kU32) {
    return FailUnknown();
  }
  const uint32_t count = aux.result_count();
  if (vector != count) return FailUnknown();
  if (coordinate != Type::kF32 && (coordinate != Type::kS32 || aux.gather)) return FailUnknown();
  aux.integer = coordinate == Type::kS32;
  if (aux.integer && (IsCube(aux.geometry) || aux.level == TextureAux::Level::kGradient))
    return FailUnknown();
  const size_t wanted = aux.level == TextureAux::Level::kNone    ? 2
                        : aux.level == TextureAux::Level::kLevel ? 3
                                                                 : 4;
  if (!AllUsed() || !NeedOperands(2, wanted + 1)) return;
  if (OpCount() < wanted || Op(0).kind != Operand::Kind::kList || Op(0).child_count != count)
    return FailUnknown();
  aux.offset = OpCount() == wanted + 1;

  std::vector<int32_t> registers;
  for (uint32_t i = 0; i < count; ++i) registers.push_back(Destination(Child(Op(0), i), result));
  const int32_t handle = ImageHandle(Op(1));
  if (!AddCoordinates(Op(1), aux.geometry, coordinate, &registers)) return;
  const uint32_t dimensions = Dimensions(aux.geometry);
  if (aux.level == TextureAux::Level::kLevel) registers.push_back(Source(Op(2), coordinate));
  if (aux.level == TextureAux::Level::kGradient &&
      (!AddList(Op(2), dimensions, Type::kF32, &registers) ||
       !AddList(Op(3), dimensions, Type::kF32, &registers))) {
    return;
  }
  if (aux.offset) {
    // An operand that is not a list is a depth to compare with, which is not supported.
    if (IsCube(aux.geometry) || Op(wanted).kind != Operand::Kind::kList) return FailUnknown();
    if (!AddList(Op(wanted), dimensions, Type::kS32, &registers)) return;
  }
  EmitImage(ExecTexture, handle, aux.Pack(), count, registers);
}

// suld.b.geometry.vec.type.outside d, [s, {c...}];  sust.b.geometry.vec.type.outside [s, {c...}],
// a;
void Lowering::LowerSurface() {
  const bool load = parts_[0] == "suld";
  if (!Take("b")) return FailUnknown();
  TextureAux aux;
  if (!TakeGeometry(&aux.geometry) || IsCube(aux.geometry)) return FailUnknown();
  TakeCacheHints();
  aux.vector = static_cast<uint8_t>(TakeVector());
  const Type type = TakeType();
  if (type != Type::kB8 && type != Type::kB16 && type != Type::kB32 && type != Type::kB64)
    return FailUnknown();
  aux.element_bytes = static_cast<uint8_t>(SizeOf(type));
  if (aux.vector * aux.element_bytes > 16) return FailUnknown();
  if (Take("clamp")) {
    aux.outside = TextureAux::Outside::kClamp;
  } else if (Take("zero")) {
    aux.outside = TextureAux::Outside::kZero;
  } else if (!Take("trap")) {
    return FailUnknown();
  }
  if (!AllUsed() || !NeedOperands(2, 2)) return;
  const Operand& place = Op(load ? 1 : 0);
  const Operand& values = Op(load ? 0 : 1);
  const bool list = values.kind == Operand::Kind::kList;
  if (list ? values.child_count != aux.vector : aux.vector != 1) return FailUnknown();

  std::vector<int32_t> registers;
  for (uint32_t i = 0; load && i < aux.vector; ++i)
    registers.push_back(Destination(list ? Child(values, i) : values, type));
  const int32_t handle = ImageHandle(place);
  if (!AddCoordinates(place, aux.geometry, Type::kB32, &registers)) return;
  for (uint32_t i = 0; !load && i < aux.vector; ++i)
    registers.push_back(Source(list ? Child(values, i) : values, type));
  EmitImage(load ? ExecSurfaceLoad : ExecSurfaceStore, handle, aux.Pack(), load ? aux.vector : 0,
            registers);
}

// txq{.level}.property.b32 d, [t]{, level};  suq.property.b32 d, [s];
void Lowering::LowerImageQuery() {
  static constexpr std::pair<std::string_view, ImageQuery> kNames[] = {
      {"width", ImageQuery::kWidth},
      {"height", ImageQuery::kHeight},
      {"depth", ImageQuery::kDepth},
      {"array_size", ImageQuery::kArraySize},
      {"num_mipmap_levels", ImageQuery::kLevels},
      {"normalized_coords", ImageQuery::kNormalizedCoordinates}};
  const bool surface = parts_[0] == "suq";
  const bool level = !surface && Take("level");
  for (const auto& [name, query] : kNames) {
    if (!Take(name)) continue;
    if (surface && (query == ImageQuery::kLevels || query == ImageQuery::kNormalizedCoordinates))
      break;
    if (TakeType() != Type::kB32 || !AllUsed() || !NeedOperands(level ? 3 : 2, level ? 3 : 2))
      return FailUnknown();
    const int32_t handle = ImageHandle(Op(1));
    const int32_t b = level ? Source(Op(2), Type::kB32) : kNoOperand;
    const int32_t d = Destination(Op(0), Type::kB32);
    if (!ok()) return;
    LowInstr& low = Emit(ExecImageQuery, CostCounters::kGlobalMemory);
    low.in.d = d;
    low.in.a = handle;
    low.in.b = b;
    low.in.aux = static_cast<uint32_t>(query) | (surface ? 1u << 8 : 0);
    return;
  }
  FailUnknown();
}

}  // namespace detshare::soft::ptx
