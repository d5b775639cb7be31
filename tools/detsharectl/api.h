// `detsharectl api`: shows which driver entry points this build supports. Needs no daemon.
#pragma once

#include <string>

namespace detshare::ctl {

// Here `width` is that of text::Table::ToString().

struct ApiOptions {
  bool unsupported = false;  // show only entry points that are not supported in full
};

// One table for each family of calls, and the totals.
std::string ApiText(const ApiOptions& options, size_t width = 0);

// A JSON array with an object for each exported symbol.
std::string ApiJson(const ApiOptions& options);

}  // namespace detshare::ctl
