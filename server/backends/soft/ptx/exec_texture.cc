#include <algorithm>
#include <bit>
#include <cstring>

#include "server/backends/soft/ptx/half.h"
#include "server/backends/soft/ptx/memory_access.h"
#include "server/backends/soft/ptx/texture_ops.h"

namespace detshare::soft::ptx {
namespace {

const ImageTable* Images(const Context& c) { return c.unit->launch->services.images; }

// Finds the texture of a handle. It keeps the last one, because most lanes have the same handle.
class TextureFinder {
 public:
  explicit TextureFinder(const ImageTable* table) : table_(table) {}
  const Texture* Find(uint64_t handle) {
    if (table_ == nullptr) return nullptr;
    if (found_ == nullptr || handle != handle_) found_ = table_->FindTexture(handle);
    handle_ = handle;
    return found_;
  }

 private:
  const ImageTable* const table_;
  const Texture* found_ = nullptr;
  uint64_t handle_ = 0;
};

class SurfaceFinder {
 public:
  explicit SurfaceFinder(const ImageTable* table) : table_(table) {}
  const Image* Find(uint64_t handle) {
    if (table_ == nullptr) return nullptr;
    if (found_ == nullptr || handle != handle_) found_ = table_->FindSurface(handle);
    handle_ = handle;
    return found_;
  }

 private:
  const ImageTable* const table_;
  const Image* found_ = nullptr;
  uint64_t handle_ = 0;
};

// Returns the bytes of a lane's surface access; null when they are outside.
uint8_t* SurfacePlace(const Image& image, const TextureAux& aux, std::array<int64_t, 3> at,
                      uint64_t layer) {
  const ImageLevel& level = image.levels[0];
  const int64_t bytes = int64_t{aux.element_bytes} * aux.vector;
  const int64_t row_bytes = int64_t{level.width} * image.texel_bytes();
  const bool planes = aux.geometry == Geometry::k3d;
  std::array<int64_t, 3> last{row_bytes - bytes, int64_t{level.height} - 1,
                              int64_t{level.slices} - 1};
  if (last[0] < 0) return nullptr;
  if (IsLayered(aux.geometry)) at[2] = static_cast<int64_t>(layer);
  const uint32_t dimensions = Dimensions(aux.geometry);
  for (uint32_t d = 0; d < 3; ++d) {
    if (d >= dimensions && !(d == 2 && IsLayered(aux.geometry))) {
      at[d] = 0;
      continue;
    }
    if (at[d] >= 0 && at[d] <= last[d]) continue;
    // A layer out of range becomes the nearest layer in every mode.
    if (aux.outside != TextureAux::Outside::kClamp && (d < 2 || planes)) return nullptr;
    at[d] = at[d] < 0 ? 0 : last[d];
  }
  return reinterpret_cast<uint8_t*>(level.address) +
         static_cast<uint64_t>(at[2]) * level.slice_pitch +
         static_cast<uint64_t>(at[1]) * level.row_pitch + static_cast<uint64_t>(at[0]);
}

// Calls f(lane, memory or null) for each lane. Returns false when a lane's handle is unknown, or
// when a lane accesses a place outside and that is an error.
template <class F>
bool ForEachPlace(Context& c, const Instr& in, uint32_t mask, const TextureAux& aux,
                  const int32_t* coordinates, F f) {
  SurfaceFinder finder(Images(c));
  const uint64_t* const handles = c.Src<uint64_t>(in.a);
  const uint32_t* registers[4];
  const uint32_t count = CoordinateCount(aux.geometry);
  for (uint32_t i = 0; i < count; ++i) registers[i] = c.Src<uint32_t>(coordinates[i]);
  const uint32_t skip = IsLayered(aux.geometry) ? 1 : 0;
  const uint64_t bytes = uint64_t{aux.element_bytes} * aux.vector;
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const uint32_t lane = FirstLane(m);
    const Image* const image = finder.Find(handles[lane]);
    if (image == nullptr) {
      RaiseFault(c, in, FaultKind::kIllegalAddress, handles[lane], lane);
      return false;
    }
    std::array<int64_t, 3> at{};
    for (uint32_t d = 0; d + skip < count; ++d)
      at[d] = static_cast<int32_t>(registers[d + skip][lane]);
    if (static_cast<uint64_t>(at[0]) % bytes != 0) {
      RaiseFault(c, in, FaultKind::kMisalignedAddress, static_cast<uint64_t>(at[0]), lane);
      return false;
    }
    uint8_t* const memory = SurfacePlace(*image, aux, at, skip == 0 ? 0 : registers[0][lane]);
    if (memory == nullptr && aux.outside == TextureAux::Outside::kTrap) {
      RaiseFault(c, in, FaultKind::kIllegalAddress, static_cast<uint64_t>(at[0]), lane);
      return false;
    }
    f(lane, memory);
  }
  return true;
}

uint64_t LoadElement(const uint8_t* memory, uint32_t bytes) {
  const uint64_t p = reinterpret_cast<uint64_t>(memory);
  switch (bytes) {
    case 1:
      return LoadRelaxed<uint8_t>(p);
    case 2:
      return LoadRelaxed<uint16_t>(p);
    case 4:
      return LoadRelaxed<uint32_t>(p);
    default:
      return LoadRelaxed<uint64_t>(p);
  }
}

void StoreElement(uint8_t* memory, uint32_t bytes, uint64_t value) {
  const uint64_t p = reinterpret_cast<uint64_t>(memory);
  switch (bytes) {
    case 1:
      return StoreRelaxed<uint8_t>(p, static_cast<uint8_t>(value));
    case 2:
      return StoreRelaxed<uint16_t>(p, static_cast<uint16_t>(value));
    case 4:
      return StoreRelaxed<uint32_t>(p, static_cast<uint32_t>(value));
    default:
      return StoreRelaxed<uint64_t>(p, value);
  }
}

}  // namespace

void ExecTexture(Context& c, const Instr& in, uint32_t mask) {
  const TextureAux aux = TextureAux::Unpack(in.aux);
  const int32_t* next = c.frame->function->extras.data() + in.extra;
  uint32_t* results[4];
  for (uint32_t i = 0; i < aux.result_count(); ++i) results[i] = c.Dst<uint32_t>(*next++);
  const uint64_t* const handles = c.Src<uint64_t>(in.a);
  const uint32_t dimensions = Dimensions(aux.geometry);
  const auto take = [&](bool wanted) { return wanted ? c.Src<uint32_t>(*next++) : nullptr; };
  const uint32_t* const layers = take(IsLayered(aux.geometry));
  const uint32_t *coordinates[3], *levels = nullptr, *dx[3] = {}, *dy[3] = {}, *offsets[3] = {};
  for (uint32_t d = 0; d < dimensions; ++d) coordinates[d] = take(true);
  levels = take(aux.level == TextureAux::Level::kLevel);
  const bool gradient = aux.level == TextureAux::Level::kGradient;
  for (uint32_t d = 0; d < dimensions; ++d) dx[d] = take(gradient);
  for (uint32_t d = 0; d < dimensions; ++d) dy[d] = take(gradient);
  for (uint32_t d = 0; d < dimensions; ++d) offsets[d] = take(aux.offset);

  TextureFinder finder(Images(c));
  Texel texels[kLanes];
  uint64_t bytes = 0;
  const auto read = [&](uint64_t address, uint64_t size) -> const uint8_t* {
    return Allowed(c, address, size, false) ? reinterpret_cast<const uint8_t*>(address) : nullptr;
  };
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const uint32_t lane = FirstLane(m);
    const Texture* const texture = finder.Find(handles[lane]);
    if (texture == nullptr)
      return RaiseFault(c, in, FaultKind::kIllegalAddress, handles[lane], lane);
    SamplePoint point;
    point.geometry = aux.geometry;
    point.integer = aux.integer;
    if (layers != nullptr) point.layer = layers[lane];
    for (uint32_t d = 0; d < dimensions; ++d) {
      if (aux.integer) {
        point.index[d] = static_cast<int32_t>(coordinates[d][lane]);
      } else {
        point.position[d] = std::bit_cast<float>(coordinates[d][lane]);
      }
      if (aux.offset) point.offset[d] = static_cast<int32_t>(offsets[d][lane]);
    }
    if (levels != nullptr) {
      point.level = aux.integer ? static_cast<float>(static_cast<int32_t>(levels[lane]))
                                : std::bit_cast<float>(levels[lane]);
    } else if (gradient) {
      std::array<float, 3> x{}, y{};
      for (uint32_t d = 0; d < dimensions; ++d) {
        x[d] = std::bit_cast<float>(dx[d][lane]);
        y[d] = std::bit_cast<float>(dy[d][lane]);
      }
      point.level = LevelOfGradient(*texture, aux.geometry, x, y);
    }
    const bool done = aux.gather ? Gather(*texture, point, aux.component, read, &texels[lane])
                                 : Sample(*texture, point, read, &texels[lane]);
    if (!done) {
      const uint64_t address = texels[lane][0] | uint64_t{texels[lane][1]} << 32;
      return RaiseFault(c, in, FaultKind::kIllegalAddress, address, lane);
    }
    if (aux.result != TextureAux::Result::kWord && !ReadsIntegers(*texture)) {
      for (uint32_t& channel : texels[lane]) channel = FloatToHalf(std::bit_cast<float>(channel));
    }
    bytes += texture->image.texel_bytes();
  }
  // The register of a result may also be that of a coordinate.
  ForEachLane(mask, [&](uint32_t lane) {
    for (uint32_t i = 0; i < aux.result_count(); ++i) {
      const Texel& texel = texels[lane];
      switch (aux.result) {
        case TextureAux::Result::kWord:
          results[i][lane] = texel[i];
          break;
        case TextureAux::Result::kHalf:
          results[i][lane] = texel[i] & 0xffff;
          break;
        case TextureAux::Result::kPair:
          results[i][lane] = (texel[2 * i] & 0xffff) | texel[2 * i + 1] << 16;
          break;
      }
    }
  });
  c.counters->global_bytes_read += bytes;
  c.counters->global_sectors += (bytes + 31) / 32;
}

void ExecSurfaceLoad(Context& c, const Instr& in, uint32_t mask) {
  const TextureAux aux = TextureAux::Unpack(in.aux);
  const int32_t* const registers = c.frame->function->extras.data() + in.extra;
  uint64_t values[kLanes][4];
  const bool done = ForEachPlace(
      c, in, mask, aux, registers + aux.vector, [&](uint32_t lane, const uint8_t* memory) {
        for (uint32_t i = 0; i < aux.vector; ++i)
          values[lane][i] = memory == nullptr
                                ? 0
                                : LoadElement(memory + i * aux.element_bytes, aux.element_bytes);
      });
  if (!done) return;
  for (uint32_t i = 0; i < aux.vector; ++i) {
    if (aux.element_bytes == 8) {
      uint64_t* const d = c.Dst<uint64_t>(registers[i]);
      ForEachLane(mask, [&](uint32_t lane) { d[lane] = values[lane][i]; });
    } else {
      uint32_t* const d = c.Dst<uint32_t>(registers[i]);
      ForEachLane(mask, [&](uint32_t lane) { d[lane] = static_cast<uint32_t>(values[lane][i]); });
    }
  }
  const uint64_t bytes = uint64_t{LaneCount(mask)} * aux.element_bytes * aux.vector;
  c.counters->global_bytes_read += bytes;
  c.counters->global_sectors += (bytes + 31) / 32;
}

void ExecSurfaceStore(Context& c, const Instr& in, uint32_t mask) {
  const TextureAux aux = TextureAux::Unpack(in.aux);
  const int32_t* const registers = c.frame->function->extras.data() + in.extra;
  const int32_t* const values = registers + CoordinateCount(aux.geometry);
  const bool done = ForEachPlace(c, in, mask, aux, registers, [&](uint32_t lane, uint8_t* memory) {
    if (memory == nullptr) return;
    for (uint32_t i = 0; i < aux.vector; ++i) {
      const uint64_t value = aux.element_bytes == 8 ? c.Src<uint64_t>(values[i])[lane]
                                                    : c.Src<uint32_t>(values[i])[lane];
      StoreElement(memory + i * aux.element_bytes, aux.element_bytes, value);
    }
  });
  if (!done) return;
  const uint64_t bytes = uint64_t{LaneCount(mask)} * aux.element_bytes * aux.vector;
  c.counters->global_bytes_written += bytes;
  c.counters->global_sectors += (bytes + 31) / 32;
}

void ExecImageQuery(Context& c, const Instr& in, uint32_t mask) {
  const auto query = static_cast<ImageQuery>(in.aux & 0xff);
  const bool surface = (in.aux >> 8 & 1) != 0;
  const ImageTable* const table = Images(c);
  const uint64_t* const handles = c.Src<uint64_t>(in.a);
  const uint32_t* const levels = in.b == kNoOperand ? nullptr : c.Src<uint32_t>(in.b);
  uint32_t* const d = c.Dst<uint32_t>(in.d);
  uint32_t results[kLanes];
  for (uint32_t m = mask; m != 0; m &= m - 1) {
    const uint32_t lane = FirstLane(m);
    const Texture* const texture =
        table == nullptr || surface ? nullptr : table->FindTexture(handles[lane]);
    const Image* const image = texture != nullptr             ? &texture->image
                               : table == nullptr || !surface ? nullptr
                                                              : table->FindSurface(handles[lane]);
    if (image == nullptr) return RaiseFault(c, in, FaultKind::kIllegalAddress, handles[lane], lane);
    const uint32_t last = static_cast<uint32_t>(image->levels.size()) - 1;
    const ImageLevel& level = image->levels[levels == nullptr ? 0 : std::min(levels[lane], last)];
    const bool layered = image->layered || image->cubemap;
    switch (query) {
      case ImageQuery::kWidth:
        results[lane] = level.width;
        break;
      case ImageQuery::kHeight:
        results[lane] = level.height;
        break;
      case ImageQuery::kDepth:
        results[lane] = layered ? 1 : level.slices;
        break;
      case ImageQuery::kArraySize:
        results[lane] = layered ? level.slices : 1;
        break;
      case ImageQuery::kLevels:
        results[lane] = last + 1;
        break;
      case ImageQuery::kNormalizedCoordinates:
        results[lane] = texture->sampler.normalized_coordinates ? 1 : 0;
        break;
    }
  }
  ForEachLane(mask, [&](uint32_t lane) { d[lane] = results[lane]; });
}

}  // namespace detshare::soft::ptx
