// `detsharectl cdi`: tells container runtimes of the open tenant endpoints, as devices
// `detshare.io/gpu=ENDPOINT` of the Container Device Interface.
#pragma once

#include <string>

namespace detshare::ctl {

struct CdiOptions {
  std::string socket;                  // of the daemon
  std::string libraries;               // the directory of the libraries for containers; "": found
  std::string directory = "/etc/cdi";  // where runtimes look for specifications
};

// Both return an exit code. After an error, a message is on stderr.

// Prints a specification of the endpoints that are open now.
int PrintCdi(const CdiOptions& options);
// Keeps `detshare.json` in the directory equal to the open endpoints, until SIGTERM or SIGINT.
// Without endpoints there is no file, because a specification needs a device. While the daemon does
// not reply, the file stays: endpoints outlive the daemon.
int WatchCdi(const CdiOptions& options);

}  // namespace detshare::ctl
