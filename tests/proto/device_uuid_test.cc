#include "proto/device_uuid.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>

namespace detshare {
namespace {

TEST_CASE("UUIDs have the form of nvidia-smi") {
  std::array<uint8_t, 16> uuid{};
  for (size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<uint8_t>(0xa0 + i);
  CHECK(FormatUuid(uuid) == "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
  CHECK(FormatUuid(std::string(16, '\1')) == "GPU-01010101-0101-0101-0101-010101010101");
}

}  // namespace
}  // namespace detshare
