// Looks up the users and groups that a configuration names on this host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace detshare {

// Return the number of the user or group, which may be named by its number. Nothing if this host has
// none of that name. May wait for a directory service.
std::optional<uint32_t> UserId(const std::string& name);
std::optional<uint32_t> GroupId(const std::string& name);

}  // namespace detshare
