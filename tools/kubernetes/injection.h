// What a container gets: its door, where libcuda looks for the daemon, and the libraries, where the
// dynamic linker looks anyway. Nothing else: no device, no driver, no hook, no LD_LIBRARY_PATH that
// would hide an image's own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace detshare::kubernetes {

struct BindMount {
  std::string host, container;
  bool read_only = false;
};

struct Injection {
  std::vector<BindMount> mounts;  // of every container
  std::map<std::string, std::string> environment;
};

// The libraries of `library_directory` for every image with glibc, and what keeps other runtimes'
// hooks from adding a GPU.
Injection CommonInjection(const std::string& library_directory);
// The door `name` of the daemon whose socket lies in `run_directory`.
BindMount DoorMount(const std::string& run_directory, const std::string& name);

inline constexpr char kCdiKind[] = "detshare.io/share";

// A CDI specification, version 0.6 and older readers, of one device for each door.
std::string CdiSpec(const Injection& common, const std::string& run_directory,
                    const std::vector<std::string>& doors);
// Writes it as `detshare.json` to the directory, which is made when it is not there. Runtimes that
// watch the directory never see a part of it. Does nothing when it is there already.
absl::Status WriteCdiSpec(const std::string& directory, const std::string& text);

}  // namespace detshare::kubernetes
