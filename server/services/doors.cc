#include "server/services/doors.h"

#include <fcntl.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/server_posix.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "coroutine_runtime/status_cuda.h"
#include "policy/config/config.h"
#include "server/base/grpc_limits.h"
#include "server/base/logging.h"

namespace detshare {
namespace {

constexpr char kSocketName[] = "detshared.sock";
constexpr char kFolder[] = "doors";

absl::Status ErrnoStatus(int error, const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::generic_category().message(error)));
}

std::string ByDescriptor(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

// The name is also that of a directory: none that is hidden, or leads elsewhere.
bool IsDoorName(const std::string& name) {
  return IsTenantName(name) && absl::ascii_isalnum(static_cast<unsigned char>(name.front()));
}

int OpenDirectory(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Makes `path` unless it is there. The descriptor of the directory.
absl::StatusOr<int> MakeDirectory(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
    return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
  const int fd = OpenDirectory(path);
  if (fd < 0 || fchmod(fd, mode) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return ErrnoStatus(error, absl::StrCat("cannot open ", path));
  }
  return fd;
}

void RemoveContents(int directory_fd) {
  std::error_code error;
  std::filesystem::directory_iterator entry(ByDescriptor(directory_fd), error), end;
  for (; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    std::filesystem::remove_all(entry->path(), ignored);
  }
}

// A socket in the directory. It is made beside, where nobody but the daemon can put something in
// its way, and moved.
absl::StatusOr<int> ListenIn(int directory_fd, const std::string& beside) {
  absl::StatusOr<int> fd = ListenOn(beside, 0666);
  if (!fd.ok()) return fd;
  const std::string path = absl::StrCat(ByDescriptor(directory_fd), "/", kSocketName);
  if (rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    close(*fd);
    unlink(beside.c_str());
    return ErrnoStatus(error, "cannot move a socket to its door");
  }
  return fd;
}

}  // namespace

Doors::OpenDoor::~OpenDoor() {
  acceptor.reset();
  if (listen_fd >= 0) close(listen_fd);
}

absl::StatusOr<std::unique_ptr<Doors>> Doors::Create(SessionManager& manager, Settings& settings,
                                                     Telemetry& telemetry, PeerTable& peers,
                                                     const Identity& identity, bool strict) {
  std::unique_ptr<Doors> doors(new Doors(manager, settings, telemetry, peers, identity, strict));
  if (strict) return doors;
  DETSHARE_ASSIGN_OR_RETURN(const int fd, MakeDirectory(doors->directory_, 0700));
  close(fd);
  grpc::ServerBuilder builder;
  builder.RegisterService(&doors->control_);
  builder.RegisterService(&doors->telemetry_);
  SetLimits(&builder);
  doors->grpc_ = builder.BuildAndStart();
  if (doors->grpc_ == nullptr) return absl::InternalError("gRPC does not start");
  doors->Restore();
  return doors;
}

Doors::Doors(SessionManager& manager, Settings& settings, Telemetry& telemetry, PeerTable& peers,
             const Identity& identity, bool strict)
    : manager_(manager),
      settings_(settings),
      peers_(peers),
      directory_(absl::StrCat(manager.options().runtime_directory, "/", kFolder)),
      strict_(strict),
      control_(manager, peers, identity, /*directory_for_clients=*/""),
      telemetry_(telemetry, peers) {}

Doors::~Doors() {
  StopAccepting();
  Shutdown();
}

void Doors::StopAccepting() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  for (auto& [name, open] : doors_) open->acceptor.reset();
}

void Doors::Shutdown() {
  if (grpc_ == nullptr) return;
  grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  grpc_->Wait();
  grpc_.reset();
}

absl::StatusOr<std::string> Doors::Open(const proto::Door& wanted) {
  if (strict_) {
    return absl::FailedPreconditionError(
        "there are no doors with strict isolation, where each user has a daemon of its own");
  }
  if (!IsDoorName(wanted.name())) {
    return absl::InvalidArgumentError(
        "a door's name has 1 to 64 letters, digits, or any of -_.@, and begins with a letter or a "
        "digit");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return absl::UnavailableError("the daemon ends");
  if (doors_.size() >= kMostDoors && doors_.count(wanted.name()) == 0)
    return absl::ResourceExhaustedError(absl::StrCat("there are ", kMostDoors, " doors already"));
  DETSHARE_RETURN_IF_ERROR(Make(wanted, /*in_place=*/false));
  Save();
  return absl::StrCat(kFolder, "/", wanted.name());
}

absl::Status Doors::Make(const proto::Door& wanted, bool in_place) {
  auto open = std::make_unique<OpenDoor>();
  open->door = std::make_shared<Door>();
  Door& door = *open->door;
  door.name = wanted.name();
  absl::StatusOr<std::vector<int>> devices =
      manager_.ChooseDevices({wanted.device_ids().begin(), wanted.device_ids().end()});
  if (!devices.ok()) return devices.status();
  for (const int index : *devices)
    door.device_ids.push_back(FormatUuid(manager_.devices()[index]->properties().uuid));
  open->setting = wanted.tenant();
  if (open->setting.name().empty()) open->setting.set_name(wanted.name());
  door.tenant = open->setting.name();
  absl::StatusOr<proto::TenantSetting> tenant = settings_.SetTenant(open->setting);
  if (!tenant.ok()) return tenant.status();

  if (!in_place) CloseLocked(door.name).IgnoreError();
  const absl::StatusOr<int> fd = MakeDirectory(absl::StrCat(directory_, "/", door.name), 0711);
  if (!fd.ok()) return fd.status();
  RemoveContents(*fd);
  const absl::StatusOr<int> sessions =
      MakeDirectory(absl::StrCat(ByDescriptor(*fd), "/sessions"), 0711);
  absl::StatusOr<int> listening = sessions;
  if (sessions.ok()) {
    door.sessions_fd = *sessions;
    door.sessions_directory = ByDescriptor(*sessions);
    listening = ListenIn(*fd, absl::StrCat(directory_, "/.socket"));
  }
  close(*fd);
  if (!listening.ok()) return listening.status();
  open->listen_fd = *listening;
  grpc::Server* const server = grpc_.get();
  open->acceptor = std::make_unique<Acceptor>(
      open->listen_fd, peers_, [server](int fd) { grpc::AddInsecureChannelFromFd(server, fd); },
      open->door);
  doors_[door.name] = std::move(open);
  return absl::OkStatus();
}

absl::Status Doors::Close(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  absl::Status closed = CloseLocked(name);
  if (closed.ok()) Save();
  return closed;
}

absl::Status Doors::CloseLocked(const std::string& name) {
  const auto found = doors_.find(name);
  if (found == doors_.end()) return absl::NotFoundError(absl::StrCat("there is no such door"));
  const std::shared_ptr<Door> door = found->second->door;
  doors_.erase(found);
  // Before those that are open are looked for: whoever asks from now on is refused.
  door->closed.store(true, std::memory_order_seq_cst);
  manager_.EndThrough(*door, kCudaErrorSystemNotReady, "the door was closed");
  std::error_code error;
  std::filesystem::remove_all(absl::StrCat(directory_, "/", name), error);
  if (error) LogWarning("cannot remove the directory of door ", name, ": ", error.message());
  return absl::OkStatus();
}

proto::DoorList Doors::List() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  proto::DoorList list;
  for (const auto& [name, open] : doors_) {
    proto::Door* const one = list.add_doors();
    one->set_name(name);
    one->mutable_tenant()->set_name(open->door->tenant);
    for (const std::string& id : open->door->device_ids) one->add_device_ids(id);
  }
  return list;
}

void Doors::Save() {
  proto::DoorList list;
  for (const auto& [name, open] : doors_) {
    proto::Door* const one = list.add_doors();
    one->set_name(name);
    *one->mutable_tenant() = open->setting;
    for (const std::string& id : open->door->device_ids) one->add_device_ids(id);
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(list, &text);
  const std::string file = directory_ + "/list", fresh = file + ".new";
  std::ofstream stream(fresh, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  if (!stream || rename(fresh.c_str(), file.c_str()) != 0)
    LogWarning("cannot write ", file, ": a daemon that replaces this one will not know its doors");
}

void Doors::Restore() {
  std::ifstream stream(directory_ + "/list", std::ios::binary);
  if (!stream) return;
  std::ostringstream text;
  text << stream.rdbuf();
  proto::DoorList list;
  if (!google::protobuf::TextFormat::ParseFromString(text.str(), &list)) {
    LogWarning("the list of doors of the daemon before is damaged: there are none");
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const proto::Door& door : list.doors()) {
    absl::Status made = IsDoorName(door.name())
                            ? Make(door, /*in_place=*/true)
                            : absl::InvalidArgumentError("its name is none for a door");
    if (!made.ok())
      LogWarning("door ", door.name(), " is not opened again: ", std::string(made.message()));
  }
}

// ---- the service

namespace {

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  // The codes have the same numbers.
  reactor->Finish({static_cast<grpc::StatusCode>(status.code()), std::string(status.message())});
  return reactor;
}

}  // namespace

absl::Status DoorService::MaySteer(grpc::CallbackServerContext* context, std::string* who) const {
  const std::optional<Peer> peer = peers_.Find(context->peer());
  if (!peer.has_value()) return absl::PermissionDeniedError("not a local connection");
  *who = absl::StrCat("uid ", peer->uid, ", pid ", peer->pid);
  return identity_.MaySteer(*peer);
}

grpc::ServerUnaryReactor* DoorService::OpenDoor(grpc::CallbackServerContext* context,
                                                const proto::Door* wanted,
                                                proto::OpenedDoor* opened) {
  std::string who;
  if (absl::Status allowed = MaySteer(context, &who); !allowed.ok())
    return Finish(context, allowed);
  absl::StatusOr<std::string> directory = doors_.Open(*wanted);
  if (!directory.ok()) return Finish(context, directory.status());
  LogInfo("door ", wanted->name(), " is open (", who, ")");
  opened->set_directory(*std::move(directory));
  return Finish(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* DoorService::CloseDoor(grpc::CallbackServerContext* context,
                                                 const proto::CloseDoorRequest* request,
                                                 proto::CloseDoorReply*) {
  std::string who;
  absl::Status result = MaySteer(context, &who);
  if (result.ok()) result = doors_.Close(request->name());
  if (result.ok()) LogInfo("door ", request->name(), " is closed (", who, ")");
  return Finish(context, result);
}

grpc::ServerUnaryReactor* DoorService::GetDoors(grpc::CallbackServerContext* context,
                                                const proto::GetDoorsRequest*,
                                                proto::DoorList* list) {
  std::string who;
  if (absl::Status allowed = MaySteer(context, &who); !allowed.ok())
    return Finish(context, allowed);
  *list = doors_.List();
  return Finish(context, absl::OkStatus());
}

}  // namespace detshare
