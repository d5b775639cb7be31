// For the programs that write the seeds of fuzz targets whose inputs are no text.
#pragma once

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

namespace detshare::fuzzing {

// main() of NAME_seeds FILE...: writes each seed to the file of its name. The exit status: 1 when a
// file has no seed or a seed no file.
inline int WriteSeeds(int argc, char** argv, const std::map<std::string, std::string>& seeds) {
  if (argc - 1 != static_cast<int>(seeds.size())) {
    std::fprintf(stderr, "%d files for %zu seeds\n", argc - 1, seeds.size());
    return 1;
  }
  for (int i = 1; i < argc; ++i) {
    const std::string path = argv[i];
    const auto seed = seeds.find(path.substr(path.rfind('/') + 1));
    if (seed == seeds.end()) {
      std::fprintf(stderr, "there is no seed for %s\n", argv[i]);
      return 1;
    }
    std::ofstream file(path, std::ios::binary);
    file << seed->second;
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", argv[i]);
      return 1;
    }
  }
  return 0;
}

}  // namespace detshare::fuzzing
