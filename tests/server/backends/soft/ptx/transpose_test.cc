#include "server/backends/soft/ptx/transpose.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

namespace detshare::soft::ptx {
namespace {

TEMPLATE_TEST_CASE("A transposed matrix has its rows as columns", "", uint8_t, uint16_t, uint32_t,
                   uint64_t) {
  for (const uint32_t rows : {1, 4, 8, 16, 32}) {
    for (const uint32_t columns : {1, 4, 8, 16, 32}) {
      std::vector<TestType> from(rows * columns), to(rows * columns + 1);
      for (uint32_t i = 0; i < from.size(); ++i)
        from[i] = static_cast<TestType>(i * 0x9e3779b97f4a7c15 >> 8);
      to.back() = 77;
      Transpose(from.data(), rows, columns, to.data());
      for (uint32_t i = 0; i < rows; ++i)
        for (uint32_t j = 0; j < columns; ++j) REQUIRE(to[j * rows + i] == from[i * columns + j]);
      REQUIRE(to.back() == 77);
    }
  }
}

}  // namespace
}  // namespace detshare::soft::ptx
