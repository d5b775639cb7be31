// detsharectl config: the configuration file, without a daemon.
#pragma once

#include <string>

#include "policy/config/config.h"

namespace detshare::ctl {

// Each prints, and returns an exit code: 0, or 1 for a file that has mistakes or cannot be read.
// `file` "": the service's.
int CheckConfig(const std::string& file, bool json);
int ShowConfig(const std::string& file, bool json);

// All that holds: {"daemon": {"log_level": "info", ...}, ..., "tenant": [...]}. What depends on the
// machine is null.
std::string ConfigJson(const Config& config);

}  // namespace detshare::ctl
