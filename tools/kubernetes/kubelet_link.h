// Serves each plugin on a socket in kubelet's directory and registers it with kubelet.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/kubernetes/served_socket.h"
#include "tools/kubernetes/share_service.h"

namespace detshare::kubernetes {

// Only one thread may use it.
class KubeletLink {
 public:
  // `directory` is kubelet's /var/lib/kubelet/device-plugins. `services` must outlive this object.
  KubeletLink(std::string directory, std::string domain, std::vector<ShareService*> services);
  ~KubeletLink();  // removes the sockets
  KubeletLink(const KubeletLink&) = delete;
  KubeletLink& operator=(const KubeletLink&) = delete;

  // Readable when something in the directory has changed. Then the caller calls Tend().
  int events_fd() const { return inotify_; }

  // Serves and registers the plugins that the running kubelet does not know. Kubelet removes all
  // sockets and forgets all plugins when it starts. Returns Ok when all plugins are registered,
  // and NotFound when kubelet does not run. Other errors are kubelet's or those of serving; the
  // caller tries again later.
  absl::Status Tend();

 private:
  struct Plugin {
    ShareService* service;
    std::string endpoint;  // the name of its socket
    ServedSocket socket;
  };

  absl::Status Register(const Plugin& plugin);
  // Watches the directory, if it is there. It may be watched already.
  bool Watch();
  void DrainEvents();

  const std::string directory_, domain_;
  std::vector<Plugin> plugins_;
  int inotify_ = -1;
  SocketFile kubelet_;  // the kubelet that knows all plugins
};

}  // namespace detshare::kubernetes
