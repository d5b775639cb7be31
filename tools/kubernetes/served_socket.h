// A unix socket on which a plugin serves kubelet.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace detshare::kubernetes {

// Identifies a socket file. Neither the name nor the inode is enough, because both are reused.
struct SocketFile {
  bool there = false;
  ino_t inode = 0;
  int64_t changed_ns = 0;
  bool operator==(const SocketFile&) const = default;
};
SocketFile LookAtSocket(const std::string& path);

// Only one thread may use it.
class ServedSocket {
 public:
  // `services` must outlive this object.
  ServedSocket(std::string path, std::vector<grpc::Service*> services);
  ~ServedSocket();  // removes the socket
  ServedSocket(ServedSocket&&) = default;

  // Serves, unless it does so already and nobody has removed the socket. Returns whether it has just
  // begun.
  absl::StatusOr<bool> Tend();

 private:
  std::string path_;
  std::vector<grpc::Service*> services_;
  std::unique_ptr<grpc::Server> server_;
  SocketFile file_;
};

}  // namespace detshare::kubernetes
