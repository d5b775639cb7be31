// Textures and surfaces: sampling by CUDA's rules, and the instructions for it.
#include "server/backends/soft/ptx/texture.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "tests/server/backends/soft/ptx/ptx_harness.h"

namespace detshare::soft::ptx {
namespace {

using testing::Config;
using testing::Memory;
using testing::Params;
using testing::Program;
using testing::Result;

template <typename T>
Image ImageOf(const std::vector<T>& texels, TexelFormat format, uint32_t channels, uint32_t width,
              uint32_t height = 1, uint32_t slices = 1) {
  Image image;
  image.format = format;
  image.channels = channels;
  ImageLevel level;
  level.address = reinterpret_cast<uint64_t>(texels.data());
  level.width = width;
  level.height = height;
  level.slices = slices;
  level.row_pitch = uint64_t{width} * image.texel_bytes();
  level.slice_pitch = level.row_pitch * height;
  REQUIRE(level.slice_pitch * slices == texels.size() * sizeof(T));
  image.levels = {level};
  return image;
}

const uint8_t* NoTenantMemory(uint64_t, uint64_t) { return nullptr; }

SamplePoint At(Geometry geometry, float x, float y = 0, float z = 0) {
  SamplePoint point;
  point.geometry = geometry;
  point.position = {x, y, z};
  return point;
}

Texel Bits(const Texture& texture, const SamplePoint& point) {
  Texel texel{};
  REQUIRE(Sample(texture, point, NoTenantMemory, &texel));
  return texel;
}
float Value(const Texture& texture, const SamplePoint& point) {
  return std::bit_cast<float>(Bits(texture, point)[0]);
}

TEST_CASE("Each address mode selects the texel that CUDA documents") {
  const std::vector<float> texels{10, 11, 12, 13};
  Texture t{ImageOf(texels, TexelFormat::kF32, 1, 4), {}};
  t.sampler.border = {7, 0, 0, 0};
  const auto read = [&](AddressMode mode, bool normalized, float x) {
    t.sampler.modes.fill(mode);
    t.sampler.normalized_coordinates = normalized;
    return Value(t, At(Geometry::k1d, x));
  };
  CHECK(read(AddressMode::kClamp, false, -3.0f) == 10);
  CHECK(read(AddressMode::kClamp, false, 2.9f) == 12);
  CHECK(read(AddressMode::kClamp, false, 40.0f) == 13);
  CHECK(read(AddressMode::kBorder, false, -0.1f) == 7);
  CHECK(read(AddressMode::kBorder, false, 4.0f) == 7);
  CHECK(read(AddressMode::kBorder, false, 3.9f) == 13);
  CHECK(read(AddressMode::kWrap, true, 1.25f) == 11);
  CHECK(read(AddressMode::kWrap, true, -0.25f) == 13);
  CHECK(read(AddressMode::kMirror, true, 1.0f) == 13);
  CHECK(read(AddressMode::kMirror, true, 1.75f) == 10);
  CHECK(read(AddressMode::kMirror, true, 2.25f) == 11);
  CHECK(read(AddressMode::kMirror, true, -0.25f) == 10);
  // Without normalised coordinates wrapping clamps.
  CHECK(read(AddressMode::kWrap, false, 5.0f) == 13);
  CHECK(read(AddressMode::kMirror, false, -2.0f) == 10);
  // No coordinate leads out of the image.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK(read(AddressMode::kClamp, false, kInfinity) == 13);
  CHECK(read(AddressMode::kWrap, true, -kInfinity) >= 10);
  CHECK(read(AddressMode::kMirror, true, std::nanf("")) == 10);
  CHECK(read(AddressMode::kClamp, true, 1e38f) == 13);
}

TEST_CASE("Linear filtering weighs the neighbours by fractions of 8 bits") {
  const std::vector<float> texels{0, 256, 512, 1024};
  Texture t{ImageOf(texels, TexelFormat::kF32, 1, 2, 2), {}};
  t.sampler.modes.fill(AddressMode::kClamp);
  t.sampler.linear = true;
  CHECK(Value(t, At(Geometry::k2d, 0.5f, 0.5f)) == 0);
  CHECK(Value(t, At(Geometry::k2d, 1.0f, 0.5f)) == 128);
  CHECK(Value(t, At(Geometry::k2d, 1.0f, 1.0f)) == 448);
  CHECK(Value(t, At(Geometry::k2d, 0.75f, 1.25f)) == 496);
  CHECK(Value(t, At(Geometry::k2d, 0.5f + 1 / 256.0f, 0.5f)) == 1);
  // The weight is rounded to the nearest step.
  CHECK(Value(t, At(Geometry::k2d, 0.5f + 1.4f / 256, 0.5f)) == 1);
  CHECK(Value(t, At(Geometry::k2d, 0.5f + 1.6f / 256, 0.5f)) == 2);
  CHECK(Value(t, At(Geometry::k2d, -5.0f, -5.0f)) == 0);
  t.sampler.modes.fill(AddressMode::kBorder);
  CHECK(Value(t, At(Geometry::k2d, 2.0f, 2.0f)) == 256);
  t.sampler.modes.fill(AddressMode::kWrap);
  t.sampler.normalized_coordinates = true;
  CHECK(Value(t, At(Geometry::k2d, 0.0f, 0.25f)) == 128);
}

TEST_CASE("Integers read as fractions, as integers, or through the sRGB curve") {
  const std::vector<uint8_t> bytes{0, 255, 51, 102};
  Texture t{ImageOf(bytes, TexelFormat::kU8, 4, 1), {}};
  t.sampler.modes.fill(AddressMode::kClamp);
  Texel texel = Bits(t, At(Geometry::k1d, 0));
  CHECK(std::bit_cast<float>(texel[1]) == 1.0f);
  CHECK(std::bit_cast<float>(texel[2]) == 51.0f / 255);
  t.sampler.srgb = true;
  texel = Bits(t, At(Geometry::k1d, 0));
  CHECK(std::bit_cast<float>(texel[0]) == 0.0f);
  CHECK(std::bit_cast<float>(texel[1]) == 1.0f);
  CHECK(std::bit_cast<float>(texel[2]) == Approx(0.0331047));
  CHECK(std::bit_cast<float>(texel[3]) == 102.0f / 255);  // alpha is linear
  t.sampler.read_as_integer = true;
  CHECK(Bits(t, At(Geometry::k1d, 0)) == Texel{0, 255, 51, 102});

  t.image.normalized = true;
  t.sampler.srgb = false;
  CHECK(std::bit_cast<float>(Bits(t, At(Geometry::k1d, 0))[1]) == 1.0f);

  const std::vector<int16_t> shorts{-32768, 32767, -5, 0};
  Texture s{ImageOf(shorts, TexelFormat::kS16, 2, 2), {}};
  s.sampler.modes.fill(AddressMode::kClamp);
  CHECK(std::bit_cast<float>(Bits(s, At(Geometry::k1d, 0))[0]) == -1.0f);
  CHECK(std::bit_cast<float>(Bits(s, At(Geometry::k1d, 0))[1]) == 1.0f);
  s.sampler.read_as_integer = true;
  CHECK(Bits(s, At(Geometry::k1d, 1)) == Texel{static_cast<uint32_t>(-5), 0, 0, 0});
}

TEST_CASE("Layers are clamped, and cubes choose the face of the longest axis") {
  std::vector<float> texels(12);
  for (size_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<float>(i);
  Texture t{ImageOf(texels, TexelFormat::kF32, 1, 1, 1, 12), {}};
  t.image.layered = true;
  t.sampler.modes.fill(AddressMode::kClamp);
  SamplePoint point = At(Geometry::kLayered2d, 0, 0);
  for (const auto& [layer, value] : std::map<uint32_t, float>{{0, 0}, {7, 7}, {11, 11}, {99, 11}}) {
    point.layer = layer;
    CHECK(Value(t, point) == value);
  }
  t.image.cubemap = true;
  CHECK(Value(t, At(Geometry::kCube, 1, 0.5f, 0)) == 0);
  CHECK(Value(t, At(Geometry::kCube, -1, 0.5f, 0)) == 1);
  CHECK(Value(t, At(Geometry::kCube, 0, 2, 1)) == 2);
  CHECK(Value(t, At(Geometry::kCube, 0, -2, 1)) == 3);
  CHECK(Value(t, At(Geometry::kCube, 0, 0, 0.1f)) == 4);
  CHECK(Value(t, At(Geometry::kCube, 0, 0, -0.1f)) == 5);
  CHECK(Value(t, At(Geometry::kCube, 0, 0, 0)) == 0);
  point = At(Geometry::kLayeredCube, 0, 0, -1);
  point.layer = 1;
  CHECK(Value(t, point) == 11);
}

TEST_CASE("Levels are clamped, chosen or mixed") {
  const std::vector<float> large{1, 1, 1, 1}, small{3};
  Texture t{ImageOf(large, TexelFormat::kF32, 1, 2, 2), {}};
  t.image.levels.push_back(ImageOf(small, TexelFormat::kF32, 1, 1).levels[0]);
  t.sampler.modes.fill(AddressMode::kClamp);
  t.sampler.max_level = 10;
  SamplePoint point = At(Geometry::k2d, 0.5f, 0.5f);
  const auto at = [&](float level) {
    point.level = level;
    return Value(t, point);
  };
  CHECK(at(0.25f) == 1);
  CHECK(at(0.75f) == 3);
  CHECK(at(7) == 3);
  CHECK(at(-7) == 1);
  t.sampler.linear_between_levels = true;
  CHECK(at(0.25f) == 1.5f);
  CHECK(at(1) == 3);
  t.sampler.level_bias = 0.5f;
  CHECK(at(0.25f) == 2.5f);
  t.sampler.max_level = 0;
  CHECK(at(1) == 1);
  CHECK(LevelOfGradient(t, Geometry::k2d, {4, 0, 0}, {0, 1, 0}) == 2);
}

// ---- instructions

class Table final : public ImageTable {
 public:
  const Texture* FindTexture(uint64_t handle) const override {
    const auto found = textures.find(handle);
    return found == textures.end() ? nullptr : &found->second;
  }
  const Image* FindSurface(uint64_t handle) const override {
    const auto found = surfaces.find(handle);
    return found == surfaces.end() ? nullptr : &found->second;
  }
  std::map<uint64_t, Texture> textures;
  std::map<uint64_t, Image> surfaces;
};

constexpr char kHead[] = ".version 8.0\n.target sm_75\n.address_size 64\n";

// Returns a kernel of 32 threads. %r1 is the thread and %rd2 the handle. The body leaves the value
// to store in %f0 or %r0.
std::string Kernel(const std::string& body, const char* value) {
  return std::string(kHead) + R"(
.visible .entry k(.param .u64 out, .param .u64 image) {
  .reg .b32 %r<20>;
  .reg .b16 %h<8>;
  .reg .f32 %f<20>;
  .reg .b64 %rd<20>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [image];
  mov.u32 %r1, %tid.x;
  cvt.rn.f32.u32 %f1, %r1;
)" + body +
         R"(
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd3, %rd1, %rd3;
  st.global.b32 [%rd3], )" +
         value + ";\n  ret;\n}\n";
}

struct Fixture {
  Result Run(const std::string& text, uint64_t handle) {
    Program program(&memory, text);
    program.set_images(&table);
    return program.Run("k", Config(1, 32, Params().Add(out).Add(handle)));
  }
  Memory memory;
  Table table;
  float* const out = memory.New<float>(32);
};

TEST_CASE("tex reads by float and by integer coordinates, tld4 gathers") {
  Fixture f;
  std::vector<float> texels(64);
  for (size_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<float>(i * i);
  f.table.textures[5] = {ImageOf(texels, TexelFormat::kF32, 1, 32, 2), {}};
  f.table.textures[5].sampler.modes.fill(AddressMode::kClamp);

  CHECK(
      f.Run(Kernel("tex.2d.v4.f32.f32 {%f0, %f2, %f3, %f4}, [%rd2, {%f1, 0f3FC00000}];", "%f0"), 5)
          .fault.kind == FaultKind::kNone);
  for (int i = 0; i < 32; ++i) CHECK(f.out[i] == texels[32 + i]);

  // The results may overwrite the coordinates.
  CHECK(f.Run(Kernel("tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [%rd2, {%r1}];\n"
                     "mov.b32 %f0, %r1; mov.u32 %r1, %tid.x;",
                     "%f0"),
              5)
            .fault.kind == FaultKind::kNone);
  for (int i = 0; i < 32; ++i) CHECK(f.out[i] == texels[i]);

  CHECK(
      f.Run(Kernel("tld4.r.2d.v4.f32.f32 {%f2, %f3, %f4, %f0}, [%rd2, {%f1, 0f3F800000}];", "%f0"),
            5)
          .fault.kind == FaultKind::kNone);
  for (int i = 0; i < 32; ++i) CHECK(f.out[i] == texels[i == 0 ? 0 : i - 1]);

  CHECK(f.Run(Kernel("tex.level.2d.v4.f32.f32 {%f0, %f2, %f3, %f4}, [%rd2, {%f1, %f1}], "
                     "0f00000000, {1, 0};",
                     "%f0"),
              5)
            .fault.kind == FaultKind::kNone);
  CHECK(f.out[0] == texels[1]);
  CHECK(f.out[31] == texels[63]);

  CHECK(f.Run(Kernel("txq.width.b32 %r2, [%rd2]; txq.height.b32 %r3, [%rd2];\n"
                     "mad.lo.u32 %r2, %r2, 100, %r3;",
                     "%r2"),
              5)
            .fault.kind == FaultKind::kNone);
  CHECK(std::bit_cast<uint32_t>(f.out[3]) == 3202);
}

TEST_CASE("tex returns halves, one or two in a register") {
  Fixture f;
  const std::vector<float> texels{1, -2, 65504, 1 + 0x1p-11f + 0x1p-20f, 0.5f, 1e9f, 0x1p-24f, 3};
  f.table.textures[5] = {ImageOf(texels, TexelFormat::kF32, 4, 2), {}};
  f.table.textures[5].sampler.modes.fill(AddressMode::kClamp);
  const std::vector<uint32_t> halves{0x3c00, 0xc000, 0x7bff, 0x3c01, 0x3800, 0x7c00, 1, 0x4200};
  for (uint32_t i = 0; i < 4; ++i) {
    const std::string one = "%h" + std::to_string(i);
    REQUIRE(f.Run(Kernel("tex.1d.v4.f16.s32 {%h0, %h1, %h2, %h3}, [%rd2, {%r1}];\n"
                         "cvt.u32.u16 %r2, " +
                             one + ";",
                         "%r2"),
                  5)
                .fault.kind == FaultKind::kNone);
    for (uint32_t x = 0; x < 2; ++x) CHECK(std::bit_cast<uint32_t>(f.out[x]) == halves[x * 4 + i]);
  }
  for (uint32_t i = 0; i < 2; ++i) {
    REQUIRE(f.Run(Kernel("tex.level.1d.v2.f16x2.f32 {%r3, %r4}, [%rd2, {%f1}], 0f00000000;",
                         i == 0 ? "%r3" : "%r4"),
                  5)
                .fault.kind == FaultKind::kNone);
    for (uint32_t x = 0; x < 2; ++x)
      CHECK(std::bit_cast<uint32_t>(f.out[x]) ==
            (halves[x * 4 + 2 * i] | halves[x * 4 + 2 * i + 1] << 16));
  }
  // Integers keep their lower halves.
  const std::vector<uint16_t> integers{7, 0xffff};
  f.table.textures[6] = {ImageOf(integers, TexelFormat::kU16, 2, 1), {}};
  f.table.textures[6].sampler.read_as_integer = true;
  REQUIRE(f.Run(Kernel("tex.1d.v2.f16x2.s32 {%r3, %r4}, [%rd2, {0}];", "%r3"), 6).fault.kind ==
          FaultKind::kNone);
  CHECK(std::bit_cast<uint32_t>(f.out[0]) == 0xffff0007);
}

TEST_CASE("A texture on the tenant's memory reads accessible memory, and zero beyond its width") {
  Fixture f;
  auto* const memory = f.memory.New<float>(16);
  for (int i = 0; i < 16; ++i) memory[i] = static_cast<float>(i + 1);
  Texture texture{ImageOf(std::vector<float>(16), TexelFormat::kF32, 1, 16), {}};
  texture.image.in_tenant_memory = true;
  texture.image.levels[0].address = reinterpret_cast<uint64_t>(memory);
  texture.sampler.zero_outside = true;
  f.table.textures[9] = texture;
  const std::string fetch = Kernel("tex.1d.v4.f32.s32 {%f0, %f2, %f3, %f4}, [%rd2, {%r1}];", "%f0");
  CHECK(f.Run(fetch, 9).fault.kind == FaultKind::kNone);
  for (int i = 0; i < 32; ++i) CHECK(f.out[i] == (i < 16 ? memory[i] : 0));

  f.table.textures[9].image.levels[0].width = 17;  // wider than the memory
  const Result beyond = f.Run(fetch, 9);
  CHECK(beyond.fault.kind == FaultKind::kIllegalAddress);
  CHECK(beyond.fault.address == reinterpret_cast<uint64_t>(memory + 16));
}

TEST_CASE("suld and sust reach every texel, and the mode decides accesses outside") {
  Fixture f;
  std::vector<uint32_t> texels(32 * 2 * 2);
  f.table.surfaces[3] = ImageOf(texels, TexelFormat::kU32, 2, 16, 2, 2);
  // Thread i: texel (i % 16, i / 16, 1) of two channels.
  const std::string place = "and.b32 %r2, %r1, 15; shl.b32 %r2, %r2, 3; shr.u32 %r3, %r1, 4;\n";
  CHECK(
      f.Run(Kernel(place + "sust.b.3d.v2.b32.trap [%rd2, {%r2, %r3, 1, 0}], {%r1, 77};", "%r1"), 3)
          .fault.kind == FaultKind::kNone);
  for (uint32_t i = 0; i < 32; ++i) {
    CHECK(texels[64 + 2 * i] == i);
    CHECK(texels[64 + 2 * i + 1] == 77);
    CHECK(texels[i] == 0);
  }
  CHECK(f.Run(Kernel(place + "suld.b.3d.b64.trap %rd4, [%rd2, {%r2, %r3, 1, 0}];\n"
                             "cvt.u32.u64 %r0, %rd4;",
                     "%r0"),
              3)
            .fault.kind == FaultKind::kNone);
  for (uint32_t i = 0; i < 32; ++i) CHECK(std::bit_cast<uint32_t>(f.out[i]) == i);

  const std::string far = "shl.b32 %r2, %r1, 3;\n";  // half of the threads are outside
  CHECK(
      f.Run(Kernel(far + "suld.b.3d.b32.zero %r0, [%rd2, {%r2, 0, 1, 0}];", "%r0"), 3).fault.kind ==
      FaultKind::kNone);
  CHECK(std::bit_cast<uint32_t>(f.out[15]) == 15);
  CHECK(std::bit_cast<uint32_t>(f.out[16]) == 0);
  CHECK(f.Run(Kernel(far + "suld.b.3d.v2.b32.clamp {%r0, %r5}, [%rd2, {%r2, 0, 1, 0}];", "%r0"), 3)
            .fault.kind == FaultKind::kNone);
  CHECK(std::bit_cast<uint32_t>(f.out[31]) == 15);
  CHECK(
      f.Run(Kernel(far + "suld.b.3d.b32.trap %r0, [%rd2, {%r2, 0, 1, 0}];", "%r0"), 3).fault.kind ==
      FaultKind::kIllegalAddress);
  CHECK(f.Run(Kernel("suld.b.3d.b32.trap %r0, [%rd2, {%r1, 0, 1, 0}];", "%r0"), 3).fault.kind ==
        FaultKind::kMisalignedAddress);
  CHECK(f.Run(Kernel("suq.depth.b32 %r0, [%rd2];", "%r0"), 3).fault.kind == FaultKind::kNone);
  CHECK(std::bit_cast<uint32_t>(f.out[0]) == 2);
}

TEST_CASE("An unknown handle, or a handle of another kind, is a fault of the kernel") {
  Fixture f;
  const std::vector<float> texels(4);
  f.table.surfaces[3] = ImageOf(texels, TexelFormat::kF32, 1, 4);
  const std::string fetch = Kernel("tex.1d.v4.f32.f32 {%f0, %f2, %f3, %f4}, [%rd2, {%f1}];", "%f0");
  CHECK(f.Run(fetch, 3).fault.kind == FaultKind::kIllegalAddress);
  CHECK(f.Run(fetch, ~uint64_t{0}).fault.kind == FaultKind::kIllegalAddress);
  Program without(&f.memory, fetch);
  CHECK(without.Run("k", Config(1, 32, Params().Add(f.out).Add(uint64_t{3}))).fault.kind ==
        FaultKind::kIllegalAddress);
}

TEST_CASE("Malformed and unknown texture instructions are refused with their line") {
  for (const char* body : {
           "tex.2d.v4.f32.f32 {%f0, %f2, %f3}, [%rd2, {%f1, %f1}];",
           "tex.2d.v4.f32.f32 {%f0, %f2, %f3, %f4}, [%rd2, {%f1}];",
           "tex.2d.v4.f32.f32 {%f0, %f2, %f3, %f4}, [%rd2, {}];",
           "tex.2d.v4.f32.f32 {%f0, %f2, %f3, %f4}, [%rd2];",
           "tex.2d.v4.f32.f32 {%f0, %f2, %f3, %f4}, [%rd2+8];",
           "tex.level.2d.v4.f32.f32 {%f0, %f2, %f3, %f4}, [%rd2, {%f1, %f1}];",
           "tex.cube.v4.f32.s32 {%f0, %f2, %f3, %f4}, [%rd2, {%r1, %r1, %r1, %r1}];",
           "tex.2dms.v4.f32.s32 {%f0, %f2, %f3, %f4}, [%rd2, {%r1, %r1, %r1, %r1}];",
           "tex.1d.v2.f16.f32 {%h0, %h1}, [%rd2, {%f1}];",
           "tex.1d.v4.f16x2.f32 {%r0, %r1, %r2, %r3}, [%rd2, {%f1}];",
           "tex.1d.v2.f16x2.f32 {%r0, %r1, %r2, %r3}, [%rd2, {%f1}];",
           "tld4.r.2d.v4.f16.f32 {%h0, %h1, %h2, %h3}, [%rd2, {%f1, %f1}];",
           "tld4.x.2d.v4.f32.f32 {%f0, %f2, %f3, %f4}, [%rd2, {%f1, %f1}];",
           "sust.p.2d.b32.trap [%rd2, {%r1, %r1}], %r1;",
           "suld.b.2d.v4.b64.trap {%rd4, %rd5, %rd6, %rd7}, [%rd2, {%r1, %r1}];",
           "suld.b.2d.v2.b32.trap %r0, [%rd2, {%r1, %r1}];",
           "txq.colour.b32 %r0, [%rd2];",
           "suq.num_mipmap_levels.b32 %r0, [%rd2];",
           "ld.global.b32 %r0, [%rd2, {%r1}];",
           "ld.param.u64 %rd4, [out, {%r1}];",
       }) {
    CAPTURE(body);
    const std::string text = Kernel(body, "%r0");
    const auto module = Module::Link({std::string_view(text)});
    REQUIRE_FALSE(module.ok());
    CHECK_THAT(std::string(module.status().message()), Catch::Contains("PTX line"));
  }
}

}  // namespace
}  // namespace detshare::soft::ptx
