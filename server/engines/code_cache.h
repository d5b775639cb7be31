// Where the driver keeps the code that it compiles in an engine.
//
// The driver reads the environment variable CUDA_CACHE_PATH. Engines with users of their own cannot
// share the daemon's folder, since one of them could leave code there for others. Each group has a
// folder in it.
#pragma once

#include <string>

#include "server/engines/engine_users.h"

namespace detshare {

// Makes the group's folder for an engine with that user, and returns its path; "" if all engines use
// this process's own. Logs why the engine cannot keep code there.
std::string CodeCacheFor(const EngineUser& user, const std::string& group);

// Returns the variable of an engine that begins, as "NAME=VALUE"; "": this process's own. `group` "": a
// spare engine, which gets its folder with its group (Assignment::cache).
std::string CodeCacheVariable(const EngineUser& user, const std::string& group);

}  // namespace detshare
