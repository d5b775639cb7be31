#include "tests/fuzzing/mutator.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace detshare::fuzzing {
namespace {

constexpr uint64_t kRandomSeed = 20240607;

bool IsOfWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '.' || c == '%' || c == '$';
}

size_t WordBegin(const std::string& text, size_t from) {
  while (from < text.size() && !IsOfWord(text[from])) ++from;
  return from;
}

size_t WordEnd(const std::string& text, size_t from) {
  while (from < text.size() && IsOfWord(text[from])) ++from;
  return from;
}

}  // namespace

Mutator::Mutator(std::vector<std::string> seeds, size_t max_bytes)
    : seeds_(std::move(seeds)), max_bytes_(max_bytes), random_(kRandomSeed) {
  std::set<std::string> words;
  for (const std::string& seed : seeds_) {
    for (size_t at = WordBegin(seed, 0); at < seed.size(); at = WordBegin(seed, at)) {
      const size_t end = WordEnd(seed, at);
      words.insert(seed.substr(at, end - at));
      at = end;
    }
  }
  words_.assign(words.begin(), words.end());
}

std::string Mutator::Next() {
  std::string input = seeds_[Below(seeds_.size())];
  for (size_t changes = 1 + Below(8); changes > 0; --changes) Change(&input);
  if (input.size() > max_bytes_) input.resize(max_bytes_);
  return input;
}

size_t Mutator::Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

size_t Mutator::Place(const std::string& input) {
  constexpr size_t kHeaders = 128;
  return Below(Below(2) == 0 ? std::min(input.size(), kHeaders) : input.size());
}

std::string Mutator::SeedPart(size_t max_bytes) {
  const std::string& seed = seeds_[Below(seeds_.size())];
  return seed.substr(Below(seed.size()), 1 + Below(max_bytes));
}

void Mutator::SetInteger(std::string* input) {
  static constexpr uint64_t kEdges[] = {0,
                                        1,
                                        2,
                                        7,
                                        8,
                                        63,
                                        64,
                                        127,
                                        128,
                                        255,
                                        256,
                                        0x7FFF,
                                        0xFFFF,
                                        0x7FFFFFFF,
                                        0x80000000,
                                        0xFFFFFFFF,
                                        INT64_MAX,
                                        UINT64_MAX,
                                        UINT64_MAX - 7};
  const size_t bytes = size_t{1} << Below(4);
  size_t at = Place(*input);
  if (Below(2) == 0) at = at / bytes * bytes;
  if (at + bytes > input->size()) return;
  uint64_t value = 0;
  std::memcpy(&value, input->data() + at, bytes);
  switch (Below(3)) {
    case 0:
      value = kEdges[Below(std::size(kEdges))];
      break;
    case 1:
      value += 1 + Below(8);
      break;
    default:
      value -= 1 + Below(8);
      break;
  }
  std::memcpy(input->data() + at, &value, bytes);
}

void Mutator::SetWord(std::string* input) {
  const size_t begin = WordBegin(*input, Below(input->size()));
  const size_t end = WordEnd(*input, begin);
  if (begin != end && !words_.empty())
    input->replace(begin, end - begin, words_[Below(words_.size())]);
}

void Mutator::Change(std::string* input) {
  constexpr size_t kShortRun = 64, kLongRun = 1024;
  const size_t at = Place(*input);
  switch (Below(10)) {
    case 0:
      if (!input->empty()) (*input)[at] ^= static_cast<char>(1 << Below(8));
      break;
    case 1:
      if (!input->empty()) (*input)[at] = static_cast<char>(Below(256));
      break;
    case 2:
    case 3:
      SetInteger(input);
      break;
    case 4:
    case 5:
      SetWord(input);
      break;
    case 6:
      input->erase(at, 1 + Below(kShortRun));
      break;
    case 7:
      input->insert(at, SeedPart(Below(8) == 0 ? kLongRun : kShortRun));
      break;
    case 8: {
      const std::string part = SeedPart(kShortRun);
      input->replace(at, part.size(), part);
      break;
    }
    default:
      // Seldom: it takes much away.
      if (Below(4) == 0) input->resize(Below(input->size()));
      break;
  }
}

}  // namespace detshare::fuzzing
