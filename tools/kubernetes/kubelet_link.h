// The plugins at kubelet: a socket for each in kubelet's directory, and their registration.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/kubernetes/share_service.h"

namespace detshare::kubernetes {

// One thread.
class KubeletLink {
 public:
  // `directory`: kubelet's /var/lib/kubelet/device-plugins. The services outlive it.
  KubeletLink(std::string directory, std::string domain, std::vector<ShareService*> services);
  ~KubeletLink();  // the sockets go
  KubeletLink(const KubeletLink&) = delete;
  KubeletLink& operator=(const KubeletLink&) = delete;

  // Readable when something in the directory has changed: time for Tend().
  int events_fd() const { return inotify_; }

  // Serves and registers what is not served and registered with the kubelet that is there now:
  // kubelet removes all sockets when it starts, and knows nobody. Ok when all is well; NotFound
  // when kubelet is not there; else what it answered, and it is worth to try again later.
  absl::Status Tend();

 private:
  // A file's name may be used again, and its number, too.
  struct File {
    bool there = false;
    ino_t inode = 0;
    int64_t changed_ns = 0;
    bool operator==(const File&) const = default;
  };
  struct Plugin {
    ShareService* service = nullptr;
    std::string endpoint;  // the socket's name
    std::unique_ptr<grpc::Server> server;
    File socket;
  };

  static File Look(const std::string& path);
  absl::Status Serve(Plugin& plugin);
  absl::Status Register(const Plugin& plugin);
  void DrainEvents();

  const std::string directory_, domain_;
  std::vector<Plugin> plugins_;
  int inotify_ = -1;
  File kubelet_;  // with which all are registered
};

}  // namespace detshare::kubernetes
