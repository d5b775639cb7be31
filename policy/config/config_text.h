// The configuration for people: the file that is installed, what holds, and the reference.
#pragma once

#include <string>

#include "policy/config/config.h"

namespace detshare {

// A file in which every key stands as a comment, with its default and what it is for.
std::string ExampleText();
// The configuration as a file: what was said, and as comments what holds because nothing was.
std::string ConfigText(const Config& config);
// docs/configuration.md.
std::string ReferenceMarkdown();
// Source of the manual page detshare.toml(5).
std::string ReferenceMan(const std::string& version);

}  // namespace detshare
