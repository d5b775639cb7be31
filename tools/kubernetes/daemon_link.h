// What the plugin asks of the daemon.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.grpc.pb.h"
#include "proto/door.grpc.pb.h"
#include "tools/kubernetes/shares.h"

namespace detshare::kubernetes {

// Any thread.
class DaemonLink {
 public:
  // At the daemon's own socket, as root or the daemon's user.
  explicit DaemonLink(const std::string& socket);

  // The GPUs, in the daemon's order. Unavailable when no daemon answers within two seconds.
  absl::StatusOr<std::vector<Gpu>> Gpus();
  // Makes the door anew: whoever is behind the one of that name is put out. As the daemon answers.
  absl::Status OpenDoor(const proto::Door& door);

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<proto::Admin::Stub> admin_;
  const std::unique_ptr<proto::Doors::Stub> doors_;
};

}  // namespace detshare::kubernetes
