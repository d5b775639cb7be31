// From the configuration to what the parts of the daemon take.
#pragma once

#include "server/backends.h"
#include "policy/config/config.h"
#include "server/daemon.h"
#include "server/strict/session_book.h"

namespace detshare {

// Fills in what the configuration decides and leaves the rest.
void ApplyConfig(const Config& config, Daemon::Options* daemon, BackendOptions* backend);
// ... and what depends on the backend that was opened, too: how long to spin, how much to stage.
void ApplyConfigOfBackend(const Config& config, const std::string& backend, ServerOptions* server);

// What a tenant may have that is not named.
TenantQuota DefaultQuota(const Config& config);
// How many sessions there may be, in all processes of the daemon.
SessionBook::Limits LimitsOfSessions(const Config& config);
// What one session may have; the rest of `limits` stays.
void ApplyLimits(const Config& config, SessionLimits* limits);

// Looks up users and groups. A name that does not exist is logged and means nobody.
TenantRules ResolveTenantRules(const Config& config);

}  // namespace detshare
