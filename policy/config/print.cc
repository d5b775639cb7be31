// Prints a text that is made from the table of settings: the example file, docs/configuration.md,
// or the source of the manual page. The build runs it.
#include <cstdio>
#include <string>

#include "policy/config/config_text.h"
#include "proto/version.h"

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  std::string text;
  if (what == "example") text = detshare::ExampleText();
  if (what == "markdown") text = detshare::ReferenceMarkdown();
  if (what == "man") text = detshare::ReferenceMan(detshare::kVersion);
  if (text.empty()) {
    std::fprintf(stderr, "print example|markdown|man\n");
    return 2;
  }
  return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
}
