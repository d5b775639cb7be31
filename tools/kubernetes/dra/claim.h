// What a ResourceClaim asks of this node: the tenant endpoint of its pods.
//
// All functions are pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/kubernetes/dra/prepared_claims.pb.h"
#include "tools/kubernetes/gpu.h"

namespace detshare::kubernetes {

inline constexpr char kDriver[] = "gpu.detshare.io";
// Settings that replace those of the claim's own configuration. Unlike the configuration, an
// annotation can change while pods use the claim.
inline constexpr char kParametersAnnotation[] = "gpu.detshare.io/parameters";
// The driver's name among allocators (TenantEndpoint.allocator).
inline constexpr char kClaimAllocator[] = "detshare-dra-driver";

// Capacities of a device that claims consume.
inline constexpr char kMemory[] = "memory";
inline constexpr char kMultiprocessors[] = "multiprocessors";
inline constexpr char kPlaces[] = "places";

// The GPU's name in slices and claims, which is a DNS label.
std::string DeviceName(const std::string& uuid);

// The name of the endpoint of a claim.
std::string EndpointName(const std::string& uid);
bool IsClaimEndpoint(const std::string& name);

// Reads a claim that has devices of this driver in `pool`, and the parameters that apply to them. A
// claim is one tenant, so all its requests must lead to the same settings. InvalidArgument, with the
// field, for parameters that the format does not allow or that contradict each other;
// FailedPrecondition for a claim without such devices; NotFound for a device that is not among `gpus`.
absl::StatusOr<record::PreparedClaim> ReadClaim(const nlohmann::json& claim,
                                                const std::string& pool,
                                                const std::vector<Gpu>& gpus);

}  // namespace detshare::kubernetes
