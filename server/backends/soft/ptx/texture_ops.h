// Texture and surface instructions.
#pragma once

#include "server/backends/soft/ptx/instr.h"
#include "server/backends/soft/ptx/texture.h"

namespace detshare::soft::ptx {

// Instr fields: a is the handle (64-bit lanes). extra/count are the registers: the results, the
// coordinates (the layer first), and then the instruction's other operands. aux: TextureAux.
struct TextureAux {
  // For all instructions with coordinates.
  Geometry geometry = Geometry::k2d;
  // For textures.
  enum class Level : uint8_t { kNone, kLevel, kGradient } level = Level::kNone;
  bool integer = false;  // coordinates are s32
  bool offset = false;   // a texel offset for each dimension follows
  bool gather = false;   // tld4 of `component`
  uint8_t component = 0;
  // What the registers of the results have: 32 bits, a half each, or two halves each.
  enum class Result : uint8_t { kWord, kHalf, kPair } result = Result::kWord;
  // For surfaces.
  enum class Outside : uint8_t { kTrap, kClamp, kZero } outside = Outside::kTrap;
  uint8_t element_bytes = 4;
  uint8_t vector = 1;

  uint32_t Pack() const {
    return static_cast<uint32_t>(geometry) | static_cast<uint32_t>(level) << 3 |
           uint32_t{integer} << 5 | uint32_t{offset} << 6 | uint32_t{gather} << 7 |
           uint32_t{component} << 8 | static_cast<uint32_t>(outside) << 10 |
           uint32_t{element_bytes} << 12 | uint32_t{vector} << 16 |
           static_cast<uint32_t>(result) << 24;
  }
  static TextureAux Unpack(uint32_t bits) {
    TextureAux aux;
    aux.geometry = static_cast<Geometry>(bits & 7);
    aux.level = static_cast<Level>(bits >> 3 & 3);
    aux.integer = (bits >> 5 & 1) != 0;
    aux.offset = (bits >> 6 & 1) != 0;
    aux.gather = (bits >> 7 & 1) != 0;
    aux.component = bits >> 8 & 3;
    aux.outside = static_cast<Outside>(bits >> 10 & 3);
    aux.element_bytes = bits >> 12 & 15;
    aux.vector = static_cast<uint8_t>(bits >> 16);
    aux.result = static_cast<Result>(bits >> 24 & 3);
    return aux;
  }
  uint32_t result_count() const { return result == Result::kPair ? 2 : 4; }
};

// The number of registers of coordinates: with the layer, without padding.
constexpr uint32_t CoordinateCount(Geometry g) { return Dimensions(g) + (IsLayered(g) ? 1 : 0); }

enum class ImageQuery : uint8_t {
  kWidth,
  kHeight,
  kDepth,
  kArraySize,
  kLevels,
  kNormalizedCoordinates
};

void ExecTexture(Context& c, const Instr& in, uint32_t mask);       // tex, tld4
void ExecSurfaceLoad(Context& c, const Instr& in, uint32_t mask);   // `vector` results
void ExecSurfaceStore(Context& c, const Instr& in, uint32_t mask);  // `vector` values at the end
// d = a property of image a. aux is the ImageQuery; its bit 8 is set for a surface. b: the level,
// or kNoOperand.
void ExecImageQuery(Context& c, const Instr& in, uint32_t mask);

}  // namespace detshare::soft::ptx
