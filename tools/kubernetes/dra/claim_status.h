// Writes into the status of claims what the driver did with them: for each device whether it is
// ready, and whether the claim's latest parameters are in force. People see it with kubectl.
#pragma once

#include <map>
#include <string>
#include <thread>

#include "proto/mutex.h"
#include "tools/kubernetes/dra/api_server.h"
#include "tools/kubernetes/dra/prepared_claims.pb.h"

namespace detshare::kubernetes {

// Any thread may call it. Nothing depends on these writes: a server that refuses one is not asked
// again for it.
class ClaimStatus {
 public:
  // `api` outlives it.
  ClaimStatus(const ApiServer& api, std::string pool);
  ~ClaimStatus();
  ClaimStatus(const ClaimStatus&) = delete;
  ClaimStatus& operator=(const ClaimStatus&) = delete;

  // `problem` says why the latest parameters are not in force; "": they are. Returns at once. A later
  // report about the claim replaces one that is not yet written.
  void Report(const record::PreparedClaim& claim, const std::string& problem);

 private:
  struct Entry {
    record::PreparedClaim claim;
    std::string problem;
  };

  void Run();

  const ApiServer& api_;
  const std::string pool_;
  Mutex mutex_;
  CondVar wake_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Entry> waiting_ ABSL_GUARDED_BY(mutex_);  // by uid
  std::thread thread_;
};

// The object that is applied to the claim's status, with this time in its conditions.
Json StatusOf(const record::PreparedClaim& claim, const std::string& pool,
              const std::string& problem, const std::string& time);

}  // namespace detshare::kubernetes
