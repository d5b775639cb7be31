// Shows what tenants use in this process to other processes that serve the same tenants, so that a limit
// holds for all of them together.
//
// The supervisor says which other process serves which tenant (Share()). What a process publishes about
// another tenant does not count. So it can take from a limit only what its clients could take anyway.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "coroutine_runtime/engine_page.h"
#include "coroutine_runtime/quota.h"
#include "proto/mutex.h"

namespace detshare {

// Threading: any thread.
class TenantBoard {
 public:
  // Both null: there is no other process. They outlive the object.
  TenantBoard(EnginePage* own, const EnginePeers* peers) : own_(own), peers_(peers) {}

  // Another process serves the tenant, too. Its figures count as long as it is a peer.
  void Share(pid_t process, const std::string& tenant);

  // The tenant's words in the page of this process, until Release(). Null if there is no other process,
  // or no room.
  TenantWords* Claim(const std::string& tenant);
  static void Release(TenantWords* words);
  // For the tenant's quotas: where they publish, and what other processes use. `words` come from
  // Claim(); null: nothing is shared. The board outlives the quotas.
  Quota::Shared Memory(const std::string& tenant, TenantWords* words, size_t device);
  Quota::Shared Pinned(const std::string& tenant, TenantWords* words);

 private:
  template <typename Word>
  uint64_t SumOfOthers(const std::string& tenant, uint64_t hash, const Word& word) const;

  EnginePage* const own_;
  const EnginePeers* const peers_;
  mutable Mutex mutex_;
  std::map<std::string, std::set<uint64_t>> others_ ABSL_GUARDED_BY(mutex_);  // peers, by tenant
};

}  // namespace detshare
