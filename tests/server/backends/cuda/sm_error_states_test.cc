#include "server/backends/cuda/sm_error_states.h"

#include <catch2/catch.hpp>

#include "server/backends/cuda/rm_calls.h"

namespace detshare::cuda {
namespace {

constexpr uint32_t kClear = 0x83de0310, kRead = 0x83de030c;

RmControl ControlOf(uint32_t command) {
  RmControl call{};
  call.command = command;
  call.status = 7;
  return call;
}

TEST_CASE("A call that clears the error states of SMs has succeeded without the kernel") {
  RmControl call = ControlOf(kClear);
  CHECK(SkipClearOfErrorStates(kRmControl, &call));
  CHECK(call.status == 0);
}

TEST_CASE("All other calls are for the kernel") {
  RmControl read = ControlOf(kRead), clear = ControlOf(kClear);
  CHECK_FALSE(SkipClearOfErrorStates(kRmControl, &read));
  CHECK(read.status == 7);
  // The same bytes in another call.
  CHECK_FALSE(SkipClearOfErrorStates(kRmControl + 1, &clear));
  CHECK(clear.status == 7);
  CHECK_FALSE(SkipClearOfErrorStates(kRmControl, nullptr));
}

}  // namespace
}  // namespace detshare::cuda
