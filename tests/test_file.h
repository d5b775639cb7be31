// Reads the files that tests bring along.
#pragma once

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>

namespace detshare {

// Returns the whole file. `path` is below the top of the project. The test fails if the file is not
// among its data.
inline std::string ReadTestFile(const std::string& path) {
  INFO(path);
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace detshare
