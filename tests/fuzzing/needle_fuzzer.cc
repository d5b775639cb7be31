// A target that fails on purpose, on inputs that hold both bytes: for driver_test.sh.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tests/fuzzing/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto holds = [&](uint8_t byte) {
    return std::find(data, data + size, byte) != data + size;
  };
  FUZZ_CHECK(!(holds(0x00) && holds(0xFF)));
  return 0;
}
