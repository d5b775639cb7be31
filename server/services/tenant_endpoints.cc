#include "server/services/tenant_endpoints.h"

#include <fcntl.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "policy/config/config.h"
#include "policy/status_macros.h"
#include "proto/owner.h"
#include "server/access/acceptor.h"
#include "server/access/descriptor_share.h"
#include "server/base/errno_text.h"
#include "server/base/grpc_status.h"
#include "server/base/kept_file.h"
#include "server/base/logging.h"
#include "server/base/remove_tree.h"
#include "server/services/admin_common.h"

namespace detshare {
namespace {

constexpr char kSocketName[] = "detshared.sock";
constexpr char kFolder[] = "endpoints";
constexpr char kSessions[] = "sessions";
// The directories of closed endpoints until they are removed. No endpoint has such a name.
constexpr char kDiscarded[] = ".closed-";
constexpr size_t kMaxListBytes = 16 << 20;

absl::Status ErrnoStatus(int error, const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", ErrnoText(error)));
}

absl::Status NoEndpoint(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("there is no endpoint \"", name, "\""));
}

std::string ByDescriptor(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

// An endpoint's name is also the name of a directory. So it must not be hidden or lead elsewhere.
// The daemon's own files beside the directories begin with a dot: no endpoint has their names.
bool IsEndpointName(const std::string& name) {
  return IsTenantName(name) && absl::ascii_isalnum(static_cast<unsigned char>(name.front()));
}

std::string DirectoryOf(const std::string& endpoint) {
  return absl::StrCat(kFolder, "/", endpoint);
}

int OpenDirectory(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Creates `path`, which exists already at most if `may_exist`. Returns a descriptor of the directory;
// the caller closes it.
absl::StatusOr<int> MakeDirectory(const std::string& path, mode_t mode, bool may_exist = true) {
  if (mkdir(path.c_str(), mode) != 0 && (errno != EEXIST || !may_exist))
    return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
  const int fd = OpenDirectory(path);
  if (fd < 0 || fchmod(fd, mode) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return ErrnoStatus(error, absl::StrCat("cannot open ", path));
  }
  return fd;
}

// Moves the endpoint's directory to a free name that no endpoint has. Returns the new path, or
// nothing if there was no directory.
absl::StatusOr<std::string> MoveAside(const std::string& endpoints, const std::string& name) {
  const std::string path = absl::StrCat(endpoints, "/", name);
  std::string aside;
  struct stat status {};
  int number = 0;
  do {
    aside = absl::StrCat(endpoints, "/", kDiscarded, number++);
  } while (lstat(aside.c_str(), &status) == 0);
  if (rename(path.c_str(), aside.c_str()) == 0) return aside;
  if (errno == ENOENT) return std::string();
  return ErrnoStatus(errno, absl::StrCat("cannot move the old directory of endpoint ", name,
                                         " aside; remove ", path, ", then open it again"));
}

// Returns the directories that an earlier daemon could not remove, or had no time to.
std::vector<std::string> DiscardedIn(const std::string& endpoints) {
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(endpoints, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (absl::StartsWith(entry->path().filename().string(), kDiscarded))
      found.push_back(entry->path().string());
  }
  return found;
}

// Earlier versions kept the list at a name that an endpoint may have. So only a file can be the list.
void TakeListOfEarlierVersion(const std::string& endpoints, const std::string& list) {
  const std::string before = absl::StrCat(endpoints, "/list");
  struct stat status {};
  if (lstat(list.c_str(), &status) == 0 || errno != ENOENT) return;
  if (lstat(before.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid())
    return;
  if (rename(before.c_str(), list.c_str()) != 0)
    LogWarning("cannot rename ", before, " to ", list, ": ", ErrnoText(errno),
               "; the earlier daemon's endpoints are not opened again");
}

proto::EndpointUse ToMessage(const EndpointUse::Figures& figures) {
  proto::EndpointUse use;
  use.set_sessions(figures.sessions);
  use.set_gpu_time_ns(figures.gpu_time);
  use.set_peak_memory(figures.peak_memory);
  return use;
}

// Makes a listening socket in the directory. It is made at `beside`, where only the daemon can
// write, and then moved, so that no client can put something in its way.
absl::StatusOr<int> ListenIn(int directory_fd, const std::string& beside) {
  absl::StatusOr<int> fd = ListenOn(beside, 0666);
  if (!fd.ok()) return fd;
  const std::string path = absl::StrCat(ByDescriptor(directory_fd), "/", kSocketName);
  if (rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    close(*fd);
    unlink(beside.c_str());
    return ErrnoStatus(error, "cannot move a socket to its endpoint");
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TenantEndpoints>> TenantEndpoints::Create(
    const std::string& runtime_directory, EndpointHost& host, Owners& owners) {
  std::unique_ptr<TenantEndpoints> endpoints(
      new TenantEndpoints(absl::StrCat(runtime_directory, "/", kFolder), host, owners));
  DETSHARE_ASSIGN_OR_RETURN(const int fd, MakeDirectory(endpoints->directory_, 0700));
  close(fd);
  for (const std::string& path : DiscardedIn(endpoints->directory_)) RemoveTree(path);
  TakeListOfEarlierVersion(endpoints->directory_, endpoints->ListFile());
  endpoints->Restore();
  return endpoints;
}

size_t TenantEndpoints::Limit() { return ShareOfDescriptors(8, kMaxEndpoints); }

TenantEndpoints::TenantEndpoints(std::string directory, EndpointHost& host, Owners& owners)
    : directory_(std::move(directory)), host_(host), owners_(owners) {}

TenantEndpoints::~TenantEndpoints() {
  StopAccepting();
  const MutexLock lock(&mutex_);
  SaveUse();  // with that of sessions that have ended since
}

void TenantEndpoints::StopAccepting() {
  const MutexLock lock(&mutex_);
  if (stopped_) return;
  stopped_ = true;
  for (auto& [name, open] : endpoints_) {
    if (open.listen_fd >= 0) host_.Stop(open.listen_fd);
    open.listen_fd = -1;
  }
  SaveUse();
}

void TenantEndpoints::SaveUse() {
  if (!endpoints_.empty()) Save();
}

absl::StatusOr<TenantEndpoints::Opened> TenantEndpoints::Open(const proto::TenantEndpoint& wanted) {
  if (!IsEndpointName(wanted.name())) {
    return absl::InvalidArgumentError(
        "an endpoint's name has 1 to 64 letters, digits, or any of -_.@, and begins with a letter "
        "or digit");
  }
  DETSHARE_RETURN_IF_ERROR(CheckOwner(wanted.owner()));
  absl::Status made;
  Opened opened;
  {
    const MutexLock lock(&mutex_);
    if (stopped_) return absl::UnavailableError("the daemon ends");
    const size_t limit = Limit();
    if (endpoints_.size() >= limit && endpoints_.count(wanted.name()) == 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "there are ", endpoints_.size(), " endpoints already",
          limit < kMaxEndpoints
              ? ", as many as fit the descriptors that the daemon may have: raise LimitNOFILE= of "
                "its service, or its ulimit -n"
              : ""));
    }
    made = Make(wanted, /*in_place=*/false);
    Save();  // an earlier endpoint of the name may be closed in any case
    if (made.ok()) opened = {DirectoryOf(wanted.name()), endpoints_.at(wanted.name()).endpoint};
  }
  RemoveDiscarded();
  DETSHARE_RETURN_IF_ERROR(made);
  return opened;
}

absl::Status TenantEndpoints::Discard(const std::string& name) {
  DETSHARE_ASSIGN_OR_RETURN(std::string aside, MoveAside(directory_, name));
  if (!aside.empty()) discarded_.push_back(std::move(aside));
  return absl::OkStatus();
}

void TenantEndpoints::RemoveDiscarded() {
  std::vector<std::string> discarded;
  {
    const MutexLock lock(&mutex_);
    discarded.swap(discarded_);
  }
  for (const std::string& path : discarded) RemoveTree(path);
}

absl::StatusOr<std::shared_ptr<const TenantEndpoint>> TenantEndpoints::SetOwner(
    const proto::EndpointOwner& wanted) {
  DETSHARE_RETURN_IF_ERROR(CheckOwner(wanted.owner()));
  const MutexLock lock(&mutex_);
  const auto found = endpoints_.find(wanted.name());
  if (found == endpoints_.end()) return NoEndpoint(wanted.name());
  OpenEndpoint& open = found->second;
  open.owner = wanted.owner();
  owners_.Set(open.endpoint->number, open.endpoint->name, open.endpoint->tenant, open.owner);
  Save();
  return open.endpoint;
}

absl::Status TenantEndpoints::Make(const proto::TenantEndpoint& wanted, bool in_place) {
  OpenEndpoint open;
  open.endpoint = std::make_shared<TenantEndpoint>();
  TenantEndpoint& endpoint = *open.endpoint;
  endpoint.number = in_place && wanted.number() != 0 ? wanted.number() : next_;
  endpoint.name = wanted.name();
  DETSHARE_ASSIGN_OR_RETURN(endpoint.device_ids, host_.DevicesOf({wanted.device_ids().begin(),
                                                                  wanted.device_ids().end()}));
  open.allocator = wanted.allocator();
  if (!in_place) DETSHARE_RETURN_IF_ERROR(CheckAllocator(open.allocator, endpoint.device_ids));
  open.setting = wanted.tenant();
  if (open.setting.name().empty()) open.setting.set_name(wanted.name());
  endpoint.tenant = open.setting.name();
  DETSHARE_RETURN_IF_ERROR(host_.SetTenant(endpoint.number, open.setting));

  absl::Status free = absl::OkStatus();
  if (in_place) {
    const proto::EndpointUse& before = wanted.use();
    endpoint.use.Add({before.sessions(), before.gpu_time_ns(), before.peak_memory()});
  } else {
    CloseLocked(endpoint.name).status().IgnoreError();
    // A daemon that was killed may have left one.
    free = Discard(endpoint.name);
  }
  const absl::StatusOr<int> listening =
      free.ok() ? MakeSocket(endpoint, in_place) : absl::StatusOr<int>(free);
  if (!listening.ok()) {
    // Sessions may go on in the directory of an earlier daemon, and keep their limits.
    if (in_place) return listening.status();
    // Its settings go with it, and its number is not given again.
    next_ = std::max(next_, endpoint.number) + 1;
    endpoint.closed.store(true, std::memory_order_seq_cst);
    host_.End(endpoint);
    if (const absl::Status discarded = Discard(endpoint.name); !discarded.ok())
      LogWarning(std::string(discarded.message()));
    return listening.status();
  }
  open.listen_fd = *listening;
  next_ = std::max(next_, endpoint.number) + 1;
  open.owner = wanted.owner();
  owners_.Set(endpoint.number, endpoint.name, endpoint.tenant, open.owner);
  host_.Begin(open.listen_fd, open.endpoint);
  endpoints_[endpoint.name] = std::move(open);
  return absl::OkStatus();
}

absl::StatusOr<int> TenantEndpoints::MakeSocket(TenantEndpoint& endpoint, bool in_place) const {
  const absl::StatusOr<int> fd = MakeDirectory(absl::StrCat(directory_, "/", endpoint.name), 0711,
                                               /*may_exist=*/in_place);
  if (!fd.ok()) return fd.status();
  if (in_place) {
    // What stays is the container's own.
    const absl::Status removed = TryRemoveContents(*fd, host_.SessionsGoOn() ? kSessions : "");
    if (!removed.ok()) LogWarning("endpoint ", endpoint.name, ": ", std::string(removed.message()));
  }
  const absl::StatusOr<int> sessions =
      MakeDirectory(absl::StrCat(ByDescriptor(*fd), "/", kSessions), 0711);
  absl::StatusOr<int> listening = sessions;
  if (sessions.ok()) {
    endpoint.sessions_fd = *sessions;
    endpoint.sessions_directory = ByDescriptor(*sessions);
    listening = ListenIn(*fd, absl::StrCat(directory_, "/.socket"));
  }
  close(*fd);
  return listening;
}

absl::Status TenantEndpoints::CheckAllocator(const std::string& allocator,
                                             const std::vector<std::string>& device_ids) const {
  if (allocator.empty()) return absl::OkStatus();
  for (const auto& [name, open] : endpoints_) {
    if (open.allocator.empty() || open.allocator == allocator) continue;
    const std::vector<std::string>& theirs = open.endpoint->device_ids;
    // No devices stand for all.
    bool shared = device_ids.empty() || theirs.empty();
    for (const std::string& id : device_ids)
      shared = shared || std::find(theirs.begin(), theirs.end(), id) != theirs.end();
    if (!shared) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "its device belongs to ", open.allocator, ", which has endpoint ", name,
        " there: end the programs that use it, then run detsharectl endpoint close ", name));
  }
  return absl::OkStatus();
}

absl::StatusOr<TenantEndpoints::Opened> TenantEndpoints::Change(
    const proto::TenantEndpoint& wanted) {
  const MutexLock lock(&mutex_);
  if (stopped_) return absl::UnavailableError("the daemon ends");
  const auto found = endpoints_.find(wanted.name());
  if (found == endpoints_.end()) return NoEndpoint(wanted.name());
  OpenEndpoint& open = found->second;
  DETSHARE_ASSIGN_OR_RETURN(
      const std::vector<std::string> device_ids,
      host_.DevicesOf({wanted.device_ids().begin(), wanted.device_ids().end()}));
  if (device_ids != open.endpoint->device_ids)
    return absl::InvalidArgumentError("an open endpoint's devices cannot change");
  if (!wanted.tenant().name().empty() && wanted.tenant().name() != open.endpoint->tenant)
    return absl::InvalidArgumentError("an open endpoint's tenant cannot change");
  proto::TenantSetting setting = open.setting;
  setting.MergeFrom(wanted.tenant());
  DETSHARE_RETURN_IF_ERROR(host_.SetTenant(open.endpoint->number, setting));
  open.setting = std::move(setting);
  Save();
  return Opened{DirectoryOf(wanted.name()), open.endpoint};
}

absl::StatusOr<TenantEndpoints::Closed> TenantEndpoints::Close(const std::string& name) {
  absl::StatusOr<Closed> closed = NoEndpoint(name);
  {
    const MutexLock lock(&mutex_);
    closed = CloseLocked(name);
    if (closed.ok()) Save();
  }
  RemoveDiscarded();
  return closed;
}

absl::StatusOr<TenantEndpoints::Closed> TenantEndpoints::CloseLocked(const std::string& name) {
  const auto found = endpoints_.find(name);
  if (found == endpoints_.end()) return NoEndpoint(name);
  const OpenEndpoint open = std::move(found->second);
  endpoints_.erase(found);
  // Closed before End() looks for open sessions, so a session that is requested later is refused.
  open.endpoint->closed.store(true, std::memory_order_seq_cst);
  if (open.listen_fd >= 0) host_.Stop(open.listen_fd);
  host_.End(*open.endpoint);
  owners_.Close(open.endpoint->number);
  if (const absl::Status discarded = Discard(name); !discarded.ok())
    LogWarning(std::string(discarded.message()));
  return Closed{ToMessage(open.endpoint->use.total()), open.endpoint};
}

proto::EndpointList TenantEndpoints::List() const {
  const MutexLock lock(&mutex_);
  proto::EndpointList list;
  for (const auto& [name, open] : endpoints_) {
    proto::TenantEndpoint* const one = list.add_endpoints();
    one->set_name(name);
    one->mutable_tenant()->set_name(open.endpoint->tenant);
    one->set_allocator(open.allocator);
    *one->mutable_owner() = open.owner;
    one->set_directory(DirectoryOf(name));
    for (const std::string& id : open.endpoint->device_ids) one->add_device_ids(id);
  }
  return list;
}

void TenantEndpoints::Save() {
  proto::EndpointList list;
  for (const auto& [name, open] : endpoints_) {
    proto::TenantEndpoint* const one = list.add_endpoints();
    one->set_name(name);
    *one->mutable_tenant() = open.setting;
    one->set_allocator(open.allocator);
    *one->mutable_owner() = open.owner;
    one->set_number(open.endpoint->number);
    *one->mutable_use() = ToMessage(open.endpoint->use.total());
    for (const std::string& id : open.endpoint->device_ids) one->add_device_ids(id);
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(list, &text);
  const absl::Status written = WriteKeptFile(ListFile(), text);
  const bool before = std::exchange(unsaved_, !written.ok());
  if (!written.ok()) save_timer_.Start();
  if (written.ok() && before) LogInfo(ListFile(), " is written again");
  if (!written.ok() && !before) {
    LogWarning(
        std::string(written.message()),
        "; a daemon that replaces this one will not know its endpoints as they are until that "
        "succeeds: free space there");
  }
}

void TenantEndpoints::SaveAgain() {
  save_timer_.Clear();
  const MutexLock lock(&mutex_);
  if (unsaved_) Save();
}

void TenantEndpoints::Restore() {
  const absl::StatusOr<std::string> text = ReadKeptFile(ListFile(), kMaxListBytes);
  if (absl::IsNotFound(text.status())) return;
  proto::EndpointList list;
  if (!text.ok() || !google::protobuf::TextFormat::ParseFromString(*text, &list)) {
    LogWarning("the earlier daemon's list of endpoints is damaged: none is opened again");
    return;
  }
  const MutexLock lock(&mutex_);
  for (proto::TenantEndpoint& endpoint : *list.mutable_endpoints()) {
    // The owner is for display, and must not cost the endpoint.
    if (!CheckOwner(endpoint.owner()).ok()) endpoint.clear_owner();
    absl::Status made = IsEndpointName(endpoint.name())
                            ? Make(endpoint, /*in_place=*/true)
                            : absl::InvalidArgumentError("the name is not valid for an endpoint");
    if (!made.ok())
      LogWarning("endpoint ", endpoint.name(),
                 " is not opened again: ", std::string(made.message()));
  }
}

// ---- the service

absl::StatusOr<Peer> TenantEndpointService::MayAdminister(
    grpc::CallbackServerContext* context) const {
  DETSHARE_ASSIGN_OR_RETURN(Peer peer, peers_.Find(context->peer()));
  DETSHARE_RETURN_IF_ERROR(identity_.MayAdminister(peer));
  return peer;
}

void TenantEndpointService::Note(const Peer& peer, const TenantEndpoint& endpoint,
                                 const std::string& what) {
  LogInfo("endpoint ", endpoint.name, " ", what, " (", Who(peer), ")");
  DaemonEvent event = EventBy(peer, DaemonEvent::Kind::kEndpoint, endpoint.tenant,
                              absl::StrCat("endpoint ", endpoint.name, " ", what));
  event.endpoint = endpoint.number;
  events_.Add(std::move(event));
}

grpc::ServerUnaryReactor* TenantEndpointService::OpenEndpoint(grpc::CallbackServerContext* context,
                                                              const proto::TenantEndpoint* wanted,
                                                              proto::OpenedEndpoint* reply) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  absl::StatusOr<TenantEndpoints::Opened> opened = endpoints_.Open(*wanted);
  if (!opened.ok()) return FinishUnary(context, opened.status());
  Note(*peer, *opened->endpoint, "is open");
  reply->set_directory(std::move(opened->directory));
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* TenantEndpointService::SetEndpointOwner(
    grpc::CallbackServerContext* context, const proto::EndpointOwner* wanted,
    proto::EndpointOwner* in_force) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  const auto endpoint = endpoints_.SetOwner(*wanted);
  if (!endpoint.ok()) return FinishUnary(context, endpoint.status());
  Note(*peer, **endpoint,
       IsEmpty(wanted->owner()) ? "has no known owner"
                                : absl::StrCat("belongs to ", OwnerText(wanted->owner())));
  *in_force = *wanted;
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* TenantEndpointService::ChangeEndpoint(
    grpc::CallbackServerContext* context, const proto::TenantEndpoint* wanted,
    proto::OpenedEndpoint* reply) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  absl::StatusOr<TenantEndpoints::Opened> changed = endpoints_.Change(*wanted);
  if (!changed.ok()) return FinishUnary(context, changed.status());
  Note(*peer, *changed->endpoint, "has other settings");
  reply->set_directory(std::move(changed->directory));
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* TenantEndpointService::CloseEndpoint(
    grpc::CallbackServerContext* context, const proto::CloseEndpointRequest* request,
    proto::CloseEndpointReply* reply) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  absl::StatusOr<TenantEndpoints::Closed> closed = endpoints_.Close(request->name());
  if (!closed.ok()) return FinishUnary(context, closed.status());
  Note(*peer, *closed->endpoint, "is closed");
  *reply->mutable_use() = std::move(closed->use);
  return FinishUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* TenantEndpointService::GetEndpoints(grpc::CallbackServerContext* context,
                                                              const proto::GetEndpointsRequest*,
                                                              proto::EndpointList* list) {
  const absl::StatusOr<Peer> peer = MayAdminister(context);
  if (!peer.ok()) return FinishUnary(context, peer.status());
  *list = endpoints_.List();
  return FinishUnary(context, absl::OkStatus());
}

}  // namespace detshare
