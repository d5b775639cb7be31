#include "server/backends/images/device_code.h"

#include <zstd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "proto/images/fatbin.h"

namespace detshare::images {
namespace {

// A fatbin with these texts, compressed.
std::string CompressedFatbin(const std::vector<std::string>& texts) {
  std::string image;
  for (const std::string& text : texts) {
    std::string packed(ZSTD_compressBound(text.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
    std::string one = WritePtxFatbin({&packed, 1}, 75);
    char* const entry = one.data() + kFatbinHeaderBytes;
    const uint32_t packed_bytes = static_cast<uint32_t>(packed.size());
    const uint64_t flags = kEntryZstd, bytes = text.size();
    std::memcpy(entry + 16, &packed_bytes, sizeof(packed_bytes));
    std::memcpy(entry + 40, &flags, sizeof(flags));
    std::memcpy(entry + 56, &bytes, sizeof(bytes));
    if (image.empty()) {
      image = one;
    } else {
      image += one.substr(kFatbinHeaderBytes);
    }
  }
  const uint64_t entries = image.size() - kFatbinHeaderBytes;
  std::memcpy(image.data() + 8, &entries, sizeof(entries));
  return image;
}

struct Visited {
  bool whole = false;
  std::string error;
  std::vector<std::string> codes;
};

Visited Visit(const std::string& image, int device_sm, uint64_t limit) {
  Visited visited;
  visited.whole = ForEachDeviceCode(
      std::as_bytes(std::span(image)), device_sm,
      [&](const DeviceCode& code) { visited.codes.emplace_back(code.bytes); }, &visited.error,
      limit);
  return visited;
}

TEST_CASE("The codes of an image that the device can run are visited, decompressed") {
  const std::vector<std::string> texts = {std::string(1000, 'a'), std::string(2000, 'b')};
  const Visited all = Visit(CompressedFatbin(texts), 90, kLargestImageCode);
  CHECK(all.whole);
  CHECK(all.codes == texts);
  const Visited none = Visit(CompressedFatbin(texts), 70, kLargestImageCode);
  CHECK(none.whole);
  CHECK(none.codes.empty());
}

TEST_CASE("An image whose codes together exceed the limit is refused with what to do") {
  const std::string image = CompressedFatbin(std::vector(3, std::string(1000, ' ')));
  REQUIRE(image.size() < 500);
  CHECK(Visit(image, 90, 3000).whole);
  const Visited refused = Visit(image, 90, 2999);
  CHECK_FALSE(refused.whole);
  CHECK_THAT(refused.error, Catch::Contains("divide it into several images"));
  CHECK(refused.codes.size() == 2);
  // The device runs none of them.
  CHECK(Visit(image, 70, 10).whole);
}

TEST_CASE("An image of damaged code is refused") {
  std::string image = CompressedFatbin({std::string(1000, 'a')});
  image[kFatbinHeaderBytes + 64] ^= 0x55;  // the magic number of the compressed bytes
  const Visited refused = Visit(image, 90, kLargestImageCode);
  CHECK_FALSE(refused.whole);
  CHECK_FALSE(refused.error.empty());
  // Without a place for the error.
  CHECK_FALSE(ForEachDeviceCode(std::as_bytes(std::span(image)), 90, [](const DeviceCode&) {}));
}

}  // namespace
}  // namespace detshare::images
