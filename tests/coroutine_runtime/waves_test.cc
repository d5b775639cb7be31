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

uint64_t Waves(uint32_t blocks, uint32_t threads, int registers, int shared) {
  KernelInfo kernel;
  kernel.attributes[1] = shared;
  kernel.attributes[4] = registers;
  LaunchShape shape;
  shape.grid.x = blocks;
  shape.block.x = threads;
  return WavesOf(Properties(), kernel, shape);
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

TEST_CASE("A grid that fills the device exactly needs every place") {
  KernelInfo kernel;
  kernel.attributes[1] = 200'000;  // one block on each SM
  kernel.attributes[4] = 32;
  LaunchShape shape;
  shape.block.x = 256;
  const auto needs = [&](uint32_t blocks) {
    shape.grid.x = blocks;
    return NeedsEveryPlace(Properties(), kernel, shape);
  };
  CHECK_FALSE(needs(131));
  CHECK(needs(132));
  CHECK_FALSE(needs(133));  // two waves in any case
  CHECK(needs(264));
  CHECK_FALSE(needs(100));
  shape.cooperative = true;
  CHECK(needs(100));
}

TEST_CASE("Each block takes the shared memory that the device reserves, too") {
  // Four blocks would fit without the 1024 bytes that are reserved for each.
  CHECK(Waves(132 * 3 * 5, 128, 32, 233'472 / 4) == 5);
  CHECK(Waves(132 * 4 * 5, 128, 32, 233'472 / 4 - 1024) == 5);
}

}  // namespace
}  // namespace detshare
