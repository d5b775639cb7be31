// The parameters of a claim for this driver: an object of kind ClaimParameters in the opaque
// configuration of a ResourceClaim or DeviceClass, or in an annotation of a ResourceClaim.
// docs/kubernetes.md describes them.
//
// All functions are pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/admin.pb.h"

namespace detshare::kubernetes {

inline constexpr char kParametersVersion[] = "gpu.detshare.io/v1alpha1";
inline constexpr char kParametersKind[] = "ClaimParameters";

// Whether the object must have apiVersion and kind. An annotation need not.
enum class Typed { kYes, kNo };

// Returns the settings that the parameters name; no other field is set. InvalidArgument, with the
// path of the field below `where`, for anything that the format does not allow.
absl::StatusOr<proto::TenantSetting> ParseParameters(const nlohmann::json& parameters,
                                                     const std::string& where, Typed typed);

// The parameter that both set, to different values, such as "objectives.tpot"; "": none.
std::string ConflictOf(const proto::TenantSetting& a, const proto::TenantSetting& b);

}  // namespace detshare::kubernetes
