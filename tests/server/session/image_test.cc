// Arrays, textures and surfaces. A session reaches only its own memory, and an array lasts as long
// as the objects that read it.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>

#include "proto/wire/array.h"
#include "proto/wire/context.h"
#include "proto/wire/virtual_memory.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/instant_device.h"
#include "tests/server/instant_images.h"

namespace detshare {
namespace {

using Strings = std::vector<std::string>;
constexpr uint32_t kFloat = 0x20, kByte = 1;
constexpr int kInvalid = kCudaErrorInvalidValue;

struct ImageFixture {
  explicit ImageFixture(const std::function<void(Daemon::Options&)>& change = {})
      : daemon(change), client(daemon.socket()), neighbour(daemon.socket()) {
    daemon.devices[0]->image_device = &images;
    for (TestClient* each : {&client, &neighbour}) {
      REQUIRE(each->Open());
      each->CreateStream(1);
    }
  }
  ArrayId Create(wire::cuArray3DCreate_v2 args, int* result = nullptr) {
    return CreateBy(client, args, result);
  }
  ArrayId CreateBy(TestClient& by, wire::cuArray3DCreate_v2 args, int* result = nullptr) {
    wire::cuArray3DCreate_v2_Reply reply{};
    const int got = by.ring->Call(Op::cuArray3DCreate_v2, args, &reply);
    if (result != nullptr) *result = got;
    return got == 0 ? reply.array : 0;
  }
  int Copy(const wire::PitchedLocation& to, const wire::PitchedLocation& from, uint64_t width,
           uint64_t height = 1, uint64_t depth = 1) {
    wire::cuMemcpy3DAsync_v2 copy{to, from, width, height, depth, 1, 0, {0, kNoFence, 0}};
    return client.ring->Call(Op::cuMemcpy3DAsync_v2, copy);
  }
  uint64_t Texture(const wire::cuTexObjectCreate& args, int* result = nullptr) {
    wire::cuTexObjectCreate_Reply reply{};
    const int got = client.ring->Call(Op::cuTexObjectCreate, args, &reply);
    if (result != nullptr) *result = got;
    return got == 0 ? reply.handle : 0;
  }
  int TextureResult(const wire::cuTexObjectCreate& args) {
    int result = 0;
    Texture(args, &result);
    return result;
  }

  InstantImages images;  // outlives the daemon
  TestDaemon daemon;
  TestClient client, neighbour;
};

wire::cuTexObjectCreate OfArray(ArrayId array) {
  wire::cuTexObjectCreate args{};
  args.array = array;
  return args;
}

TEST_CASE("Impossible arrays are refused") {
  ImageFixture f;
  const auto refused = [&](wire::cuArray3DCreate_v2 args) {
    int result = 0;
    f.Create(args, &result);
    return result == kCudaErrorInvalidValue;
  };
  CHECK_FALSE(refused({16, 0, 0, kFloat, 1, 0, 0}));
  CHECK_FALSE(refused({16, 16, 12, kByte, 4, kArrayCubemap | kArrayLayered, 5}));
  CHECK_FALSE(refused({16, 16, 0, kFloat, 1, kArrayVideo, 0}));
  for (uint32_t format = 0xc0; format <= 0xcb; ++format) {  // integers that are fractions
    const uint32_t channels = 1u << (format - 0xc0) % 3;
    CHECK_FALSE(refused({16, 16, 0, format, channels, 0, 0}));
    CHECK(refused({16, 16, 0, format, channels == 1 ? 2u : 1u, 0, 0}));
  }
  CHECK(refused({16, 16, 0, 0xcc, 1, 0, 0}));
  CHECK(refused({0, 16, 0, kFloat, 1, 0, 0}));
  CHECK(refused({16, 0, 16, kFloat, 1, 0, 0}));              // a depth without a height
  CHECK(refused({16, 16, 0, kFloat, 3, 0, 0}));              // three channels
  CHECK(refused({16, 16, 0, 0x91, 1, 0, 0}));                // an unknown format
  CHECK(refused({16, 16, 0, kFloat, 1, 0x40, 0}));           // sparse
  CHECK(refused({16, 16, 0, kFloat, 1, 0x80000000, 0}));     // an unknown flag
  CHECK(refused({16, 16, 5, kFloat, 1, kArrayCubemap, 0}));  // five faces
  CHECK(refused({16, 8, 6, kFloat, 1, kArrayCubemap, 0}));   // faces that are not square
  CHECK(refused({16, 16, 0, kFloat, 1, kArrayLayered, 0}));  // no layers
  CHECK(refused({16, 16, 2, kFloat, 1, kArrayGather, 0}));   // gathering in three dimensions
  CHECK(refused({16, 16, 0, kFloat, 1, 0, 6}));              // more levels than halvings
  CHECK(refused({16, 16, 0, kFloat, 1, 0, 0xFFFFFFFF}));
  CHECK(refused({UINT64_MAX, 2, 0, kFloat, 4, 0, 0}));
  CHECK(refused({1 << 28, 1 << 28, 1 << 28, kFloat, 4, 0, 0}));  // an absurd size
  int result = 0;
  f.Create({2048, 0, 0, kFloat, 1, 0, 0}, &result);
  CHECK(result == kCudaErrorOutOfMemory);  // the device's own result
  CHECK(f.client.ring->Call(Op::cuArrayDestroy, wire::cuArrayDestroy{99, 0}) ==
        kCudaErrorInvalidHandle);
  CHECK(f.client.ring->Call(Op::cuArrayDestroy, wire::cuArrayDestroy{0, 0}) ==
        kCudaErrorInvalidHandle);
}

TEST_CASE("Copies stay inside the session's arrays") {
  ImageFixture f;
  const ArrayId array = f.Create({8, 4, 2, kFloat, 1, 0, 0});
  REQUIRE(array != 0);
  const ArrayId other = f.CreateBy(f.neighbour, {8, 4, 2, kFloat, 1, 0, 0});
  const ArrayId foreign = f.CreateBy(f.neighbour, {8, 4, 2, kFloat, 1, 0, 0});
  REQUIRE(foreign != array);
  REQUIRE(other != 0);
  const wire::PitchedLocation staging{{0, wire::kStaging, 0}, 64, 1024};
  const auto in = [&](uint64_t x, uint32_t y, uint32_t z, ArrayId id, uint32_t level) {
    return wire::InArray({id, level, x, y, z});
  };
  CHECK(f.Copy(in(0, 0, 0, array, 0), staging, 32, 4, 2) == 0);
  CHECK(f.Copy(staging, in(4, 3, 1, array, 0), 28) == 0);
  CHECK(f.Copy(in(0, 0, 0, array, 0), in(0, 2, 1, array, 0), 32, 2) == 0);
  CHECK(f.Copy(in(4, 0, 0, array, 0), staging, 32) == kInvalid);
  CHECK(f.Copy(in(0, 1, 0, array, 0), staging, 32, 4) == kInvalid);
  CHECK(f.Copy(in(0, 0, 1, array, 0), staging, 32, 4, 2) == kInvalid);
  CHECK(f.Copy(in(2, 0, 0, array, 0), staging, 4) == 0);  // between two texels
  CHECK(f.Copy(in(31, 3, 1, array, 0), staging, 1) == 0);
  CHECK(f.Copy(in(31, 3, 1, array, 0), staging, 2) == kInvalid);
  CHECK(f.Copy(staging, in(1, 0, 0, array, 0), 32) == kInvalid);
  CHECK(f.Copy(in(0, 0, 0, array, 1), staging, 4) == kInvalid);  // a level that the array does not
                                                                 // have
  CHECK(f.Copy(in(UINT64_MAX - 3, 0, 0, array, 0), staging, 4) == kInvalid);
  CHECK(f.Copy(in(0, UINT32_MAX, 0, array, 0), staging, 4) == kInvalid);
  CHECK(f.Copy(in(0, 0, 0, array, 0), staging, UINT64_MAX - 3) == kInvalid);
  CHECK(f.Copy(in(0, 0, 0, array, 0), {{0, wire::kInline, 0}, 4, 4}, 4) == kInvalid);
  CHECK(f.Copy(in(0, 0, 0, foreign, 0), staging, 4) == kCudaErrorInvalidHandle);
  CHECK(f.Copy(staging, in(0, 0, 0, 0, 0), 4) == kCudaErrorInvalidHandle);
  // An array cannot be in a linear copy.
  CHECK(f.client.ring->Call(Op::cuMemcpyAsync, f.client.CopyOf({array, wire::kArray, 0},
                                                               {0, wire::kStaging, 0}, 4, 1)) == 0);
  CHECK(f.client.ring->Call(Op::cuMemcpyAsync,
                            f.client.CopyOf({99, wire::kArray, 0}, {0, wire::kStaging, 0}, 4, 1)) ==
        kCudaErrorInvalidHandle);
  CHECK(f.client.ring->Call(Op::cuArrayDestroy, wire::cuArrayDestroy{array, 0}) == 0);
  CHECK(f.Copy(in(0, 0, 0, array, 0), staging, 4) == kCudaErrorInvalidHandle);
  CHECK(f.neighbour.ring->Call(Op::cuArrayDestroy, wire::cuArrayDestroy{other, 0}) == 0);
}

TEST_CASE("Textures read arrays of the session, in valid ways") {
  ImageFixture f;
  const ArrayId array = f.Create({8, 8, 0, kFloat, 1, 0, 0});
  const ArrayId mipmap = f.Create({8, 8, 0, kFloat, 1, 0, 3});
  wire::cuTexObjectCreate args = OfArray(array);
  args.min_mipmap_level_clamp = std::bit_cast<uint32_t>(-0.5f);
  args.border_color[2] = std::bit_cast<uint32_t>(std::nanf(""));  // as valid as any other colour
  REQUIRE(f.Texture(args) != 0);
  CHECK(f.images.request().sampling.min_mipmap_level_clamp == -0.5f);

  args = OfArray(99);
  CHECK(f.TextureResult(args) == kCudaErrorInvalidHandle);
  args = OfArray(array);
  args.level = 1;
  CHECK(f.TextureResult(args) == kInvalid);
  args = OfArray(mipmap);
  args.level = 2;
  CHECK(f.TextureResult(args) == 0);
  args.level = 3;
  CHECK(f.TextureResult(args) == kInvalid);
  args = OfArray(array);
  args.type = 1;  // as if the array were mipmapped
  CHECK(f.TextureResult(args) == kInvalid);
  args.type = 4;
  CHECK(f.TextureResult(args) == kInvalid);
  args = OfArray(array);
  args.address_modes[2] = 4;
  CHECK(f.TextureResult(args) == kInvalid);
  args = OfArray(array);
  args.filter_mode = 2;
  CHECK(f.TextureResult(args) == kInvalid);
  args = OfArray(array);
  args.flags = 0x100;
  CHECK(f.TextureResult(args) == kInvalid);
  args.flags = 0x80;
  CHECK(f.TextureResult(args) == kInvalid);
  args.flags = 0x08;  // has no name, but the driver takes it
  CHECK(f.TextureResult(args) == 0);
  CHECK(f.images.request().sampling.flags == 0x08);
  args = OfArray(array);
  args.mipmap_level_bias = std::bit_cast<uint32_t>(std::nanf(""));
  CHECK(f.TextureResult(args) == kInvalid);
}

TEST_CASE("Textures begin in memory of the session, and may be larger than it") {
  ImageFixture f;
  const uint64_t memory = f.client.Allocate(4096), secret = f.neighbour.Allocate(4096);
  const auto linear = [&](uint64_t address, uint64_t bytes) {
    wire::cuTexObjectCreate of_memory{};
    of_memory.type = 2;
    of_memory.address = address;
    of_memory.bytes = bytes;
    of_memory.format = kFloat;
    of_memory.channels = 4;
    return of_memory;
  };
  CHECK(f.TextureResult(linear(memory, 4096)) == 0);
  CHECK(f.TextureResult(linear(memory, 0)) == kInvalid);
  CHECK(f.TextureResult(linear(secret, 4096)) == kInvalid);
  CHECK(f.TextureResult(linear(memory, uint64_t{1} << 30)) == 0);
  CHECK(f.TextureResult(linear(memory + (uint64_t{1} << 30), 4096)) == kInvalid);
  wire::cuTexObjectCreate args = linear(memory, 64);
  args.channels = 3;
  CHECK(f.TextureResult(args) == kInvalid);
  args = linear(memory, 64);
  args.format = 0xc2;  // fractions, which only arrays have
  CHECK(f.TextureResult(args) == kInvalid);
  const auto pitched = [&](uint64_t width, uint64_t height, uint64_t pitch) {
    wire::cuTexObjectCreate of_memory = linear(memory, 0);
    of_memory.type = 3;
    of_memory.width = width;
    of_memory.height = height;
    of_memory.pitch = pitch;
    return of_memory;
  };
  CHECK(f.TextureResult(pitched(16, 16, 256)) == 0);
  CHECK(f.TextureResult(pitched(16, 16, 128)) == 0);  // rows that overlap
  CHECK(f.TextureResult(pitched(16, 1 << 16, 1 << 20)) == 0);
  CHECK(f.TextureResult(pitched(UINT64_MAX / 8, 2, UINT64_MAX / 2)) == kInvalid);
  CHECK(f.TextureResult(pitched(0, 16, 256)) == 0);
  CHECK(f.TextureResult(pitched(16, 0, 256)) == kInvalid);
}

TEST_CASE("Views do not exceed their array") {
  ImageFixture f;
  const ArrayId array = f.Create({8, 8, 0, kFloat, 1, 0, 0});
  const ArrayId mipmap = f.Create({8, 8, 0, kFloat, 1, 0, 3});
  const ArrayId layers = f.Create({8, 8, 4, kByte, 4, kArrayLayered, 0});
  const auto view = [&](ArrayId of, wire::ResourceView what) {
    wire::cuTexObjectCreate viewed = OfArray(of);
    viewed.type = of == mipmap ? 1 : 0;
    viewed.has_view = 1;
    viewed.view = what;
    return f.TextureResult(viewed);
  };
  constexpr uint32_t kOneFloat = 0x16, kFourBytes = 3, kBc1 = 0x19;
  CHECK(view(array, {8, 8, 0, kOneFloat, 0, 0, 0, 0, 0}) == 0);
  CHECK(view(array, {9, 8, 0, kOneFloat, 0, 0, 0, 0, 0}) == kInvalid);
  CHECK(view(array, {8, 9, 0, kOneFloat, 0, 0, 0, 0, 0}) == kInvalid);
  CHECK(view(array, {8, 8, 0, kFourBytes, 0, 0, 0, 0, 0}) == 0);
  CHECK(view(array, {8, 8, 0, 2, 0, 0, 0, 0, 0}) == kInvalid);     // texels of two bytes
  CHECK(view(array, {8, 8, 0, kBc1, 0, 0, 0, 0, 0}) == kInvalid);  // blocks of eight bytes
  CHECK(view(array, {8, 8, 0, 0xFFFFFFFF, 0, 0, 0, 0, 0}) == kInvalid);
  CHECK(view(array, {8, 8, 0, 0, 0, 0, 0, 0, 0}) == 0);  // the format of the array
  CHECK(view(array, {9, 8, 0, 0, 0, 0, 0, 0, 0}) == kInvalid);
  CHECK(view(array, {8, 8, 3, 0, 0, 0, 0, 0, 0}) == kInvalid);
  CHECK(view(array, {8, 8, 0, 0, 0, 1, 0, 0, 0}) == kInvalid);
  CHECK(view(array, {8, 8, 0, 0, 0, 0, 0, 2, 0}) == kInvalid);
  CHECK(view(array, {8, 8, 0, kOneFloat, 0, 1, 0, 0, 0}) == kInvalid);
  CHECK(view(mipmap, {8, 8, 0, kOneFloat, 1, 2, 0, 0, 0}) == 0);
  CHECK(view(mipmap, {8, 8, 0, kOneFloat, 1, 3, 0, 0, 0}) == kInvalid);
  CHECK(view(mipmap, {8, 8, 0, kOneFloat, 2, 1, 0, 0, 0}) == kInvalid);
  CHECK(view(layers, {8, 8, 4, kFourBytes, 0, 0, 1, 3, 0}) == 0);
  CHECK(view(layers, {8, 8, 4, kFourBytes, 0, 0, 1, 4, 0}) == kInvalid);
  CHECK(view(layers, {8, 8, 5, kFourBytes, 0, 0, 0, 3, 0}) == kInvalid);
}

TEST_CASE("A surface needs a level of an array, which need not be made for surfaces") {
  ImageFixture f;
  const ArrayId array = f.Create({8, 8, 0, kFloat, 1, 0, 0});
  CHECK(f.client.ring->Call(Op::cuSurfObjectCreate, wire::cuSurfObjectCreate{array, 0}) == 0);
  CHECK(f.client.ring->Call(Op::cuSurfObjectCreate, wire::cuSurfObjectCreate{array, 1}) ==
        kInvalid);
  const ArrayId writable = f.Create({8, 8, 0, kFloat, 1, kArraySurface, 2});
  CHECK(f.client.ring->Call(Op::cuSurfObjectCreate, wire::cuSurfObjectCreate{writable, 2}) ==
        kInvalid);
  CHECK(f.client.ring->Call(Op::cuSurfObjectCreate, wire::cuSurfObjectCreate{writable, 1}) == 0);
}

TEST_CASE("An array lasts until the last texture or surface on it ends") {
  ImageFixture f;
  RingTestClient& ring = *f.client.ring;
  const ArrayId array = f.Create({8, 8, 0, kFloat, 1, kArraySurface, 0});
  const uint64_t texture = f.Texture(OfArray(array));
  wire::cuSurfObjectCreate_Reply surface{};
  REQUIRE(ring.Call(Op::cuSurfObjectCreate, wire::cuSurfObjectCreate{array, 0}, &surface) == 0);
  CHECK(ring.Call(Op::cuArrayDestroy, wire::cuArrayDestroy{array, 0}) == 0);
  CHECK(f.images.ended().empty());
  CHECK(ring.Call(Op::cuTexObjectDestroy, wire::cuTexObjectDestroy{surface.handle}) ==
        kCudaErrorInvalidHandle);
  CHECK(f.neighbour.ring->Call(Op::cuTexObjectDestroy, wire::cuTexObjectDestroy{texture}) ==
        kCudaErrorInvalidHandle);
  CHECK(ring.Call(Op::cuTexObjectDestroy, wire::cuTexObjectDestroy{texture}) == 0);
  CHECK(f.images.ended() == Strings{"texture"});
  CHECK(ring.Call(Op::cuTexObjectDestroy, wire::cuTexObjectDestroy{texture}) ==
        kCudaErrorInvalidHandle);
  CHECK(ring.Call(Op::cuSurfObjectDestroy, wire::cuSurfObjectDestroy{surface.handle}) == 0);
  CHECK(f.images.ended() == Strings{"texture", "surface", "array"});
}

TEST_CASE("Arrays and textures end with their context, and with their session") {
  ImageFixture f;
  f.Texture(OfArray(f.Create({8, 8, 0, kFloat, 1, 0, 0})));
  f.client.ring->context = 2;
  f.Texture(OfArray(f.Create({8, 8, 0, kFloat, 1, 0, 0})));
  CHECK(f.client.ring->Call(Op::cuCtxDestroy_v2, wire::cuCtxDestroy_v2{2, 0}) == 0);
  CHECK(f.images.ended() == Strings{"texture", "array"});
  f.client.Close();
  CHECK(Eventually([&] { return f.images.ended().size() == 4; }));
  CHECK(f.images.ended() == Strings{"texture", "array", "texture", "array"});
}

TEST_CASE("While a context ends, copies do not find its arrays, which work before may use") {
  ImageFixture f;
  RingTestClient& ring = *f.client.ring;
  const ArrayId array = f.Create({8, 0, 0, kFloat, 1, 0, 0});
  REQUIRE(array != 0);
  // The end of the context waits for this function of the program.
  ring.Send(Op::cuLaunchHostFunc, wire::cuLaunchHostFunc{1, 1, 1, {1, 0, 0}});
  ReplySlot& slot = ring.slot(1);
  slot.state.store(kReplyPending);
  const wire::cuCtxDestroy_v2 end{1, 0};
  ring.Submit(static_cast<uint16_t>(Op::cuCtxDestroy_v2), &end, sizeof(end), {}, 1);
  CHECK(f.Copy(wire::InArray({array, 0, 0, 0, 0}), {{0, wire::kStaging, 0}, 64, 64}, 4) ==
        kCudaErrorInvalidHandle);
  CHECK(slot.state.load() == kReplyPending);
  CHECK(f.images.ended().empty());
  ring.fence(1).store(1);
  CHECK(ring.Await(1) == 0);
  CHECK(f.images.ended() == Strings{"array"});
}

TEST_CASE("The number of a session's arrays and textures is bounded") {
  ImageFixture f([](Daemon::Options& options) {
    options.server.limits.arrays = 2;
    options.server.limits.image_objects = 1;
  });
  const ArrayId array = f.Create({8, 0, 0, kFloat, 1, 0, 0});
  CHECK(f.Create({8, 0, 0, kFloat, 1, 0, 0}) != 0);
  int result = 0;
  f.Create({8, 0, 0, kFloat, 1, 0, 0}, &result);
  CHECK(result == kCudaErrorOutOfMemory);
  CHECK(f.TextureResult(OfArray(array)) == 0);
  CHECK(f.TextureResult(OfArray(array)) == kCudaErrorOutOfMemory);
}

TEST_CASE("Arrays get the memory that pools keep for reuse") {
  ImageFixture f([](Daemon::Options& options) { options.server.default_quota.memory = 4 << 20; });
  RingTestClient& ring = *f.client.ring;
  constexpr uint32_t kReleaseThreshold = 4;
  REQUIRE(ring.Call(Op::cuMemPoolCreate, wire::cuMemPoolCreate{0, 2, 0}) == 0);
  REQUIRE(ring.Call(Op::cuMemPoolSetAttribute,
                    wire::cuMemPoolSetAttribute{UINT64_MAX, 2, kReleaseThreshold}) == 0);
  wire::cuMemAllocAsync_Reply memory{};
  REQUIRE(ring.Call(Op::cuMemAllocAsync, wire::cuMemAllocAsync{4 << 20, 1, 2}, &memory) == 0);
  int result = 0;
  CHECK(f.Create({1024, 512, 0, kFloat, 1, 0, 0}, &result) == 0);
  CHECK(result == kCudaErrorOutOfMemory);
  REQUIRE(ring.Call(Op::cuMemFreeAsync, wire::cuMemFreeAsync{memory.address, 1}) == 0);
  REQUIRE(f.client.Synchronize(1) == 0);
  CHECK(f.Create({1024, 512, 0, kFloat, 1, 0, 0}) != 0);
  // And so does physical memory.
  wire::cuMemCreate_Reply physical{};
  CHECK(ring.Call(Op::cuMemCreate, wire::cuMemCreate{2 << 20}, &physical) == 0);
}

TEST_CASE("A device without arrays says that they are not supported") {
  TestDaemon daemon;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  CHECK(client.ring->Call(Op::cuArray3DCreate_v2,
                          wire::cuArray3DCreate_v2{8, 0, 0, kFloat, 1, 0, 0}) ==
        kCudaErrorNotSupported);
  CHECK(client.ring->Call(Op::cuTexObjectCreate, wire::cuTexObjectCreate{}) ==
        kCudaErrorNotSupported);
  CHECK(client.ring->Call(Op::cuDeviceGetTexture1DLinearMaxWidth,
                          wire::cuDeviceGetTexture1DLinearMaxWidth{kFloat, 1}) ==
        kCudaErrorNotSupported);
}

TEST_CASE("An array belongs to one device of its session") {
  InstantImages images;  // outlives the daemon
  TestDaemon daemon({}, 2);
  for (InstantDevice* device : daemon.devices) device->image_device = &images;
  TestClient client(daemon.socket());
  REQUIRE(client.Open());
  RingTestClient& ring = *client.ring;
  wire::cuArray3DCreate_v2_Reply array{};
  REQUIRE(ring.Call(Op::cuArray3DCreate_v2, wire::cuArray3DCreate_v2{8, 8, 0, kFloat, 1, 0, 0},
                    &array) == 0);
  ring.device = 1;
  ring.context = 2;
  CHECK(ring.Call(Op::cuTexObjectCreate, OfArray(array.array)) == kCudaErrorInvalidHandle);
  CHECK(ring.Call(Op::cuArrayDestroy, wire::cuArrayDestroy{array.array, 0}) ==
        kCudaErrorInvalidHandle);
  ring.device = 0;
  ring.context = 1;
  CHECK(ring.Call(Op::cuTexObjectCreate, OfArray(array.array)) == 0);
  CHECK(ring.Call(Op::cuArrayDestroy, wire::cuArrayDestroy{array.array, 0}) == 0);
}
}  // namespace
}  // namespace detshare
