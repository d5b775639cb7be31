// The names that the daemon knows: for completions of shells, and for hints to a person who has
// mistyped one.
#pragma once

#include <string>
#include <vector>

namespace detshare::ctl {

// Asks the daemon at `socket` for the names of a kind: "tenants" (with settings or sessions),
// "policies", "sessions" (their numbers) or "endpoints". Returns none if the daemon refuses, or
// does not reply within three seconds.
std::vector<std::string> NamesOf(const std::string& kind, const std::string& socket);

// "Did you mean train?\n"; "" if `name` is known or resembles no known name.
std::string HintAt(const std::string& name, const std::vector<std::string>& known);

// `detsharectl names KIND`: prints a name a line. Completions call it.
int PrintNames(const std::string& kind, const std::string& socket);

}  // namespace detshare::ctl
