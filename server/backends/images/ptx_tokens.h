// Splits PTX text into words and punctuation, for scans that need no parser.
#pragma once

#include <cstddef>
#include <string_view>

namespace detshare::images {

// Not safe for several threads. The text outlives the object and the tokens.
class PtxTokens {
 public:
  explicit PtxTokens(std::string_view ptx) : ptx_(ptx) {}

  // Returns the next token: a word with its dots (`ld.global.u32`, `.entry`, `%r1`, a name), or one
  // other character. Passes over white space, comments and strings. Empty at the end, and where a
  // comment or a string does not end.
  std::string_view Next();
  // Whether the text has ended in a comment or a string that does not end.
  bool torn() const { return torn_; }

  static bool IsWord(std::string_view token);

 private:
  std::string_view ptx_;
  size_t at_ = 0;
  bool torn_ = false;
};

}  // namespace detshare::images
