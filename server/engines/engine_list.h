// The supervisor's list of its engines, which lets the supervisor that replaces it find them.
//
// Only the supervisor writes the list, so an engine cannot claim to be that of another group. An
// engine's process runs as the same user, though, unless it has one of its own (docs/security.md).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/engine.pb.h"

namespace detshare {

// The list's file in the directory of all engines. No group's directory has this name.
std::string EngineListFile(const std::string& engines_directory);
absl::Status WriteEngineList(const std::string& file, const proto::EngineList& list);
// Returns an empty list if there is none. Logs why a list cannot be read.
proto::EngineList ReadEngineList(const std::string& file);

// Returns when the process began, in ticks since the host began; nothing if there is no such
// process, or it has ended.
std::optional<uint64_t> StartTimeOf(pid_t pid);
// Returns a pidfd of the listed process, which the caller owns; -1 if the process has ended.
int OpenListed(const proto::ListedEngine& engine);

}  // namespace detshare
