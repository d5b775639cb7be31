// `detsharectl config`: checks and shows the configuration file. Needs no daemon.
#pragma once

#include <string>
#include <vector>

#include "policy/config/config.h"
#include "policy/config/config_file.h"

namespace detshare::ctl {

// Both print their result and return an exit code: 0, or 1 if the file has mistakes or cannot be
// read. If `file` is empty, they read the service's file (kDefaultConfigFile).
int CheckConfig(const std::string& file, bool json);
int ShowConfig(const std::string& file, bool json);

// The mistakes of a file: those of ParseConfig() or, if it finds none, what keeps a daemon from
// starting with the file and without flags.
std::vector<ConfigProblem> MistakesOf(const ParsedConfig& parsed);

// Cautions() of a configuration without mistakes, and a line for each user, group and file that this
// host does not have. The file may be for another host.
std::vector<std::string> WarningsOf(const Config& config);

// All settings with their values: {"daemon": {"log_level": "info", ...}, ..., "tenant": [...]}. A
// default that depends on the machine is null.
std::string ConfigJson(const Config& config);

}  // namespace detshare::ctl
