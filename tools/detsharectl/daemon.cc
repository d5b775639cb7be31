#include "tools/detsharectl/daemon.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "policy/config/config.h"
#include "proto/warning.h"

namespace detshare::ctl {
namespace {

// Returns the error of a connection to the socket; 0 if something listens there.
int ErrorOfConnection(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const int error =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  close(fd);
  return error;
}

// Returns "group NAME" if members of the socket's group may connect, else the name of its user.
std::string WhoMayConnect(const std::string& socket_path) {
  struct stat status {};
  if (stat(socket_path.c_str(), &status) != 0) return "root";
  char buffer[4096];
  if ((status.st_mode & S_IWGRP) == 0) {
    passwd entry{};
    passwd* found = nullptr;
    getpwuid_r(status.st_uid, &entry, buffer, sizeof(buffer), &found);
    return found != nullptr ? found->pw_name : absl::StrCat("uid ", status.st_uid);
  }
  group entry{};
  group* found = nullptr;
  getgrgid_r(status.st_gid, &entry, buffer, sizeof(buffer), &found);
  return found != nullptr ? absl::StrCat("group ", found->gr_name)
                          : absl::StrCat("group ", status.st_gid);
}

Failure NoReply(const std::string& socket_path) {
  switch (ErrorOfConnection(socket_path)) {
    case 0:
      return {absl::StrCat("detshared at ", socket_path, " accepts connections but does not reply"),
              "Read its log: journalctl -u detshared.", kExitNoDaemon};
    case EACCES:
    case EPERM:
      return {absl::StrCat("you have no permission to connect to ", socket_path, "; ",
                           WhoMayConnect(socket_path), " may"),
              "Use sudo. The socket's group and its mode say which users may connect (SocketMode= "
              "of the service, or socket_mode): join that group and log in again.",
              kExitRefused};
    default:
      return {absl::StrCat("no detshared replies at ", socket_path),
              "Start it (systemctl start detshared), or name another socket with --socket or "
              "DETSHARE_SOCKET.",
              kExitNoDaemon};
  }
}

}  // namespace

std::unique_ptr<proto::Admin::Stub> AdminAt(const std::string& socket) {
  // Only the daemon bounds the size of events and traces.
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return proto::Admin::NewStub(
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
}

Failure FailureOf(const grpc::Status& result, const std::string& socket) {
  if (socket.size() > kMaxSocketPath) {
    return {absl::StrCat(socket, " is too long for a socket's path"),
            absl::StrCat("Use a path of at most ", kMaxSocketPath, " characters."), kExitUsage};
  }
  switch (result.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return NoReply(socket);
    case grpc::StatusCode::UNIMPLEMENTED:
      if (!result.error_message().empty()) break;
      return {absl::StrCat(socket,
                           " serves no operators: it is a tenant endpoint, or belongs to "
                           "another version"),
              "Run detsharectl on the host, in the version of the daemon.", kExitRefused};
    default:
      break;
  }
  return {absl::StrCat("detshared refused: ",
                       result.error_message().empty()
                           ? absl::StrCat("gRPC error ", static_cast<int>(result.error_code()))
                           : result.error_message()),
          "", kExitRefused};
}

int Explain(const grpc::Status& result, const std::string& socket) {
  if (result.ok()) return 0;
  const Failure failure = FailureOf(result, socket);
  std::fprintf(stderr, "detsharectl: %s\n", failure.text.c_str());
  if (!failure.hint.empty()) std::fprintf(stderr, "%s\n", failure.hint.c_str());
  return failure.exit_code;
}

std::string WarningOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kWarningMetadata);
  if (found == metadata.end()) return "";
  return {found->second.data(), found->second.size()};
}

void PrintWarning(const grpc::ClientContext& context) {
  const std::string warning = WarningOf(context);
  if (!warning.empty()) std::fprintf(stderr, "detsharectl: %s\n", warning.c_str());
}

}  // namespace detshare::ctl
