// Converts the configuration to the options of the daemon's parts.
#pragma once

#include "policy/config/config.h"
#include "server/backends.h"
#include "server/daemon.h"
#include "server/engines/isolation_group.h"
#include "server/engines/session_book.h"

namespace detshare {

namespace proto {
class Settings;
}

// Sets the options that the configuration decides and leaves the others.
void ApplyConfig(const Config& config, Daemon::Options* daemon, BackendOptions* backend);
// Does the same for the options that also depend on the opened backend: how long to spin, how much
// to stage.
void ApplyConfigOfBackend(const Config& config, const std::string& backend, ServerOptions* server);

// Sets the level of the process's log.
void ApplyLogLevel(const Config& config);

// Returns the limits of a tenant without limits of its own.
TenantQuota DefaultQuota(const Config& config);
// Returns which programs share an engine.
IsolationGroups GroupsOf(const Config& config);
// Returns how many sessions there may be, over all engines. `settings` are those in force, also
// those that operators have set.
SessionBook::Limits LimitsOfSessions(const Config& config, const proto::Settings& settings);
// Sets the limits of one session that the configuration decides and leaves the others.
void ApplyLimits(const Config& config, SessionLimits* limits);

// Looks up users and groups. A name that does not exist is logged and matches nobody.
TenantRules ResolveTenantRules(const Config& config);

}  // namespace detshare
