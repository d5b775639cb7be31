// The configuration as texts: an example file, the settings in force, and the reference pages.
#pragma once

#include <string>

#include "policy/config/config.h"

namespace detshare {

// The file that packages install: every key as a comment, with its purpose and its default.
std::string ExampleText();
// The configuration as a file: settings that differ from their defaults, and the defaults as
// comments.
std::string ConfigText(const Config& config);
// The text of docs/configuration.md.
std::string ReferenceMarkdown();
// The source of the manual page detshare.toml(5).
std::string ReferenceMan(const std::string& version);

}  // namespace detshare
