#include "server/backends/images/ptx_tokens.h"

#include <cctype>

namespace detshare::images {
namespace {

bool InWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.' ||
         c == '%';
}

}  // namespace

bool PtxTokens::IsWord(std::string_view token) { return !token.empty() && InWord(token.front()); }

std::string_view PtxTokens::Next() {
  // Goes behind the next `end`, or to the end of the text.
  const auto pass = [this](std::string_view end, size_t from) {
    const size_t found = ptx_.find(end, from);
    torn_ = found == std::string_view::npos && end != "\n";
    at_ = found == std::string_view::npos ? ptx_.size() : found + end.size();
  };
  while (at_ < ptx_.size()) {
    const size_t begin = at_;
    const char c = ptx_[begin];
    if (ptx_.substr(begin, 2) == "//") {
      pass("\n", begin + 2);
    } else if (ptx_.substr(begin, 2) == "/*") {
      pass("*/", begin + 2);
    } else if (c == '"') {
      pass("\"", begin + 1);
    } else if (InWord(c)) {
      while (at_ < ptx_.size() && InWord(ptx_[at_])) ++at_;
      return ptx_.substr(begin, at_ - begin);
    } else {
      ++at_;
      if (!std::isspace(static_cast<unsigned char>(c))) return ptx_.substr(begin, 1);
    }
  }
  return {};
}

}  // namespace detshare::images
