#include "client_shim/device_selection.h"

#include <catch2/catch.hpp>

namespace detshare::shim {
namespace {

using Ids = std::vector<std::string>;

TEST_CASE("Without wishes a process sees every device") {
  const DeviceSelection selection = SelectDevices(nullptr, nullptr);
  CHECK_FALSE(selection.none);
  CHECK(selection.ids.empty());
}

TEST_CASE("CUDA_VISIBLE_DEVICES chooses devices and their order") {
  CHECK(SelectDevices(nullptr, "1,0").ids == Ids{"1", "0"});
  CHECK(SelectDevices(nullptr, " 2 , 3 ").ids == Ids{"2", "3"});
  CHECK(SelectDevices(nullptr, "GPU-12345678,0").ids == Ids{"GPU-12345678", "0"});
}

TEST_CASE("CUDA_VISIBLE_DEVICES ends at its first invalid entry") {
  CHECK(SelectDevices(nullptr, "1,-1,0").ids == Ids{"1"});
  CHECK(SelectDevices(nullptr, "1,x").ids == Ids{"1"});
  CHECK(SelectDevices(nullptr, "-1").none);
  CHECK(SelectDevices(nullptr, "").none);
}

TEST_CASE("DETSHARE_DEVICES is the machine that CUDA_VISIBLE_DEVICES chooses from") {
  CHECK(SelectDevices("3,5", nullptr).ids == Ids{"3", "5"});
  CHECK(SelectDevices("3,5", "1").ids == Ids{"5"});
  CHECK(SelectDevices("3,5", "0,2").ids == Ids{"3"});
  CHECK(SelectDevices("3,5", "2").none);
  CHECK(SelectDevices("", "1").ids == Ids{"1"});
}

}  // namespace
}  // namespace detshare::shim
