#include "tools/kubernetes/served_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace detshare::kubernetes {

SocketFile LookAtSocket(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return {};
  return {true, status.st_ino,
          int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec};
}

ServedSocket::ServedSocket(std::string path, std::vector<grpc::Service*> services)
    : path_(std::move(path)), services_(std::move(services)) {}

ServedSocket::~ServedSocket() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

absl::StatusOr<bool> ServedSocket::Tend() {
  if (server_ != nullptr && LookAtSocket(path_) == file_) return false;
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
  unlink(path_.c_str());
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path_, grpc::InsecureServerCredentials());
  for (grpc::Service* service : services_) builder.RegisterService(service);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError(absl::StrCat("cannot serve at ", path_));
  file_ = LookAtSocket(path_);
  return true;
}

}  // namespace detshare::kubernetes
