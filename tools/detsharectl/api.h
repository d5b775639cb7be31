// `detsharectl api`: which driver entry points this build supports. Needs no daemon.
#pragma once

#include <string>

namespace detshare::ctl {

struct ApiOptions {
  bool unsupported = false;  // only what is not supported in full, each with its reason
};

// For people: one table a family, and the totals.
std::string ApiText(const ApiOptions& options);

// For machines: an array of objects, one an exported symbol.
std::string ApiJson(const ApiOptions& options);

}  // namespace detshare::ctl
