#include "client_shim/transport/device_selection.h"

#include <catch2/catch.hpp>

namespace detshare::shim {
namespace {

using Ids = std::vector<std::string>;

TEST_CASE("Without settings a process sees every device") {
  const Machine machine = ReadMachine(nullptr, nullptr, nullptr);
  CHECK(machine.ids.empty());
  CHECK(machine.count == 0);
  CHECK(machine.run.empty());
  CHECK_FALSE(ReadVisibleDevices(nullptr).none);
  CHECK(ReadVisibleDevices(nullptr).ids.empty());
}

TEST_CASE("DETSHARE_DEVICES and DETSHARE_DEVICE_COUNT are the machine") {
  CHECK(ReadMachine("3, GPU-12 ", nullptr, nullptr).ids == Ids{"3", "GPU-12"});
  CHECK(ReadMachine("", "", "r1").ids.empty());
  CHECK(ReadMachine("", "", "r1").count == 0);
  CHECK(ReadMachine("", "", "r1").run == "r1");
  CHECK(ReadMachine("3,5", "1", nullptr).count == 1);
  CHECK(ReadMachine(nullptr, "0", nullptr).count == 0);
}

TEST_CASE("An invalid number of devices does not mean all of them") {
  for (const char* wrong : {"two", "-1", "99999", "1x", " 1"})
    CHECK(ReadMachine(nullptr, wrong, nullptr).count == UINT32_MAX);
}

TEST_CASE("CUDA_VISIBLE_DEVICES chooses devices and their order") {
  CHECK(ReadVisibleDevices("1,0").ids == Ids{"1", "0"});
  CHECK(ReadVisibleDevices(" 2 , 03 ").ids == Ids{"2", "3"});
  CHECK(ReadVisibleDevices("GPU-12345678,0").ids == Ids{"GPU-12345678", "0"});
}

TEST_CASE("CUDA_VISIBLE_DEVICES ends at its first entry that can be no device") {
  CHECK(ReadVisibleDevices("1,-1,0").ids == Ids{"1"});
  CHECK(ReadVisibleDevices("1,x").ids == Ids{"1"});
  CHECK(ReadVisibleDevices("1,0,1,2").ids == Ids{"1", "0"});
  CHECK(ReadVisibleDevices("-1").none);
  CHECK(ReadVisibleDevices("").none);
}

}  // namespace
}  // namespace detshare::shim
