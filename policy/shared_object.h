// Policies in shared objects, for operators who write a policy of their own.
//
// Such an object exports one variable, which DETSHARE_POLICY defines in one of its files:
//
//   absl::StatusOr<std::unique_ptr<Policy>> Create(const Options& options);
//   DETSHARE_POLICY(Create)
//
// The object is built against the headers of the same DetShare. The variable carries the version of
// the interface and the sizes of what crosses it, and LoadPolicy() refuses an object that differs.
// The policy's decisions are corrected, so that they name no partitions or ranks that do not exist.
// The first correction gives a warning. Apart from that, the object is code in the daemon's process and trusted like the daemon. It must
// throw no exceptions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "policy/policy.h"

namespace detshare::policy {

// The variable that the object exports. DETSHARE_POLICY fills it in.
struct PolicyInterface {
  // Raised when the meaning of policy.h changes.
  static constexpr uint32_t kVersion = 5;

  uint32_t version = kVersion;
  uint32_t snapshot_bytes = sizeof(Snapshot);
  uint32_t coroutine_bytes = sizeof(CoroutineView);
  uint32_t other_engine_bytes = sizeof(OtherEngineView);
  uint32_t tenant_bytes = sizeof(Tenant);
  uint32_t grant_bytes = sizeof(Grant);
  // Returns a policy, which the caller owns, or null with the reason in `error`.
  Policy* (*create)(const Options& options, std::string* error) = nullptr;
};

inline constexpr char kPolicySymbol[] = "detshare_policy";

#define DETSHARE_POLICY(factory)                                        \
  extern "C" __attribute__((visibility("default")))                     \
  const ::detshare::policy::PolicyInterface detshare_policy;            \
  const ::detshare::policy::PolicyInterface detshare_policy = {         \
      .create = [](const ::detshare::policy::Options& options,          \
                   std::string* error) -> ::detshare::policy::Policy* { \
        auto policy = (factory)(options);                               \
        if (policy.ok()) return policy->release();                      \
        *error = std::string(policy.status().message());                \
        return nullptr;                                                 \
      }};

// Whether the name of a policy is the path of a shared object: there is a slash in it.
bool IsSharedObject(std::string_view name);
// InvalidArgument for a path that is not absolute.
absl::Status CheckPath(const std::string& path);

// Tells an operator, in one line, what is wrong with a policy. May be null.
using Warn = std::function<void(const std::string& text)>;

// Loads the policy of the shared object at `path`, which must be absolute. The object stays loaded
// as long as the policy lives. The first decision that must be corrected calls `warn`. NotFound if
// the object cannot be opened; FailedPrecondition if it has no policy, or has one for another
// interface; InvalidArgument if the path is not absolute or the policy refuses the options.
absl::StatusOr<std::unique_ptr<Policy>> LoadPolicy(const std::string& path, const Options& options,
                                                   Warn warn = nullptr);

}  // namespace detshare::policy
