// Makes inputs for a fuzz target from its seeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace detshare::fuzzing {

// The same seeds in the same order give the same inputs, on every machine.
class Mutator {
 public:
  // Inputs are at most `max_bytes` long.
  Mutator(std::vector<std::string> seeds, size_t max_bytes);

  // A copy of a seed with one to eight changes.
  std::string Next();

 private:
  size_t Below(size_t limit);  // 0 when the limit is 0
  // A place in `input`: near its beginning, where headers are, half of the time.
  size_t Place(const std::string& input);
  // A part of some seed, at most `max_bytes` long.
  std::string SeedPart(size_t max_bytes);
  void SetInteger(std::string* input);
  // Replaces a word of the input by one that stands in some seed.
  void SetWord(std::string* input);
  void Change(std::string* input);

  std::vector<std::string> seeds_;
  std::vector<std::string> words_;
  const size_t max_bytes_;
  std::mt19937_64 random_;
};

}  // namespace detshare::fuzzing
