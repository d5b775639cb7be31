// Serves programs with one daemon in this process: all programs of the host or, as an engine, those
// of one isolation group.
#pragma once

#include <chrono>

#include "server/startup.h"

namespace detshare {

// How long an ending daemon waits for kernels that still run.
inline constexpr std::chrono::milliseconds kEndTimeout(4000);

// Serves until a signal or the supervisor asks for the end. Returns the exit code. A process that
// loses a device does not return: it executes itself again with the same socket or, as an engine,
// ends.
int ServeDaemon(Startup startup);

}  // namespace detshare
