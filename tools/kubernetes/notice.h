// A message for the log that is worth one line as long as it stays the same.
#pragma once

#include <cstdio>
#include <string>

namespace detshare::kubernetes {

// Prints a text only when it differs from the last one.
class Notice {
 public:
  void Say(const std::string& text) {
    if (text != last_ && !text.empty()) std::fprintf(stderr, "%s\n", text.c_str());
    last_ = text;
  }

 private:
  std::string last_;
};

}  // namespace detshare::kubernetes
