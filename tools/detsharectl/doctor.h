// `detsharectl doctor`: finds what is wrong on this host, and says what to do about it. Examine()
// makes the findings, FindingsText() and FindingsJson() show them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/admin.pb.h"

namespace detshare::ctl {

struct Finding {
  enum class Level {
    kOk,
    kUnknown,  // the doctor could not look at it
    kWarning,  // programs work, but not as well or as safely as they could
    kError,    // programs will fail
  };
  std::string check;  // "socket", "driver", ...: one word, which scripts can rely on
  Level level = Level::kOk;
  std::string text;
  std::string advice;  // what to do; "": nothing
};

// The host that is examined. Tests pass one of their own.
struct Host {
  std::string root;  // a directory in front of the system's paths; "" for the real system
  std::map<std::string, std::string> environment;
  std::string socket;                         // of the daemon, not below `root`
  std::string config_file;                    // not below `root`
  std::vector<std::string> shim_directories;  // where the launcher looks for the shim
  // The daemon's reply; without one, `no_status` says why there is none.
  std::optional<proto::Status> status;
  std::string no_status;
  std::string no_status_advice;
  bool refuses = false;  // it replies, but not to this operator, as a tenant endpoint does
};

// Each check makes one finding or more, always in the same order. Examine() changes nothing and
// needs no rights. Findings that need root are kUnknown for other users.
std::vector<Finding> Examine(const Host& host);

std::string FindingsText(const std::vector<Finding>& findings);
std::string FindingsJson(const std::vector<Finding>& findings);
// Whether a finding is an error.
bool Broken(const std::vector<Finding>& findings);

}  // namespace detshare::ctl
