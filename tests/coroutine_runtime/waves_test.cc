#include "coroutine_runtime/waves.h"

#include <catch2/catch.hpp>

namespace detshare {
namespace {

// The properties of an H100, by numbers of CUdevice_attribute.
DeviceProperties Properties() {
  DeviceProperties properties;
  properties.sm_count = 132;
  properties.attributes = {{39, 2048}, {81, 233'472}, {82, 65'536}, {106, 32}, {111, 1024}};
  return properties;
}

struct Launch {
  Launch(uint32_t blocks, uint32_t threads, int registers, int shared) {
    kernel.attributes[1] = shared;
    kernel.attributes[4] = registers;
    shape.grid.x = blocks;
    shape.block.x = threads;
  }
  KernelInfo kernel;
  LaunchShape shape;
};

uint64_t Waves(uint32_t blocks, uint32_t threads, int registers, int shared) {
  const Launch launch(blocks, threads, registers, shared);
  return WavesOf(Properties(), launch.kernel, launch.shape);
}

TEST_CASE("Waves are the grid divided by the blocks that fit at a time") {
  CHECK(Waves(132, 128, 32, 0) == 1);
  CHECK(Waves(1, 1, 1, 0) == 1);
  CHECK(Waves(132 * 16 * 5, 128, 32, 0) == 5);    // 2048 threads
  CHECK(Waves(132 * 2 * 97, 128, 254, 0) == 97);  // 65,536 registers
  CHECK(Waves(132 * 4 * 3, 128, 32, 57'344) == 3);
  CHECK(Waves(132 * 32 * 7, 32, 16, 0) == 7);  // block slots
  CHECK(Waves(132 * 9, 1024, 64, 200'000) == 9);
}

TEST_CASE("Grids whose blocks run together, and invalid grids, have one wave") {
  LaunchShape shape;
  shape.grid = {1'000'000, 65'535, 65'535};
  shape.block.x = 32;
  shape.cooperative = true;
  CHECK(WavesOf(Properties(), {}, shape) == 1);
  shape.cooperative = false;
  shape.cluster = {2, 1, 1};
  CHECK(WavesOf(Properties(), {}, shape) == 1);
  shape.cluster = {0, 0, 0};
  CHECK(WavesOf(Properties(), {}, shape) > 1'000'000'000);
  CHECK(WavesOf({}, {}, shape) == 1);
  shape.block.x = 0;
  CHECK(WavesOf(Properties(), {}, shape) == 1);
  KernelInfo kernel;
  kernel.attributes[1] = kernel.attributes[4] = -1;
  shape.block.x = 32;
  CHECK(WavesOf(Properties(), kernel, shape) > 1);
}

// Whether a hold delays a kernel with these blocks.
bool Delayed(uint32_t blocks, uint32_t threads, int registers, int shared, int carveout = -1) {
  Launch launch(blocks, threads, registers, shared);
  launch.kernel.attributes[9] = carveout;
  return DelayedByHold(Properties(), launch.kernel, launch.shape);
}

TEST_CASE("A hold delays a grid that needs every place, if it takes one") {
  constexpr int kAllShared = 233'472 - 1024;  // one block on each SM
  CHECK_FALSE(Delayed(131, 256, 32, kAllShared));
  CHECK(Delayed(132, 256, 32, kAllShared));
  CHECK_FALSE(Delayed(133, 256, 32, kAllShared));  // two waves in any case
  CHECK(Delayed(264, 256, 32, kAllShared));
  CHECK_FALSE(Delayed(100, 256, 32, kAllShared));
  CHECK(Delayed(132 * 2, 1024, 32, 0));  // all warps
  CHECK_FALSE(Delayed(132 * 2 - 1, 1024, 32, 0));
  CHECK(Delayed(132 * 32, 32, 16, 0));   // all block slots
  CHECK(Delayed(132 * 2, 256, 128, 0));  // all registers
}

TEST_CASE("A hold does not delay a grid whose blocks leave it room on an SM") {
  // Measured on an H200, as the next ones.
  CHECK_FALSE(Delayed(132, 384, 12, 213'188));
  CHECK_FALSE(Delayed(132, 384, 12, 229'772));
  CHECK(Delayed(132, 384, 168, 213'188));
  CHECK(Delayed(132 * 2, 192, 168, 0));
  CHECK_FALSE(Delayed(132 * 2, 256, 12, 113'000));
  CHECK_FALSE(Delayed(132 * 13, 128, 12, 16'384));
  CHECK_FALSE(Delayed(132, 1024, 32, 0));
  CHECK(Delayed(132 * 2, 512, 32, 80'000, /*carveout=*/75));
  CHECK_FALSE(Delayed(132 * 2, 512, 32, 80'000, /*carveout=*/100));
}

TEST_CASE("A hold delays blocks that run together if it takes the place of one") {
  KernelInfo kernel;
  kernel.attributes[4] = 32;
  kernel.attributes[9] = -1;
  LaunchShape shape;
  shape.grid.x = 100;
  const auto delayed = [&](uint32_t threads) {
    shape.block.x = threads;
    return DelayedByHold(Properties(), kernel, shape);
  };
  CHECK_FALSE(delayed(1024));
  SECTION("cooperative") { shape.cooperative = true; }
  SECTION("clusters") { shape.cluster = {2, 1, 1}; }
  SECTION("clusters of the kernel") { kernel.attributes[11] = 2; }
  CHECK(delayed(1024));
  CHECK_FALSE(delayed(384));
}

TEST_CASE("A grid of which nothing is known is delayed by a hold") {
  CHECK(DelayedByHold({}, {}, {}));
  LaunchShape shape;
  shape.block.x = 0;
  CHECK(DelayedByHold(Properties(), {}, shape));
  shape.block = {1024, 4, 1};  // fits nowhere
  CHECK(DelayedByHold(Properties(), {}, shape));
}

TEST_CASE("Each block takes the shared memory that the device reserves, too") {
  // Four blocks would fit without the 1024 bytes that are reserved for each.
  CHECK(Waves(132 * 3 * 5, 128, 32, 233'472 / 4) == 5);
  CHECK(Waves(132 * 4 * 5, 128, 32, 233'472 / 4 - 1024) == 5);
}

}  // namespace
}  // namespace detshare
