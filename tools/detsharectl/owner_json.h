// An owner (proto/admin.proto) as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "proto/admin.pb.h"

namespace detshare::ctl {

// An object with all fields; null for an empty owner.
nlohmann::ordered_json OwnerJson(const proto::Owner& owner);

}  // namespace detshare::ctl
