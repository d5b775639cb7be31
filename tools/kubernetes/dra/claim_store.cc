#include "tools/kubernetes/dra/claim_store.h"

#include <fcntl.h>
#include <google/protobuf/text_format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "policy/status_macros.h"
#include "proto/owner.h"
#include "tools/kubernetes/dra/json_path.h"

namespace detshare::kubernetes {
namespace {

namespace fs = std::filesystem;

std::string Collection(const std::string& ns) {
  return absl::StrCat("/apis/resource.k8s.io/v1/namespaces/", Encode(ns), "/resourceclaims");
}

std::string NameOf(const record::PreparedClaim& claim) {
  return absl::StrCat("claim ", claim.namespace_(), "/", claim.name());
}

void Say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

absl::Status FileError(const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::generic_category().message(errno)));
}

// Replaces the file at once, and not before its bytes are on the disk.
absl::Status WriteFile(const std::string& path, absl::string_view text) {
  const std::string fresh = absl::StrCat(path, ".new");
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool written = fd >= 0;
  while (written && !text.empty()) {
    const ssize_t bytes = write(fd, text.data(), text.size());
    written = bytes > 0;
    if (written) text.remove_prefix(static_cast<size_t>(bytes));
  }
  written = written && fsync(fd) == 0;
  if (fd >= 0) close(fd);
  if (written && rename(fresh.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return FileError(absl::StrCat("cannot write ", path));
}

absl::Status OfDaemon(const absl::Status& status) {
  if (status.ok()) return status;
  return {status.code(), absl::StrCat("detshared: ", std::string(status.message()))};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClaimStore>> ClaimStore::Create(const ApiServer& api,
                                                               DaemonLink& daemon,
                                                               Options options) {
  std::error_code ignored;
  fs::create_directories(options.directory, ignored);
  const int lock =
      open((options.directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) return FileError(absl::StrCat("cannot use ", options.directory));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    close(lock);
    return absl::FailedPreconditionError(
        absl::StrCat("another detshare-dra-driver of this node uses ", options.directory));
  }
  std::unique_ptr<ClaimStore> store(new ClaimStore(api, daemon, std::move(options), lock));
  DETSHARE_RETURN_IF_ERROR(store->Load());
  return store;
}

ClaimStore::ClaimStore(const ApiServer& api, DaemonLink& daemon, Options options, int lock)
    : api_(api),
      daemon_(daemon),
      options_(std::move(options)),
      lock_(lock),
      status_(api, options_.pool) {}

ClaimStore::~ClaimStore() {
  std::map<std::string, Entry> entries;
  {
    const MutexLock lock(&mutex_);
    entries.swap(entries_);
  }
  entries.clear();  // without the mutex, for which their watches may wait
  close(lock_);
}

absl::Status ClaimStore::Load() {
  const MutexLock lock(&mutex_);
  std::ifstream stream(FileName(), std::ios::binary);
  if (stream) {
    std::ostringstream text;
    text << stream.rdbuf();
    record::PreparedClaims claims;
    if (!google::protobuf::TextFormat::ParseFromString(text.str(), &claims)) {
      std::error_code ignored;
      fs::rename(FileName(), FileName() + ".damaged", ignored);
      Say(absl::StrCat(FileName(),
                       " is damaged and set aside. The endpoints of claims stay open "
                       "until their claims are prepared again or the node restarts"));
      keep_unknown_ = true;
    }
    for (record::PreparedClaim& claim : *claims.mutable_claims()) {
      Entry& entry = entries_[claim.uid()];
      entry.claim = std::move(claim);
      entry.restored = true;
    }
    for (auto& [uid, entry] : entries_) Watch(entry);
  }
  return WriteCdi();
}

void ClaimStore::Watch(Entry& entry) {
  const std::string uid = entry.claim.uid();
  ObjectWatch::Callbacks callbacks;
  callbacks.listed = [this, uid](const std::vector<Json>& claims) { Seen(uid, claims); };
  callbacks.changed = [this, uid](const Json& claim, bool deleted) {
    // Kubelet unprepares the claim.
    if (!deleted) Seen(uid, {claim});
  };
  callbacks.problem = [name = NameOf(entry.claim),
                       last = std::make_shared<std::string>()](const std::string& problem) {
    if (problem != *last && !problem.empty())
      Say(absl::StrCat(name, " is not followed: ", problem, ". The driver tries again"));
    *last = problem;
  };
  entry.watch = std::make_unique<ObjectWatch>(api_, Collection(entry.claim.namespace_()),
                                              absl::StrCat("metadata.name=", entry.claim.name()),
                                              std::move(callbacks));
}

void ClaimStore::Seen(const std::string& uid, const std::vector<Json>& claims) {
  const MutexLock lock(&mutex_);
  const auto entry = entries_.find(uid);
  if (entry == entries_.end()) return;
  const auto found = std::find_if(claims.begin(), claims.end(), [&](const Json& claim) {
    return At(claim, "metadata", "uid") == uid;
  });
  if (found != claims.end()) {
    entry->second.news = *found;
  } else if (entry->second.restored) {
    entry->second.gone = true;
  }
  entry->second.restored = false;
}

absl::Status ClaimStore::Save() {
  record::PreparedClaims claims;
  for (const auto& [uid, entry] : entries_) *claims.add_claims() = entry.claim;
  std::string text;
  google::protobuf::TextFormat::PrintToString(claims, &text);
  return WriteFile(FileName(), text);
}

absl::Status ClaimStore::WriteCdi() {
  std::vector<std::string> endpoints;
  for (const auto& [uid, entry] : entries_) endpoints.push_back(entry.claim.endpoint().name());
  if (endpoints.empty()) {
    // A specification has at least one device.
    std::error_code error;
    fs::remove(options_.cdi_file, error);
    if (!error) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("cannot remove ", options_.cdi_file, ": ", error.message()));
  }
  return containers::WriteCdiSpec(
      options_.cdi_file,
      containers::CdiSpec(kCdiClaims, options_.common, options_.run_directory, endpoints));
}

absl::Status ClaimStore::Ensure(const proto::TenantEndpoint& endpoint, bool other_settings) {
  const absl::StatusOr<proto::EndpointList> open = daemon_.Endpoints();
  if (!open.ok()) return OfDaemon(open.status());
  const bool there =
      std::any_of(open->endpoints().begin(), open->endpoints().end(),
                  [&](const proto::TenantEndpoint& one) { return one.name() == endpoint.name(); });
  if (!there) return OfDaemon(daemon_.OpenEndpoint(endpoint));
  return other_settings ? OfDaemon(daemon_.ChangeEndpoint(endpoint)) : absl::OkStatus();
}

absl::StatusOr<record::PreparedClaim> ClaimStore::Prepare(const ClaimRef& ref) {
  if (ref.namespace_.empty() || ref.name.empty() || ref.uid.empty())
    return absl::InvalidArgumentError("a claim has a namespace, a name and a uid");
  std::vector<Gpu> gpus;
  {
    const MutexLock lock(&mutex_);
    const auto entry = entries_.find(ref.uid);
    if (entry != entries_.end()) {
      entry->second.restored = entry->second.gone = false;  // kubelet knows it
      DETSHARE_RETURN_IF_ERROR(Ensure(entry->second.claim.endpoint(), /*other_settings=*/false));
      DETSHARE_RETURN_IF_ERROR(WriteCdi());
      return entry->second.claim;
    }
    gpus = gpus_;
  }
  if (gpus.empty()) return absl::UnavailableError("no daemon has told this node's GPUs yet");
  DETSHARE_ASSIGN_OR_RETURN(
      const Json object, api_.Get(absl::StrCat(Collection(ref.namespace_), "/", Encode(ref.name))));
  if (At(object, "metadata", "uid") != ref.uid) {
    return absl::FailedPreconditionError(
        "the claim was deleted, and there is another one of its name");
  }
  DETSHARE_ASSIGN_OR_RETURN(const record::PreparedClaim claim,
                            ReadClaim(object, options_.pool, gpus));
  for (const Gpu& gpu : gpus) {
    const auto& ids = claim.endpoint().device_ids();
    if (gpu.healthy || std::find(ids.begin(), ids.end(), gpu.uuid) == ids.end()) continue;
    return absl::UnavailableError(
        absl::StrCat("device ", DeviceName(gpu.uuid), " cannot be used: ", gpu.problem));
  }
  const MutexLock lock(&mutex_);
  // Another call may have prepared it meanwhile.
  Entry& entry = entries_[ref.uid];
  DETSHARE_RETURN_IF_ERROR(Begin(entry, claim));
  return entry.claim;
}

absl::Status ClaimStore::Begin(Entry& entry, const record::PreparedClaim& claim) {
  const bool fresh = entry.watch == nullptr;
  entry.claim = claim;
  absl::Status begun = Ensure(claim.endpoint(), /*other_settings=*/true);
  if (begun.ok()) begun = Save();
  if (begun.ok()) begun = WriteCdi();
  if (!begun.ok()) {
    // Tend() closes an endpoint without an entry.
    if (fresh) entries_.erase(claim.uid());
    return begun;
  }
  if (!fresh) return absl::OkStatus();
  Watch(entry);
  status_.Report(claim, "");
  Say(absl::StrCat(NameOf(claim), " is prepared: endpoint ", claim.endpoint().name()));
  return absl::OkStatus();
}

absl::Status ClaimStore::Unprepare(const std::string& uid) {
  std::unique_ptr<ObjectWatch> watch;
  {
    const MutexLock lock(&mutex_);
    const auto entry = entries_.find(uid);
    if (entry == entries_.end()) return absl::OkStatus();
    Entry taken = std::move(entry->second);
    entries_.erase(entry);
    if (absl::Status saved = Save(); !saved.ok()) {
      entries_[uid] = std::move(taken);
      return saved;
    }
    const std::string endpoint = taken.claim.endpoint().name();
    const absl::Status closed = daemon_.CloseEndpoint(endpoint);
    Say(absl::StrCat(NameOf(taken.claim), " is unprepared",
                     closed.ok() ? ""
                                 : absl::StrCat("; its endpoint stays until the daemon "
                                                "replies: ",
                                                std::string(closed.message()))));
    if (absl::Status written = WriteCdi(); !written.ok()) Say(std::string(written.message()));
    watch = std::move(taken.watch);
  }
  // The watch ends without the mutex, for which it may wait.
  return absl::OkStatus();
}

void ClaimStore::Apply(Entry& entry, const Json& news) {
  const absl::StatusOr<record::PreparedClaim> now = ReadClaim(news, options_.pool, gpus_);
  std::string problem(now.status().message());
  if (now.ok()) {
    const absl::Status changed = Change(entry, now->endpoint());
    if (absl::IsUnavailable(changed)) {
      entry.news = news;  // the next Tend() tries again
      return;
    }
    problem = std::string(changed.message());
  }
  if (problem == entry.problem) return;
  if (!problem.empty()) Say(absl::StrCat(NameOf(entry.claim), " keeps its parameters: ", problem));
  entry.problem = problem;
  status_.Report(entry.claim, problem);
}

absl::Status ClaimStore::Change(Entry& entry, const proto::TenantEndpoint& to) {
  proto::TenantEndpoint& endpoint = *entry.claim.mutable_endpoint();
  const bool settings = to.tenant().SerializeAsString() != endpoint.tenant().SerializeAsString();
  if (!settings && AreSame(to.owner(), endpoint.owner())) return absl::OkStatus();
  if (settings) {
    DETSHARE_RETURN_IF_ERROR(OfDaemon(daemon_.ChangeEndpoint(to)));
    *endpoint.mutable_tenant() = to.tenant();
    Say(absl::StrCat(NameOf(entry.claim), " has other parameters now"));
  }
  if (!AreSame(to.owner(), endpoint.owner())) {
    DETSHARE_RETURN_IF_ERROR(OfDaemon(daemon_.SetOwner(to.name(), to.owner())));
    *endpoint.mutable_owner() = to.owner();
  }
  return Save();
}

void ClaimStore::Tend(const std::vector<Gpu>& gpus) {
  std::vector<std::string> gone;
  {
    const MutexLock lock(&mutex_);
    gpus_ = gpus;
    const absl::StatusOr<proto::EndpointList> open = daemon_.Endpoints();
    if (!open.ok()) return;
    std::set<std::string> names;
    for (const proto::TenantEndpoint& endpoint : open->endpoints()) {
      names.insert(endpoint.name());
      if (endpoint.allocator() != kClaimAllocator || keep_unknown_) continue;
      const bool known = std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) {
        return entry.second.claim.endpoint().name() == endpoint.name();
      });
      if (!known && daemon_.CloseEndpoint(endpoint.name()).ok())
        Say(absl::StrCat("endpoint ", endpoint.name(), " of no prepared claim is closed"));
    }
    for (auto& [uid, entry] : entries_) {
      if (entry.gone) {
        gone.push_back(uid);
        continue;
      }
      if (entry.news.has_value()) {
        const Json news = *std::move(entry.news);
        entry.news.reset();
        Apply(entry, news);
      }
      if (names.count(entry.claim.endpoint().name()) != 0) continue;
      const absl::Status opened = daemon_.OpenEndpoint(entry.claim.endpoint());
      Say(absl::StrCat(NameOf(entry.claim),
                       opened.ok() ? " has its endpoint again" : " has no endpoint: ",
                       std::string(opened.message())));
    }
  }
  for (const std::string& uid : gone) {
    if (absl::Status ended = Unprepare(uid); !ended.ok()) Say(std::string(ended.message()));
  }
}

}  // namespace detshare::kubernetes
