// The claims that are prepared on this node: their tenant endpoints, their devices for container
// runtimes (CDI), and a file that remembers them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/mutex.h"
#include "tools/containers/injection.h"
#include "tools/kubernetes/daemon_link.h"
#include "tools/kubernetes/dra/api_server.h"
#include "tools/kubernetes/dra/claim.h"
#include "tools/kubernetes/dra/claim_status.h"
#include "tools/kubernetes/dra/object_watch.h"
#include "tools/kubernetes/gpu.h"

namespace detshare::kubernetes {

// The class of the devices that claims give to container runtimes.
inline constexpr char kCdiClaims[] = "detshare.io/claim";

struct ClaimRef {
  std::string namespace_, name, uid;
};

// Any thread may call it, except that only one calls Tend().
class ClaimStore {
 public:
  struct Options {
    std::string pool;
    std::string directory;      // of the file; only one process may use it
    std::string cdi_file;       // of the CDI specification
    std::string run_directory;  // the directory of the daemon's socket on the host
    containers::Injection common;
  };

  // Reads what an earlier process has prepared. `api` and `daemon` outlive the store. FailedPrecondition
  // while another process uses the directory.
  static absl::StatusOr<std::unique_ptr<ClaimStore>> Create(const ApiServer& api,
                                                            DaemonLink& daemon, Options options);
  ~ClaimStore();
  ClaimStore(const ClaimStore&) = delete;
  ClaimStore& operator=(const ClaimStore&) = delete;

  // Opens the claim's endpoint. A claim that is prepared already keeps its endpoint and sessions.
  absl::StatusOr<record::PreparedClaim> Prepare(const ClaimRef& claim);
  // Closes the claim's endpoint; at once, or as soon as the daemon replies. Ok also for a claim that
  // is not prepared.
  absl::Status Unprepare(const std::string& uid);

  // Makes the daemon's endpoints those of the claims: applies parameters that have changed, opens
  // endpoints that are missing, and closes those of claims that are not prepared, or that are gone
  // since before the process began. Called often; `gpus` are those that the daemon has now.
  void Tend(const std::vector<Gpu>& gpus);

 private:
  struct Entry {
    record::PreparedClaim claim;
    std::unique_ptr<ObjectWatch> watch;
    std::optional<Json> news;  // the claim as the API server has it, not yet applied
    bool restored = false;     // an earlier process has prepared it, and it has not been seen yet
    bool gone = false;
    std::string problem;  // of its latest parameters, which are not in force
  };

  ClaimStore(const ApiServer& api, DaemonLink& daemon, Options options, int lock);
  absl::Status Load();
  void Watch(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A watch has seen these claims; the claim with this uid is among them or gone.
  void Seen(const std::string& uid, const std::vector<Json>& claims);
  absl::Status Save() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteCdi() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Opens the endpoint. One that is open stays, and gets the settings if it may have others.
  absl::Status Ensure(const proto::TenantEndpoint& endpoint, bool other_settings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Opens the endpoint of a claim, keeps the claim and follows it. With an error the entry of a new
  // claim is gone.
  absl::Status Begin(Entry& entry, const record::PreparedClaim& claim)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Applies the parameters of the claim as it is now, or says why they cannot be.
  void Apply(Entry& entry, const Json& news) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the entry's endpoint the settings and the owner of `to`.
  absl::Status Change(Entry& entry, const proto::TenantEndpoint& to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string FileName() const { return options_.directory + "/claims"; }

  const ApiServer& api_;
  DaemonLink& daemon_;
  const Options options_;
  const int lock_;
  ClaimStatus status_;

  Mutex mutex_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by uid
  std::vector<Gpu> gpus_ ABSL_GUARDED_BY(mutex_);
  // The file was damaged, so endpoints without an entry may be those of running pods.
  bool keep_unknown_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace detshare::kubernetes
