// detsharectl doctor: what is wrong on this host, and what to do about it.
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
    kUnknown,  // could not be looked at
    kWarning,  // works, but not as well or as safely as it could
    kError,    // programs will fail
  };
  std::string check;  // "socket", "driver", ...: one word, which does not change
  Level level = Level::kOk;
  std::string text;
  std::string advice;  // what to do; "" when there is nothing to do
};

// What is looked at. Tests bring their own.
struct Host {
  std::string root;  // before the paths of the system; "" for the real one
  std::map<std::string, std::string> environment;
  std::string socket;                         // of the daemon, not below `root`
  std::string config_file;                    // not below `root`
  std::vector<std::string> shim_directories;  // where the launcher looks for the shim
  // What the daemon answered, or why it did not.
  std::optional<proto::Status> status;
  std::string no_status;
};

// One finding or more of each check, always in the same order. Changes nothing and needs no rights;
// what only root can see is kUnknown for others.
std::vector<Finding> Examine(const Host& host);

std::string FindingsText(const std::vector<Finding>& findings);
std::string FindingsJson(const std::vector<Finding>& findings);
// Whether there is an error.
bool Broken(const std::vector<Finding>& findings);

}  // namespace detshare::ctl
