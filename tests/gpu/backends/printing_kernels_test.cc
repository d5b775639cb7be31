#include "server/backends/cuda/printing_kernels.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

namespace detshare::cuda {
namespace {

std::string Built(const std::string& name) {
  std::ifstream file("tests/gpu/backends/" + name, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

PrintingKernels Find(const std::string& image) {
  return FindPrintingKernels(std::as_bytes(std::span(image)), 90);
}

TEST_CASE("Kernels that print are found in every output of nvcc") {
  for (const char* name :
       {"printing_cubin", "printing_relocatable", "printing_ptx", "printing_fatbin"}) {
    INFO(name);
    const PrintingKernels printing = Find(Built(name));
    CHECK(printing.Contains("prints"));
    CHECK(printing.Contains("calls"));
    CHECK(printing.Contains("points"));
    CHECK_FALSE(printing.Contains("quiet"));
    CHECK_FALSE(printing.Contains("asserts"));
  }
}

TEST_CASE("Names in comments and declarations do not make a kernel print") {
  const PrintingKernels printing = FindPrintingKernelsInPtx(R"(
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.visible .func other (.param .b32 x);
.visible .entry quiet(.param .u64 p) { // vprintf
  /* call vprintf; */
  ret;
}
.visible .entry loud(.param .u64 p) { { call.uni (r), vprintf, (a, b); } ret; })");
  CHECK_FALSE(printing.Contains("quiet"));
  CHECK(printing.Contains("loud"));
}

TEST_CASE("Damaged images are read without harm") {
  std::mt19937 random(1);
  for (const char* name : {"printing_cubin", "printing_ptx", "printing_fatbin"}) {
    const std::string image = Built(name);
    for (int i = 0; i < 300; ++i) {
      std::string damaged = image.substr(0, i % 3 == 0 ? random() % image.size() : image.size());
      for (int changes = 0; changes < 10 && !damaged.empty(); ++changes) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      Find(damaged).Contains("prints");
    }
  }
  CHECK(Find("").empty());
}

}  // namespace
}  // namespace detshare::cuda
