// Textures of the software GPU, through the interface of a device.
#include "server/backends/soft/soft_images.h"

#include <cuda.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "tests/server/backends/soft/soft_device_harness.h"

namespace detshare::soft {
namespace {

// Reads the four channels of texel 0 and 1.
constexpr char kReader[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry Read(.param .u64 out, .param .u64 texture) {
  .reg .b32 %r<2>;
  .reg .f32 %f<4>;
  .reg .b64 %a, %t, %x;
  ld.param.u64 %a, [out];
  ld.param.u64 %t, [texture];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %x, %r0, 16;
  add.u64 %a, %a, %x;
  tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%t, {%r0}];
  st.global.v4.f32 [%a], {%f0, %f1, %f2, %f3};
  ret;
}
)";

class Reader {
 public:
  // Returns the channels of two texels with these bytes.
  std::vector<float> Read(TexelFormat format, uint32_t channels, const std::vector<uint8_t>& bytes,
                          const TextureSampling& sampling, const TextureView* view = nullptr) {
    ArrayDescription description;
    description.width = 2;
    description.format = static_cast<uint32_t>(format);
    description.channels = channels;
    REQUIRE(IsArray(description));
    REQUIRE(bytes.size() == 2 * description.texel_bytes());
    TextureRequest request;
    request.resource.array = Require(device_->images()->CreateArray(session_.space(), description));
    if (view != nullptr) {
      request.has_view = true;
      request.view = *view;
    }
    const SoftArray& array = static_cast<const SoftArray&>(*request.resource.array);
    std::memcpy(reinterpret_cast<void*>(array.storage()->levels()[0].address), bytes.data(),
                bytes.size());
    request.sampling = sampling;
    const std::unique_ptr<ImageObject> texture =
        Require(device_->images()->CreateTexture(session_.space(), request));
    float* const out = session_.Allocate<float>(8);
    LaunchShape shape;
    shape.grid = {1, 1, 1};
    shape.block = {2, 1, 1};
    Require(session_.queue().Launch(session_.space(), *Require(library_->GetKernel("Read")), shape,
                                    Parameters(out, texture->handle())));
    Require(session_.Finish());
    return {out, out + 8};
  }

 private:
  TestDevice device_;
  TestSession session_{device_, 0};
  const std::unique_ptr<Library> library_ = session_.Load(kReader);
};

}  // namespace

TEST_CASE("Arrays of fractions read as floats, also where integers are asked for") {
  Reader reader;
  TextureSampling sampling;
  for (const uint32_t flags : {0u, uint32_t{CU_TRSF_READ_AS_INTEGER}}) {
    sampling.flags = flags;
    CHECK(reader.Read(TexelFormat::kUnorm8x1, 1, {255, 51}, sampling) ==
          std::vector<float>{1, 0, 0, 0, 51.0f / 255, 0, 0, 0});
    CHECK(reader.Read(TexelFormat::kUnorm8x2, 2, {255, 51, 0, 1}, sampling) ==
          std::vector<float>{1, 51.0f / 255, 0, 0, 0, 1.0f / 255, 0, 0});
    CHECK(reader.Read(TexelFormat::kUnorm8x4, 4, {0, 255, 51, 1, 255, 0, 0, 255}, sampling) ==
          std::vector<float>{0, 1, 51.0f / 255, 1.0f / 255, 1, 0, 0, 1});
    CHECK(reader.Read(TexelFormat::kUnorm16x1, 1, {0xff, 0xff, 1, 0}, sampling) ==
          std::vector<float>{1, 0, 0, 0, 1.0f / 65535, 0, 0, 0});
    CHECK(reader.Read(TexelFormat::kSnorm8x1, 1, {0x80, 0x7f}, sampling) ==
          std::vector<float>{-1, 0, 0, 0, 1, 0, 0, 0});
    CHECK(reader.Read(TexelFormat::kSnorm8x4, 4, {1, 0xff, 0x81, 0, 0, 0, 0, 0x7f}, sampling) ==
          std::vector<float>{1.0f / 127, -1.0f / 127, -1, 0, 0, 0, 0, 1});
    CHECK(reader.Read(TexelFormat::kSnorm16x2, 2, {0xff, 0x7f, 0, 0x80, 1, 0, 0xff, 0xff},
                      sampling) ==
          std::vector<float>{1, -1, 0, 0, 1.0f / 32767, -1.0f / 32767, 0, 0});
    CHECK(reader.Read(TexelFormat::kSnorm16x4, 4, std::vector<uint8_t>(16, 0), sampling) ==
          std::vector<float>(8, 0));
  }
}

TEST_CASE("A view of an array of fractions may read its integers") {
  Reader reader;
  TextureSampling sampling;
  sampling.flags = CU_TRSF_READ_AS_INTEGER;
  TextureView view;
  view.format = CU_RES_VIEW_FORMAT_UINT_1X8;
  view.width = 2;
  const std::vector<float> read =
      reader.Read(TexelFormat::kUnorm8x1, 1, {255, 51}, sampling, &view);
  CHECK(std::bit_cast<uint32_t>(read[0]) == 255);
  CHECK(std::bit_cast<uint32_t>(read[4]) == 51);
}

}  // namespace detshare::soft
